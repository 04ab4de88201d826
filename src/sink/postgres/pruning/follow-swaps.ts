import type { RunId } from "../../../plan/plan.js";

/** A row of the control table of swaps. */
export interface SwapRow {
  readonly run_id: RunId;
  readonly kept: string | null;
  readonly action: "replace" | "rollback";
}

/** Which run's rows a table holds; undefined: rows that no run wrote. */
type Contents = Map<string, RunId | undefined>;

/**
 * Follows the swaps of a target: which run's rows are in it, and in each table that a swap kept, in the order of the
 * swaps. A rollback puts back the table that the last replacement kept.
 */
export function followSwaps(swaps: readonly SwapRow[]): {
  readonly current: RunId | undefined;
  readonly kept: Contents;
} {
  const kept: Contents = new Map();
  let current: RunId | undefined;
  let last: string | null = null;
  for (const { run_id: runId, kept: table, action } of swaps) {
    const before = current;
    if (action === "replace") {
      current = runId;
    } else {
      current = last === null ? undefined : kept.get(last);
      kept.delete(last ?? "");
    }
    if (table !== null) {
      kept.delete(table); // a name that is used again comes last
      kept.set(table, before);
    }
    last = table;
  }
  return { current, kept };
}
