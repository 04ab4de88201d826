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
 * swaps; and the replacement that a rollback undoes, which is the last one that none has undone.
 */
export function followSwaps(swaps: readonly SwapRow[]): {
  readonly current: RunId | undefined;
  readonly kept: Contents;
  readonly standing: SwapRow | undefined;
} {
  const kept: Contents = new Map();
  const standing: SwapRow[] = [];
  let current: RunId | undefined;
  for (const swap of swaps) {
    const { run_id: runId, kept: table, action } = swap;
    const before = current;
    if (action === "replace") {
      current = runId;
      standing.push(swap);
    } else {
      const undone = standing.pop()?.kept ?? "";
      current = kept.get(undone);
      kept.delete(undone);
    }
    if (table !== null) {
      kept.delete(table); // a name that is used again comes last
      kept.set(table, before);
    }
  }
  return { current, kept, standing: standing.at(-1) };
}
