import { sha256Of } from "../../../util/sha256.js";
import type { PinnedRun, Plan, RunId } from "../../../plan/plan.js";
import type { PublishedRun } from "../../../publish/published-run.js";
import {
  asPruned,
  type HistoryRequest,
  isUnfinished,
  type OtherRuns,
  type RecordedRun,
  recordedRun,
  type RecordedSpending,
} from "../../../publish/recorded-run.js";
import type { Sink } from "../../port.js";
import type { Session } from "../connections.js";
import { showTable } from "../names.js";
import { retried, retriedRead, type RunTools } from "../run-tools.js";
import { whyGone } from "../control/swaps.js";
import { parseTombstone } from "../../../publish/pruned-run.js";
import { JobError } from "../../../util/errors.js";
import {
  decisionDocument,
  type DocumentKind,
  errorsDocument,
  spendingDocument,
  verdictDocument,
} from "../../ledger.js";
import { type Control, type PlanRow, storedPlan, utcText } from "../control/control.js";
import { documentsSql, parseDocument } from "../control/documents.js";
import { isTombstone } from "./prune-runs.js";

/** Reads earlier runs from the control tables. */
export function pastRuns(tools: RunTools): Pick<Sink, "published" | "readProfile" | "history"> {
  const { control, planTarget, target } = tools;
  const doing = `reading ${target}`;
  return {
    published: () => retriedRead<readonly PublishedRun[]>(tools, doing, [], (session) => publishedRuns(session, tools)),
    readProfile: (pinned) => retried(tools, doing, (session) => publishedProfile(session, control, pinned)),
    history: (request) =>
      retriedRead<readonly RecordedRun[]>(
        tools,
        `reading the runs of ${request.job} at ${planTarget.server}`,
        [],
        (session) => readHistory(session, tools, request),
      ),
  };
}

/** A run with its counts. The driver returns int8 and numeric as text. */
interface HistoryRow extends PlanRow {
  readonly run_id: RunId;
  /** Whether a later run of the same params was opened. */
  readonly later: boolean;
  readonly finished_at: string | null;
  readonly spans: number;
  readonly rows: string | null;
  readonly rejected: string | null;
  readonly last_commit_at: string | null;
  readonly seconds: number | null;
  /** JSON that the driver has parsed. */
  readonly spending: RecordedSpending | null;
  readonly rolled_back: boolean;
  /** The texts of its documents, by name; null: it has none. */
  readonly documents: Readonly<Record<string, string>> | null;
  /** The first tombstone after it, as text. */
  readonly tombstone: string | null;
}

/** Reads the latest runs of a job for a target. */
async function readHistory(
  session: Session,
  tools: RunTools,
  { job, runId, last, others, unfinishedBut }: HistoryRequest,
): Promise<readonly RecordedRun[]> {
  const { control, name } = tools;
  const { table, where } = control;
  const target = showTable(name);
  const { rows } = await session.query<HistoryRow>({
    text: `SELECT r.run_id, r.plan, r.plan_id, ${where.hasLater} AS later, ${where.isRolledBack} AS rolled_back,
        ${utcText("f.finished_at")} AS finished_at, f.spending, s.spans, s.rows, s.rejected, ${utcText("s.last_at")} AS last_commit_at,
        ${secondsSql(control, "r.run_id")} AS seconds, ${documentsSql(control, "r.run_id")} AS documents,
        (SELECT t.plan FROM ${table("runs")} t WHERE t.base = r.base AND t.number > r.number AND ${isTombstone("t")}
          ORDER BY t.number LIMIT 1) AS tombstone
      FROM ${table("runs")} r LEFT JOIN ${table("finishes")} f USING (run_id)
      CROSS JOIN LATERAL (
        SELECT count(*)::integer AS spans, sum(rows) AS rows, sum(rejected) AS rejected, max(committed_at) AS last_at
        FROM ${table("spans")} s WHERE s.run_id = r.run_id) s
      WHERE r.job = $1 AND r.target = $2 AND NOT ${isTombstone("r")} AND r.run_id = coalesce($4, r.run_id)
        AND ($5::text IS NULL OR r.base <> $5 AND ${where.isOpen})
      ORDER BY coalesce(r.logical_date, r.planned_at) DESC, r.number DESC LIMIT $3`,
    values: [job, target, last, runId ?? null, unfinishedBut ?? null],
  });
  if (others !== undefined) {
    await readOthers(session, control, others, job, target);
  }
  const runs = rows.map((row) => {
    const run = recordOf(control, target, row);
    const pruned = row.tombstone === null ? undefined : parseTombstone(row.tombstone);
    return pruned === undefined ? run : asPruned(run, pruned);
  });
  return unfinishedBut === undefined ? runs : await withWhyGone(session, tools, runs.filter(isUnfinished));
}

/** Adds what has taken their rows out of the table. Rows of held runs are in tables of their own. */
async function withWhyGone(
  session: Session,
  tools: RunTools,
  runs: readonly RecordedRun[],
): Promise<readonly RecordedRun[]> {
  const all: RecordedRun[] = [];
  for (const run of runs) {
    const { plan, status } = run;
    const gone = plan === undefined || status === "held" ? undefined : await whyGone(session, tools, plan);
    all.push({ ...run, gone });
  }
  return all;
}

/** The limit of other tables, and of other jobs, that are read. */
const othersLimit = 20;

/** Reads which other jobs have runs for the target, and which other tables the job has runs for. */
async function readOthers(
  session: Session,
  { table }: Control,
  others: OtherRuns,
  job: string,
  target: string,
): Promise<void> {
  const { rows } = await session.query<{ job: string; target: string; params: Plan["params"] }>({
    text: `SELECT job, target, params FROM (
        SELECT job, target, (array_agg(params ORDER BY planned_at DESC))[1] AS params, max(planned_at) AS at,
          row_number() OVER (PARTITION BY job = $1 ORDER BY max(planned_at) DESC) AS n
        FROM ${table("runs")} WHERE (job = $1) <> (target = $2) GROUP BY job, target) o
      WHERE n <= ${othersLimit} ORDER BY at DESC`,
    values: [job, target],
  });
  for (const row of rows) {
    if (row.job === job) {
      others.tables.set(row.target, row.params);
    } else {
      others.jobs.add(row.job);
    }
  }
}

function recordOf(control: Control, place: string, row: HistoryRow): RecordedRun {
  const { run_id: runId, documents } = row;
  const common = {
    runId,
    place,
    rows: Number(row.rows ?? 0),
    rejected: Number(row.rejected ?? 0),
    spansCommitted: row.spans,
    seconds: row.seconds,
    rolledBack: row.rolled_back,
  };
  const look = <T>(kind: DocumentKind<T>): T | undefined => parseDocument(control, runId, kind, documents?.[kind.name]);
  try {
    const plan = storedPlan(row)?.plan;
    if (plan !== undefined) {
      const isPaid = plan.request.prompt !== undefined;
      return recordedRun({
        ...common,
        plan,
        verdict: plan.checks === null ? undefined : look(verdictDocument),
        decision: plan.staged ? look(decisionDocument) : undefined,
        failure: row.finished_at === null ? look(errorsDocument)?.errors.at(-1) : undefined,
        spending: row.spending ?? (isPaid ? look(spendingDocument) : undefined),
        publishedAt: row.finished_at ?? undefined,
        committedAt: row.last_commit_at,
        isOver: row.later,
      });
    }
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error;
    }
  }
  // Its damage must not hide other runs.
  const unknown = { plan: undefined, at: null, verdict: undefined, decision: undefined, failure: undefined };
  return { ...common, ...unknown, status: "damaged" };
}

interface PublishedRow {
  readonly run_id: RunId;
  readonly job: string | null;
  readonly params: Plan["params"] | null;
  readonly profile_sha256: string | null;
  readonly model_sha256: string;
  readonly normal: boolean;
  /** Who decided on a run that later runs are not compared with. */
  readonly by: string | null;
  readonly empty: boolean;
}

/** Finds the published runs of all jobs whose rows are in the table. */
async function publishedRuns(session: Session, tools: RunTools): Promise<readonly PublishedRun[]> {
  const { control, name, target } = tools;
  const { table } = control;
  const { rows } = await session.query<PublishedRow>({
    text: `SELECT f.run_id, r.job, r.params, f.model_sha256, d.run_id IS NULL AS normal, d.by,
        CASE WHEN f.profile IS NOT NULL THEN f.profile_sha256 END AS profile_sha256,
        NOT EXISTS (SELECT FROM ${table("spans")} s WHERE s.run_id = f.run_id AND s.rows > 0) AS empty
      FROM ${table("finishes")} f LEFT JOIN ${table("runs")} r USING (run_id)
        LEFT JOIN ${table("decisions")} d ON d.run_id = f.run_id AND NOT d.as_baseline
      WHERE f.target = $1
        AND NOT EXISTS (SELECT FROM ${table("swaps")} w WHERE w.run_id = f.run_id AND w.action = 'rollback')
      ORDER BY f.publication`,
    values: [showTable(name)],
  });
  return rows.map(({ run_id: runId, job, params, profile_sha256: sha256, ...row }) => ({
    runId,
    job,
    params,
    isEmpty: row.empty,
    modelSha256: row.model_sha256,
    profile: sha256 === null ? undefined : { sha256, place: "" },
    isNormal: row.normal,
    decidedBy: () => Promise.resolve(row.by ?? undefined),
    seconds: () => retriedRead(tools, `reading ${target}`, null, (own) => secondsOf(own, control, runId)),
  }));
}

async function secondsOf(session: Session, control: Control, runId: RunId): Promise<number | null> {
  const { rows } = await session.query<{ seconds: number | null }>({
    text: `SELECT ${secondsSql(control, "$1")} AS seconds`,
    values: [runId],
  });
  return rows[0]?.seconds ?? null;
}

/** How long a run was scored: from the start of its first attempt to its last commit. @param id SQL for the id of the run */
function secondsSql({ table }: Control, id: string): string {
  return `extract(epoch FROM (SELECT max(s.committed_at) FROM ${table("spans")} s WHERE s.run_id = ${id})
    - (SELECT min(a.started_at) FROM ${table("attempts")} a WHERE a.run_id = ${id}))::float8`;
}

/** Reads the profile of a published run. @throws JobError DATABASE when it is gone, or is another one */
async function publishedProfile(session: Session, control: Control, { runId, sha256 }: PinnedRun): Promise<string> {
  const { rows } = await session.query<{ profile: string | null }>({
    text: `SELECT profile FROM ${control.table("finishes")} WHERE run_id = $1`,
    values: [runId],
  });
  const profile = rows[0]?.profile;
  if (typeof profile !== "string" || sha256Of(profile) !== sha256) {
    const found = typeof profile === "string" ? "is not the one that the plan names" : "is gone";
    throw new JobError("DATABASE", `reading ${control.schema}.finishes: the profile of run ${runId} ${found}`, {
      hint: "the control tables were changed; restore them from a backup, or start over with --new-run",
    });
  }
  return profile;
}
