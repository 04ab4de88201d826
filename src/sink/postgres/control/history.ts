import type { Plan, RunId } from "../../../plan/plan.js";
import type { Decision } from "../../../publish/decision.js";
import { parseTombstone } from "../../../publish/pruned-run.js";
import {
  asPruned,
  type HistoryRequest,
  type OtherRuns,
  type RecordedRun,
  type RecordedSpending,
  statusOfRun,
} from "../../../publish/recorded-run.js";
import type { RunVerdict } from "../../../publish/run-verdict.js";
import { stateOf } from "../../../publish/lifecycle.js";
import { JobError } from "../../../util/errors.js";
import { decisionDocument, errorsDocument, spendingDocument, verdictDocument } from "../../ledger.js";
import type { Session } from "../connections.js";
import { type Control, type PlanRow, storedPlan, utcText } from "./control.js";
import { readDocument } from "./documents.js";
import { secondsSql } from "./profiles.js";
import { isTombstone } from "./tombstones.js";

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
  /** The first tombstone after it, as text. */
  readonly tombstone: string | null;
}

/** Reads the latest runs of a job for a target. */
export async function readHistory(
  session: Session,
  control: Control,
  { job, last, target, others }: HistoryRequest & { readonly target: string },
): Promise<readonly RecordedRun[]> {
  const { table } = control;
  const { rows } = await session.query<HistoryRow>({
    text: `SELECT r.run_id, r.plan, r.plan_id,
        EXISTS (SELECT FROM ${table("runs")} n WHERE n.base = r.base AND n.number > r.number) AS later,
        ${utcText("f.finished_at")} AS finished_at, f.spending, s.spans, s.rows, s.rejected, ${utcText("s.last_at")} AS last_commit_at,
        EXISTS (SELECT FROM ${table("swaps")} w WHERE w.run_id = r.run_id AND w.action = 'rollback') AS rolled_back,
        ${secondsSql(control, "r.run_id")} AS seconds,
        (SELECT t.plan FROM ${table("runs")} t WHERE t.base = r.base AND t.number > r.number AND ${isTombstone("t")}
          ORDER BY t.number LIMIT 1) AS tombstone
      FROM ${table("runs")} r LEFT JOIN ${table("finishes")} f USING (run_id)
      CROSS JOIN LATERAL (
        SELECT count(*)::integer AS spans, sum(rows) AS rows, sum(rejected) AS rejected, max(committed_at) AS last_at
        FROM ${table("spans")} s WHERE s.run_id = r.run_id) s
      WHERE r.job = $1 AND r.target = $2 AND NOT ${isTombstone("r")} ORDER BY coalesce(r.logical_date, r.planned_at) DESC, r.number DESC LIMIT $3`,
    values: [job, target, last],
  });
  if (others !== undefined) {
    await readOthers(session, control, { job, target, others });
  }
  const runs: RecordedRun[] = [];
  for (const row of rows) {
    const run = await recordedRun(session, control, row);
    const pruned = row.tombstone === null ? undefined : parseTombstone(row.tombstone);
    const found = { ...run, place: target };
    runs.push(pruned === undefined ? found : asPruned(found, pruned));
  }
  return runs;
}

/** The limit of other tables, and of other jobs, that are read. */
const othersLimit = 20;

/** Reads which other jobs have runs for the target, and which other tables the job has runs for. */
async function readOthers(
  session: Session,
  { table }: Control,
  { job, target, others }: { readonly job: string; readonly target: string; readonly others: OtherRuns },
): Promise<void> {
  const { rows } = await session.query<{
    job: string;
    target: string;
    params: Readonly<Record<string, string>>;
  }>({
    text: `SELECT job, target, params FROM (
        SELECT job, target, (array_agg(params ORDER BY planned_at DESC))[1] AS params, max(planned_at) AS at,
          row_number() OVER (PARTITION BY job = $1 ORDER BY max(planned_at) DESC) AS n
        FROM ${table("runs")} WHERE (job = $1) <> (target = $2) GROUP BY job, target) o
      WHERE n <= ${othersLimit} ORDER BY at DESC`,
    values: [job, target],
  });
  for (const other of rows) {
    if (other.job === job) {
      others.tables.set(other.target, other.params);
    } else {
      others.jobs.add(other.job);
    }
  }
}

async function recordedRun(session: Session, control: Control, row: HistoryRow): Promise<Omit<RecordedRun, "place">> {
  const { run_id: runId } = row;
  const published = row.finished_at !== null;
  const failure = published
    ? undefined
    : (await readDocument(session, control, { runId, kind: errorsDocument }))?.errors.at(-1);
  const common = {
    runId,
    rows: Number(row.rows ?? 0),
    rejected: Number(row.rejected ?? 0),
    spansCommitted: row.spans,
    seconds: row.seconds,
    spending: row.spending ?? undefined,
    rolledBack: row.rolled_back,
    failure,
  };
  const stored = storedPlan(row);
  const review = stored === undefined ? undefined : await reviewOf(session, control, stored.plan);
  if (stored === undefined || review === undefined) {
    return { ...common, status: "damaged", plan: undefined, at: null, verdict: undefined, decision: undefined };
  }
  const { plan } = stored;
  const { verdict, decision } = review;
  const isPaid = plan.request.prompt !== undefined && common.spending === undefined;
  const spending = isPaid ? await readDocument(session, control, { runId, kind: spendingDocument }) : common.spending;
  const { kind } = stateOf({ published, staged: plan.staged, verdict, decision });
  const hasStopped = failure !== undefined && failure.spansCommitted >= row.spans;
  const at = row.finished_at ?? decision?.at ?? (kind === "held" ? verdict?.at : failure?.at) ?? row.last_commit_at;
  const status = statusOfRun(kind, { isOver: row.later, hasStopped });
  return { ...common, spending, status, plan, at, verdict, decision, adds: plan.target["mode"] === "append" };
}

/** Reads the verdict and the decision on a run; undefined: they are damaged, which must not hide other runs. */
async function reviewOf(
  session: Session,
  control: Control,
  plan: Plan,
): Promise<{ verdict: RunVerdict | undefined; decision: Decision | undefined } | undefined> {
  try {
    return {
      verdict:
        plan.checks === null
          ? undefined
          : await readDocument(session, control, { runId: plan.runId, kind: verdictDocument }),
      decision: plan.staged
        ? await readDocument(session, control, { runId: plan.runId, kind: decisionDocument })
        : undefined,
    };
  } catch (error) {
    if (error instanceof JobError) {
      return undefined;
    }
    throw error;
  }
}
