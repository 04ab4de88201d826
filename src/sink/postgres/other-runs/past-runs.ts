import { sha256Of } from "../../../util/sha256.js";
import type { PinnedRun, Plan, RunId } from "../../../plan/plan.js";
import { earlierDateIn, type PublishedRun, type Series, whyLeftOut } from "../../../publish/published-run.js";
import {
  asPruned,
  type HistoryRequest,
  type OtherRuns,
  type RecordedRun,
  recordedRun,
  type RecordedSpending,
} from "../../../publish/recorded-run.js";
import type { Sink, UnfinishedRun } from "../../port.js";
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
import { splitRunId } from "../../../plan/identity.js";
import { sameSeries } from "../../../plan/series.js";
import type { ReadersView, VisibleRun } from "../../../publish/readers-view.js";
import { plannedTarget } from "../target.js";

/** Reads earlier runs from the control tables. */
export function pastRuns(
  tools: RunTools,
): Pick<Sink, "unfinished" | "published" | "visible" | "readProfile" | "history"> {
  const { control, planTarget, target } = tools;
  const doing = `reading ${target}`;
  return {
    unfinished: (job, base) =>
      retriedRead<readonly UnfinishedRun[]>(
        tools,
        `looking for unfinished runs of ${job} at ${planTarget.server}`,
        [],
        (session) => unfinishedRuns(session, tools, job, base),
      ),
    visible: (plan) => retriedRead(tools, doing, undefined, (session) => visibleRun(session, tools, plan)),
    published: (series) =>
      retriedRead<readonly PublishedRun[]>(tools, doing, [], (session) => publishedRuns(session, tools, series)),
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

async function unfinishedRuns(
  session: Session,
  tools: RunTools,
  job: string,
  base: RunId,
): Promise<readonly UnfinishedRun[]> {
  const { control, name, target } = tools;
  const runs: UnfinishedRun[] = [];
  for (const { plan, held = false } of await control.unfinished(session, { job, base, table: showTable(name) })) {
    const gone = held ? undefined : await whyGone(session, tools, plan);
    runs.push({ plan, held, target, gone });
  }
  return runs;
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
  { control, name }: RunTools,
  { job, runId, last, others }: HistoryRequest,
): Promise<readonly RecordedRun[]> {
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
      ORDER BY coalesce(r.logical_date, r.planned_at) DESC, r.number DESC LIMIT $3`,
    values: [job, target, last, runId ?? null],
  });
  if (others !== undefined) {
    await readOthers(session, control, others, job, target);
  }
  return rows.map((row) => {
    const run = recordOf(control, target, row);
    const pruned = row.tombstone === null ? undefined : parseTombstone(row.tombstone);
    return pruned === undefined ? run : asPruned(run, pruned);
  });
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
        adds: plan.target["mode"] === "append",
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
  readonly params: Readonly<Record<string, string>>;
  readonly profile_sha256: string;
  readonly seconds: number | null;
  readonly model_sha256: string;
  /** Who decided on a run that later runs are not compared with; null: they are. */
  readonly left_out_by: string | null;
}

/**
 * Finds the published runs of a series with earlier dates whose profiles are stored: of each date the one that was
 * published last. Runs that were rolled back do not count, nor, unless every run is asked for, those that a person approved
 * with --not-normal, and those that were expected to differ.
 */
async function publishedRuns(
  session: Session,
  { control, name }: RunTools,
  series: Series,
): Promise<readonly PublishedRun[]> {
  const { table, where } = control;
  const { rows } = await session.query<PublishedRow>({
    text: `SELECT r.run_id, r.params, f.profile_sha256, f.model_sha256, d.by AS left_out_by,
        CASE WHEN $4 THEN ${secondsSql(control, "r.run_id")} END AS seconds
      FROM ${table("finishes")} f JOIN ${table("runs")} r USING (run_id)
        LEFT JOIN ${table("decisions")} d ON d.run_id = r.run_id AND NOT d.as_baseline
      WHERE f.target = $1 AND r.job = $2 AND f.profile IS NOT NULL
        AND ($3 OR d.run_id IS NULL)
        AND NOT ${where.isRolledBack}
      ORDER BY f.publication`,
    values: [
      showTable(name),
      series.job,
      series.everyRun === true || series.withLeftOut === true,
      series.withSeconds === true,
    ],
  });
  const byDate = new Map<string, PublishedRun>();
  for (const row of rows) {
    const { run_id: runId, params, profile_sha256: sha256, model_sha256: modelSha256, left_out_by: by } = row;
    const date = earlierDateIn(series, { job: series.job, params });
    if (date !== undefined) {
      const leftOut = series.withLeftOut === true && by !== null ? whyLeftOut(by) : undefined;
      const seconds = row.seconds ?? undefined;
      byDate.delete(`${date} ${leftOut ?? ""}`); // the order is that of the last run of each date
      byDate.set(`${date} ${leftOut ?? ""}`, { runId, date, sha256, modelSha256, place: "", leftOut, seconds });
    }
  }
  return [...byDate.values()];
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

/** The number of latest publications that are read. A table may have runs of other series. */
const publicationLimit = 200;

/**
 * Finds whose rows readers find in the table of a plan: those of the run that was published last, and not rolled back.
 * Unless publications replace the whole table, it is the last run of the plan's series, and the rows of earlier ones are
 * in the table, too.
 */
async function visibleRun(session: Session, { control: { table }, name }: RunTools, plan: Plan): Promise<ReadersView> {
  const { rows } = await session.query<{
    run_id: RunId;
    job: string | null;
    params: Plan["params"] | null;
    empty: boolean;
  }>({
    text: `SELECT f.run_id, r.job, r.params, NOT EXISTS (SELECT FROM ${table("spans")} s WHERE s.run_id = f.run_id AND s.rows > 0) AS empty
      FROM ${table("finishes")} f LEFT JOIN ${table("runs")} r USING (run_id)
      WHERE f.target = $1
        AND NOT EXISTS (SELECT FROM ${table("swaps")} s WHERE s.run_id = f.run_id AND s.action = 'rollback')
      ORDER BY f.publication DESC LIMIT ${publicationLimit}`,
    values: [showTable(name)],
  });
  const asVisible = (row: (typeof rows)[number] | undefined): VisibleRun | undefined =>
    row && { runId: row.run_id, params: row.params, isEmpty: row.empty };
  if (plannedTarget(plan).mode === "replace") {
    return { run: asVisible(rows[0]) };
  }
  const run = rows.find(({ job, params }) => job === plan.job && params !== null && sameSeries(params, plan.params));
  const { base } = splitRunId(plan.runId);
  const own = rows.find((row) => splitRunId(row.run_id).base === base);
  return { run: asVisible(run), kept: { own: own?.empty === true ? undefined : asVisible(own) } };
}
