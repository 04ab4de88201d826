import type { UnitSharing } from "./format.js";
import { decodedRowBytes } from "../models/binding/row-bytes.js";
import type { Projection } from "../models/binding/contract.js";

/** Each worker's part of the remaining rows is divided, so that none is left with much when the others are done. */
const unitsPerWorker = 4;
/** The fewest rows of a unit. A smaller unit would cost more than its message. */
const leastRows = 1024;

/**
 * Rows of the next unit, `passed` rows behind the first one that was asked for. Like guided self-scheduling
 * (https://doi.org/10.1109/TC.1987.5009495): the less is left, the less a worker takes at once.
 * @param most where there is enough for all
 */
export function unitRows(most: number, passed: number, sharing: UnitSharing | undefined): number {
  if (sharing === undefined) {
    return most;
  }
  const { workers, rowsLeft, batchRows } = sharing;
  const part = Math.ceil((rowsLeft - passed) / (workers * unitsPerWorker));
  return Math.min(most, wholeBatches(Math.max(leastRows, part), batchRows()));
}

/** Cuts rows into units of about as many each: whole batches of the model, where the workers score them. */
export function cutRows(
  { from, to }: { readonly from: number; readonly to: number },
  most: number,
  sharing: UnitSharing | undefined,
): { from: number; to: number }[] {
  const parts = Math.ceil((to - from) / most);
  const even = Math.ceil((to - from) / parts);
  const rows = sharing === undefined ? even : wholeBatches(even, sharing.batchRows());
  return Array.from({ length: Math.ceil((to - from) / rows) }, (_, part) => ({
    from: from + part * rows,
    to: Math.min(to, from + (part + 1) * rows),
  }));
}

function wholeBatches(rows: number, batchRows: number): number {
  return Math.ceil(rows / batchRows) * batchRows;
}

/**
 * What decoding may hold for each thread that there could be. A thread that decodes holds a page of each column, mostly
 * of 128 Ki values: 100 MB where there are 200 columns of floats.
 */
const decodingBytesPerThread = 64 * 1024 * 1024;
const pageValues = 128 * 1024;

/** Threads that decode: fewer than `threads` where each would hold more than its share of memory. */
export function decodingThreads(threads: number, projection: Projection): number {
  const fitting = Math.floor((threads * decodingBytesPerThread) / (decodedRowBytes(projection) * pageValues));
  return Math.max(1, Math.min(threads, fitting));
}
