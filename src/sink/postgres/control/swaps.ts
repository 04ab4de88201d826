import type { RunId } from "../../../plan/plan.js";
import type { Session } from "../connections.js";
import { showTable, type TableName } from "../names.js";
import type { Control } from "./control.js";

/** A swap that has taken the rows of an unfinished run out of its target. */
export interface FoundSwap {
  /** The run that replaced the rows, or the run that was rolled back. */
  readonly runId: RunId;
  readonly action: "replace" | "rollback";
}

/**
 * SQL for `committed_at` of a span. It is later than every swap that the transaction sees. `last`: SQL for the number
 * of the last swap that the attempt has seen, so that few rows are read.
 */
export function committedAtSql({ table }: Control, { target, last }: { target: string; last: string }): string {
  return `greatest(clock_timestamp(), (SELECT max(at) + interval '1 microsecond' FROM ${table("swaps")} WHERE n >= ${last} AND target = ${target}))`;
}

/** SQL for `at` of a swap. It is no earlier than any span that an unfinished run has committed to the target. */
export function swappedAtSql({ table }: Control, target: string): string {
  return `greatest(clock_timestamp(), (SELECT max(s.committed_at) FROM ${table("spans")} s JOIN ${table("runs")} r USING (run_id)
    WHERE r.target = ${target} AND r.mode <> 'replace' AND NOT EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id)))`;
}

/** The number of the target's last swap, as text; 0: there is none. */
export async function lastSwapNumber(session: Session, control: Control, target: TableName): Promise<string> {
  const { rows } = await session.query<{ n: string }>({
    text: `SELECT coalesce(max(n), 0)::text AS n FROM ${control.table("swaps")} WHERE target = $1`,
    values: [showTable(target)],
  });
  return rows[0]?.n ?? "0";
}

/**
 * Finds a swap that took the run's rows out of the target. Swaps and spans wait for each other's locks, so the order of
 * their times is the order of their commits. A replacement that was rolled back does not count: its rollback has put
 * back what it replaced.
 */
export async function swapSince(
  session: Session,
  { table }: Control,
  { runId, target }: { readonly runId: RunId; readonly target: TableName },
): Promise<FoundSwap | undefined> {
  const { rows } = await session.query<{ run_id: RunId; action: FoundSwap["action"] }>({
    text: `WITH since AS (SELECT n, run_id, action FROM ${table("swaps")}
        WHERE target = $2 AND at >= (SELECT min(committed_at) FROM ${table("spans")} WHERE run_id = $1 AND rows > 0))
      SELECT run_id, action FROM since
      WHERE NOT EXISTS (SELECT FROM since o WHERE o.run_id = since.run_id AND o.action <> since.action)
      ORDER BY n DESC LIMIT 1`,
    values: [runId, showTable(target)],
  });
  return rows[0] && { runId: rows[0].run_id, action: rows[0].action };
}
