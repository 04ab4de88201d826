import { countStored, type HashedUnit } from "../packing/feature-hasher.js";
import type { RowRange } from "../packing/input-target.js";
import type { ReuseTools, StoredRows } from "../packing/row-reuse.js";
import type { Plan } from "../plan/plan.js";
import type { OpenSpan } from "./open-span.js";

/** Hashes rows and, where an earlier run is reused, finds its rows. */
export interface Reuse extends ReuseTools {
  /**
   * Finds stored rows, where they are not in the table: those that are the same rows as this run's. Calls are in the
   * order of the rows. Default: all stored rows are in the table, or there are none.
   */
  readonly find?: ((rows: SoughtRows) => Promise<StoredRows>) | undefined;
  /** Whether a row of the run takes its stored prediction even if its features have changed. Default: none does. */
  readonly keeps?: ((row: number) => boolean) | undefined;
}

/** Rows [rowStart, rowEnd) of the run, all of one span. */
export interface SoughtRows {
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Lists the rows that `input.where` keeps, by the run's numbers. */
  readonly present: () => Float64Array;
}

/** Whether the main thread compares rows before they are scored, or leaves some out. */
export function comparesRows({
  plan,
  reuse,
}: {
  readonly plan: Pick<Plan, "rejectsOf">;
  readonly reuse: Pick<Reuse, "find"> | undefined;
}): boolean {
  return plan.rejectsOf !== undefined || reuse?.find !== undefined;
}

/**
 * Takes rows that a worker has hashed, and scored as far as they take no stored prediction. Returns which rows of those
 * that were scored these are.
 */
export function takeHashed({ reuse }: OpenSpan, hashed: HashedUnit, { from, to }: RowRange): RowRange {
  if (reuse === undefined) {
    throw new RangeError("hashes of rows came for a span that takes none");
  }
  const before = reuse.scoredCount;
  reuse.takeHashed(hashed, from, to);
  const first = from - (hashed.places === undefined ? 0 : countStored(hashed.places.subarray(0, from)));
  return { from: first, to: first + reuse.scoredCount - before, row: reuse.rowStart + before };
}
