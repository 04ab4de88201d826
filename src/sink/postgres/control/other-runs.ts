import { splitRunId } from "../../../plan/identity.js";
import type { RunId } from "../../../plan/plan.js";
import type { Session } from "../connections.js";
import type { Control } from "./control.js";
import { runConditions } from "./run-conditions.js";

/** A run that leaves tables of its own behind. */
export interface PastRun {
  readonly runId: RunId;
  /** `schema.table` */
  readonly target: string;
  readonly mode: string;
}

interface PastRow {
  readonly run_id: RunId;
  readonly target: string;
  readonly mode: string;
}

function pastRun({ run_id: runId, target, mode }: PastRow): PastRun {
  return { runId, target, mode };
}

/** Reads the earlier runs of the same job and params that were not published: they are abandoned. */
export async function abandonedRuns(session: Session, { table }: Control, runId: RunId): Promise<readonly PastRun[]> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<PastRow>({
    text: `SELECT run_id, target, mode FROM ${table("runs")} r WHERE base = $1 AND number < $2
      AND ${runConditions(table).isUnfinished}`,
    values: [base, number],
  });
  return rows.map(pastRun);
}

/** Tables of older runs were dropped by the runs after them, except those of other roles. */
const closedLimit = 200;

/**
 * Reads the runs for a target that are over: published, discarded, or abandoned for a run that is one of these. Default: the
 * latest, a bounded number.
 */
export async function closedRuns(
  session: Session,
  { table }: Control,
  target: string,
  { all = false }: { readonly all?: boolean } = {},
): Promise<readonly PastRun[]> {
  const { isUnfinished, isDecided } = runConditions(table);
  const { rows } = await session.query<PastRow>({
    text: `SELECT run_id, target, mode FROM ${table("runs")} r WHERE target = $1
      AND (NOT (${isUnfinished}) OR ${isDecided("discarded")} OR EXISTS (
        SELECT FROM ${table("runs")} n WHERE n.base = r.base AND n.number > r.number AND run_id IN (
          SELECT run_id FROM ${table("finishes")} UNION ALL SELECT run_id FROM ${table("decisions")} WHERE kind = 'discarded')))
      ORDER BY planned_at DESC${all ? "" : ` LIMIT ${closedLimit}`}`,
    values: [target],
  });
  return rows.map(pastRun);
}

/**
 * Whether no run before this one has published a row: all of them are staged, and none is published. False where there is
 * none. It stays so once this run's plan is stored: an approved run that is being published meanwhile holds `lockRuns`.
 */
export async function nothingPublished(session: Session, { table }: Control, runId: RunId): Promise<boolean> {
  const { isUnfinished } = runConditions(table);
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<{ nothing: boolean | null }>({
    text: `SELECT bool_and(staged AND ${isUnfinished}) AS nothing
      FROM ${table("runs")} r WHERE base = $1 AND number < $2`,
    values: [base, number],
  });
  return rows[0]?.nothing === true;
}
