import { countStored, type HashedUnit } from "../packing/feature-hasher.js";
import type { RowRange } from "../packing/input-target.js";
import type { ReuseTools, StoredRows } from "../packing/row-reuse.js";
import type { JobSpec } from "../spec/job-spec.js";
import type { OpenSpan } from "./open-span.js";

/** Hashes rows and, where an earlier run is reused, finds its rows. */
export interface Reuse extends ReuseTools {
  /**
   * Stored rows for rows [rowStart, rowEnd) of the run, where they do not fit in memory. Calls are in the order of the
   * rows. Default: all stored rows are in the table, or there are none.
   */
  readonly find?: ((rowStart: number, rowEnd: number) => Promise<StoredRows>) | undefined;
}

/** Whether the main thread compares rows before they are scored. */
export function comparesRows({ dedupe }: Pick<JobSpec, "dedupe">, reuse: Pick<Reuse, "find"> | undefined): boolean {
  return dedupe || reuse?.find !== undefined;
}

/**
 * Takes rows that a worker has hashed, and scored as far as they take no stored prediction. Returns which rows of those
 * that were scored these are.
 */
export function takeHashed({ distinct, reuse }: OpenSpan, hashed: HashedUnit, { from, to }: RowRange): RowRange {
  if (distinct === undefined || reuse === undefined) {
    throw new RangeError("hashes of rows came for a span that takes none");
  }
  const before = distinct.count;
  const marks = reuse.takeHashed(hashed, from, to);
  for (let at = 0; at < to - from; at += 1) {
    if (marks?.[at] === 1) {
      distinct.takeStored();
    } else {
      distinct.add();
    }
  }
  const first = from - (hashed.places === undefined ? 0 : countStored(hashed.places.subarray(0, from)));
  return { from: first, to: first + distinct.count - before, row: distinct.rowStart + before };
}
