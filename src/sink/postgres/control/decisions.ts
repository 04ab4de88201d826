import { type Decision, parseDecision } from "../../../publish/decision.js";
import { parseRunVerdict, type RunVerdict } from "../../../publish/run-verdict.js";
import type { ReviewedPlan } from "../../port.js";
import { parseJson } from "../../../plan/parse-plan.js";
import type { RunId } from "../../../plan/plan.js";
import type { Session } from "../connections.js";
import { damagedRun } from "../damage.js";
import { type Control, utcText } from "./control.js";

/** Reads the decision on a run. @throws JobError OUTPUT_DAMAGED */
export async function readDecision(session: Session, control: Control, runId: RunId): Promise<Decision | undefined> {
  const columns = `kind, by, ${utcText("at")} AS at, reason,
    as_baseline AS "asBaseline", successor`;
  return await readStored(session, { control, table: "decisions", columns, runId }, ({ successor, ...rest }) =>
    parseDecision(successor === null ? rest : { ...rest, successor }),
  );
}

/**
 * Stores the decision on a run unless there is one. An insertion of the same key waits for an earlier one to commit, so
 * that the first one counts.
 */
export async function storeDecision(
  session: Session,
  control: Control,
  runId: RunId,
  { kind, by, at, reason, asBaseline, successor }: Decision,
): Promise<void> {
  await session.query({
    text: `INSERT INTO ${control.table("decisions")} (run_id, kind, by, at, reason, as_baseline, successor)
      VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`,
    values: [runId, kind, by, at, reason, asBaseline, successor ?? null],
  });
}

/** Reads the verdict on a run. @throws JobError OUTPUT_DAMAGED */
export async function readVerdict(session: Session, control: Control, runId: RunId): Promise<RunVerdict | undefined> {
  return await readStored(session, { control, table: "verdicts", columns: "verdict", runId }, ({ verdict }) =>
    parseRunVerdict(parseJson(String(verdict))),
  );
}

/** Reads a run's plan with its verdict and the decision on it; undefined for an unknown run. @throws JobError OUTPUT_DAMAGED */
export async function readReviewedPlan(
  session: Session,
  control: Control,
  runId: RunId,
): Promise<ReviewedPlan | undefined> {
  const stored = await control.readPlan(session, runId);
  return (
    stored && {
      ...stored,
      verdict: await readVerdict(session, control, runId),
      decision: await readDecision(session, control, runId),
    }
  );
}

/** Stores the verdict on a run unless there is one. */
export async function storeVerdict(
  session: Session,
  control: Control,
  runId: RunId,
  verdict: RunVerdict,
): Promise<void> {
  await session.query({
    text: `INSERT INTO ${control.table("verdicts")} (run_id, outcome, verdict, writer)
      VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING`,
    values: [runId, verdict.verdict.outcome, JSON.stringify(verdict), verdict.writer],
  });
}

interface StoredRow {
  readonly control: Control;
  readonly table: "decisions" | "verdicts";
  /** The columns to read, as SQL. */
  readonly columns: string;
  readonly runId: RunId;
}

/** Reads the row of a run from a control table; undefined: it has none. @throws JobError OUTPUT_DAMAGED */
async function readStored<T>(
  session: Session,
  { control, table, columns, runId }: StoredRow,
  parse: (row: Readonly<Record<string, unknown>>) => T | undefined,
): Promise<T | undefined> {
  const { rows } = await session.query<Record<string, unknown>>({
    text: `SELECT ${columns} FROM ${control.table(table)} WHERE run_id = $1`,
    values: [runId],
  });
  const [row] = rows;
  if (row === undefined) {
    return undefined;
  }
  const value = parse(row);
  if (value === undefined) {
    throw damagedRun(`reading ${control.schema}.${table}: the row of run ${runId} was not written by infer-batch`, {
      hint: "the control tables were changed; restore them from a backup",
      runId,
    });
  }
  return value;
}
