import { splitRunId } from "../../../plan/identity.js";
import type { RunId } from "../../../plan/plan.js";
import { logicalDateOf } from "../../../publish/published-run.js";
import { type Pruning, tombstonePrefix, tombstoneText } from "../../../publish/pruned-run.js";
import type { Session } from "../connections.js";
import type { RunTools } from "../run-tools.js";
import { type Control, sha256Of } from "./control.js";
import { decisionDocument } from "../../ledger.js";
import { createDocument } from "./documents.js";
import type { PastRun } from "./other-runs.js";

/** SQL for whether a row of the table of runs is a tombstone. It takes the number of a run, and its text takes the plan's place. */
export function isTombstone(row: string): string {
  return `starts_with(${row}.plan, '${tombstonePrefix}')`;
}

/**
 * Stores a tombstone as the plan of its number. The caller has locked the runs of these params alone. Its decision keeps
 * it from counting as an unfinished run.
 */
export async function storeTombstone(
  session: Session,
  { control, writer }: Pick<RunTools, "control" | "writer">,
  { pruning, target, mode }: { readonly pruning: Pruning; readonly target: string; readonly mode: string },
): Promise<void> {
  const { tombstone, plan, by, at } = pruning;
  const { base, number } = splitRunId(tombstone);
  const text = tombstoneText(pruning);
  await session.query({
    text: `INSERT INTO ${control.table("runs")} (run_id, base, number, plan_id, job, target, mode, rows_planned, spans_planned, plan, params, staged, logical_date)
      VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, $9, false, $10)`,
    values: [
      tombstone,
      base,
      number,
      sha256Of(text),
      plan.job,
      target,
      mode,
      text,
      JSON.stringify(plan.params),
      logicalDateOf(plan) ?? null,
    ],
  });
  const reason = `pruned: stands for ${plan.runId} and the runs before it`;
  const value = { kind: "discarded", by, at, reason, asBaseline: false } as const;
  await createDocument(session, { control, writer }, { runId: tombstone, kind: decisionDocument, value });
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

/** Reads the runs for a target before a tombstone, of the same params. */
export async function runsBefore(
  session: Session,
  { table }: Control,
  { tombstone, target }: { readonly tombstone: RunId; readonly target: string },
): Promise<readonly PastRun[]> {
  const { base, number } = splitRunId(tombstone);
  const { rows } = await session.query<{ run_id: RunId; mode: string }>({
    text: `SELECT run_id, mode FROM ${table("runs")} WHERE base = $1 AND number < $2 AND target = $3`,
    values: [base, number, target],
  });
  return rows.map(({ run_id: runId, mode }) => ({ runId, target, mode }));
}

/** Counts of what pruning removes from the control tables. */
export interface ControlRows {
  readonly rejects: number;
  readonly profiles: number;
  /** Size of the profiles. */
  readonly bytes: number;
}

/** Counts the rejected rows of runs, and their profiles. */
export async function countControlRows(
  session: Session,
  { table }: Control,
  runs: readonly RunId[],
): Promise<ControlRows> {
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

/** Removes the rejected rows of runs, and their profiles. */
export async function removeControlRows(session: Session, { table }: Control, runs: readonly RunId[]): Promise<void> {
  await session.query({ text: `DELETE FROM ${table("rejects")} WHERE run_id = ANY ($1)`, values: [runs] });
  for (const name of ["spans", "finishes"] as const) {
    await session.query({
      text: `UPDATE ${table(name)} SET profile = NULL WHERE run_id = ANY ($1) AND profile IS NOT NULL`,
      values: [runs],
    });
  }
}
