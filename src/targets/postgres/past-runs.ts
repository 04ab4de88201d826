import { sha256Of } from "../../base/sha256.js";
import type { PinnedRun, Plan, RunId } from "../../run/plan/plan.js";
import type { PublishedRun } from "../../run/lifecycle/published-run.js";
import {
  asPruned,
  type HistoryRequest,
  isUnfinished,
  type OtherRuns,
  type RecordedRun,
  recordedRun,
  type RecordedSpending,
} from "../../run/lifecycle/recorded-run.js";
import { lock, type Session } from "./connections.js";
import { type LeftTable, showTable } from "./table.js";
import { finishSeconds, retried, retriedRead, retriedWrite, type TableTools } from "./modes/mode.js";
import { readSwaps, whyGone } from "./swaps.js";
import {
  nothingRemoved,
  parseTombstone,
  type PruneOutcome,
  type PruneRequest,
  type Pruning,
  type Removed,
  tombstonePrefix,
  tombstoneText,
} from "../../run/lifecycle/pruned-run.js";
import { JobError } from "../../base/errors.js";
import {
  decisionDocument,
  type DocumentKind,
  errorsDocument,
  spendingDocument,
  verdictDocument,
} from "../../stores/ledger.js";
import {
  type Control,
  createDocument,
  documentsSql,
  lockRuns,
  parseDocument,
  type PlanRow,
  parseStoredPlan,
  storePlan,
  utcText,
} from "./control.js";
import { splitRunId } from "../../run/plan/identity.js";
import { dropEach, droppableTables, type PastRun } from "./own-tables.js";
import { pinsOf } from "../../run/series/prune-choice.js";

/** The driver returns int8 and numeric as text. */
interface HistoryRow extends PlanRow {
  readonly run_id: RunId;
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

export async function readHistory(
  session: Session,
  tools: TableTools,
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

/** Rows of held runs are in tables of their own. */
async function withWhyGone(
  session: Session,
  tools: TableTools,
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
    const plan = parseStoredPlan(row)?.plan;
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

export async function publishedRuns(session: Session, tools: TableTools): Promise<readonly PublishedRun[]> {
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

export async function publishedProfile(
  session: Session,
  control: Control,
  { runId, sha256 }: PinnedRun,
): Promise<string> {
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

/** Removes what is stored of old runs. Rows in the target stay. */
export async function pruneTables(tools: TableTools, request: PruneRequest): Promise<PruneOutcome> {
  const pruned = await (request.dryRun ? retried : retriedWrite)(
    tools,
    `pruning the runs before ${request.pruning.tombstone}`,
    (session) => pruneInTransaction(session, tools, request),
    finishSeconds,
  );
  if (typeof pruned === "string") {
    return { kind: "retained", why: pruned };
  }
  // After the tombstone: no attempt makes such a table again. A table that a reader holds must not fail the rest.
  const left = request.dryRun ? new Set() : await dropEach(tools, pruned.tables);
  const gone = pruned.tables.filter((table) => !left.has(showTable(table)));
  const bytes = gone.reduce((sum, table) => sum + table.bytes, pruned.counts.bytes);
  return { kind: "removed", ...nothingRemoved, ...pruned.counts, tables: gone.map(showTable), bytes };
}

type ControlCounts = Pick<Removed, "rejects" | "profiles" | "bytes">;

/** Returns the tables that are left to drop; or why nothing was removed. */
async function pruneInTransaction(
  session: Session,
  tools: TableTools,
  { latest, pruning: record, dryRun }: PruneRequest,
): Promise<{ readonly tables: readonly LeftTable[]; readonly counts: ControlCounts } | string> {
  const { control, name } = tools;
  const { tombstone } = record;
  const target = showTable(name);
  if (!dryRun) {
    await session.query("SET LOCAL statement_timeout = 0"); // a run may have millions of rejected rows
    await lockRuns(session, tombstone, { shared: false });
    await lockPins(session, target, { shared: false });
  }
  const now = await latestOf(session, control, tombstone);
  if (now?.isTombstone !== true && now?.runId !== latest) {
    return `run ${now?.runId ?? ""} was planned meanwhile`;
  }
  const runs = await runsBefore(session, control, tombstone, target);
  const ids = runs.map(({ runId }) => runId);
  const { current } = await readSwaps(session, control, name);
  if (current !== undefined && ids.includes(current)) {
    return `its rows are in ${target}`;
  }
  const pinning = await pinningRun(session, control, target, ids);
  if (pinning !== undefined) {
    return `the checks of run ${pinning} compare with it`;
  }
  const found = await droppableTables(session, control, runs);
  const counts = await countControlRows(session, control, ids);
  if (!dryRun) {
    await (now.isTombstone ? undefined : storeTombstone(session, tools, record));
    await removeControlRows(session, control, ids);
  }
  return { tables: found.filter(({ keptBy }) => !dryRun || keptBy === null), counts };
}

async function latestOf(
  session: Session,
  { table }: Control,
  tombstone: RunId,
): Promise<{ readonly runId: RunId; readonly isTombstone: boolean } | undefined> {
  const { rows } = await session.query<{ runId: RunId; isTombstone: boolean }>({
    text: `SELECT run_id AS "runId", ${isTombstone("r")} AS "isTombstone" FROM ${table("runs")} r
      WHERE base = $1 ORDER BY number DESC LIMIT 1`,
    values: [splitRunId(tombstone).base],
  });
  return rows[0];
}

/** SQL for whether a row of the table of runs is a tombstone. It takes the number of a run, and its text takes the plan's place. */
function isTombstone(row: string): string {
  return `starts_with(${row}.plan, '${tombstonePrefix}')`;
}

/** The caller has locked the runs of these params alone. Its decision keeps it from counting as an unfinished run. */
async function storeTombstone(session: Session, tools: TableTools, record: Pruning): Promise<void> {
  const { tombstone, plan, by, at } = record;
  const input = { ...plan.input, rows: 0 };
  const stood = { ...plan, runId: tombstone, input, staged: false, target: tools.planTarget };
  await storePlan(session, tools.control, stood, tombstoneText(record));
  const reason = `pruned: stands for ${plan.runId} and the runs before it`;
  const value = { kind: "discarded", by, at, reason, asBaseline: false } as const;
  await createDocument(session, tools, tombstone, decisionDocument, value);
}

/** Whether a run is pruned. */
export async function isPruned(session: Session, { table }: Control, runId: RunId): Promise<boolean> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query({
    text: `SELECT FROM ${table("runs")} t WHERE base = $1 AND number > $2 AND ${isTombstone("t")} LIMIT 1`,
    values: [base, number],
  });
  return rows.length > 0;
}

async function runsBefore(
  session: Session,
  { table }: Control,
  tombstone: RunId,
  target: string,
): Promise<readonly PastRun[]> {
  const { base, number } = splitRunId(tombstone);
  const { rows } = await session.query<PastRun>({
    text: `SELECT run_id AS "runId", target, mode FROM ${table("runs")} WHERE base = $1 AND number < $2 AND target = $3`,
    values: [base, number, target],
  });
  return rows;
}

async function countControlRows(session: Session, { table }: Control, runs: readonly RunId[]): Promise<ControlCounts> {
  const profiles = (name: "spans" | "finishes"): string =>
    `SELECT pg_column_size(profile) AS size FROM ${table(name)} WHERE run_id = ANY ($1) AND profile IS NOT NULL`;
  const { rows } = await session.query<{ rejects: string; profiles: string; bytes: string }>({
    text: `SELECT (SELECT count(*) FROM ${table("rejects")} WHERE run_id = ANY ($1)) AS rejects,
        count(*) AS profiles, coalesce(sum(size), 0) AS bytes
      FROM (${profiles("spans")} UNION ALL ${profiles("finishes")}) AS p`,
    values: [runs],
  });
  const [row] = rows;
  return { rejects: Number(row?.rejects), profiles: Number(row?.profiles), bytes: Number(row?.bytes) };
}

async function removeControlRows(session: Session, { table }: Control, runs: readonly RunId[]): Promise<void> {
  await session.query({ text: `DELETE FROM ${table("rejects")} WHERE run_id = ANY ($1)`, values: [runs] });
  for (const name of ["spans", "finishes"] as const) {
    await session.query({
      text: `UPDATE ${table(name)} SET profile = NULL WHERE run_id = ANY ($1) AND profile IS NOT NULL`,
      values: [runs],
    });
  }
}

/**
 * The fence around pinned profiles. A transaction that stores a plan takes it `shared` and checks that the profiles
 * which the plan pins are there; one that removes profiles takes it alone and checks that no open run pins them.
 */
async function lockPins(session: Session, target: string, { shared }: { readonly shared: boolean }): Promise<void> {
  await lock(session, `pins ${target}`, { shared });
}

/** Refuses a new plan whose pinned profiles were pruned since they were found. @throws JobError DATABASE */
export async function refusePrunedPins(
  session: Session,
  { table }: Control,
  plan: Plan,
  target: string,
): Promise<void> {
  const pins = pinsOf(plan);
  if (pins.length === 0) {
    return;
  }
  await lockPins(session, target, { shared: true });
  const { rows } = await session.query<{ run_id: string }>({
    text: `SELECT run_id FROM ${table("finishes")} WHERE run_id = ANY ($1) AND profile IS NULL LIMIT 1`,
    values: [pins],
  });
  if (rows[0] !== undefined) {
    throw new JobError(
      "DATABASE",
      `planning run ${plan.runId}: run ${rows[0].run_id}, which it is compared with, was pruned meanwhile`,
      {
        hint: "run the same command again: it plans the run without that one",
      },
    );
  }
}

async function pinningRun(
  session: Session,
  { table, where }: Control,
  target: string,
  runs: readonly RunId[],
): Promise<RunId | undefined> {
  const { rows } = await session.query<PlanRow>({
    text: `SELECT plan, plan_id FROM ${table("runs")} r WHERE target = $1 AND ${where.isOpen}`,
    values: [target],
  });
  const plans = rows.flatMap((row) => parseStoredPlan(row)?.plan ?? []);
  const all: ReadonlySet<string> = new Set(runs);
  return plans.find((plan) => pinsOf(plan).some((run) => all.has(run)))?.runId;
}
