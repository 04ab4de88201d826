import { mixHash } from "../profiles/value-names.js";

/** Rows [from, to) of a record batch. Their numbers in the run begin with `firstRow` at row 0 of what was read. */
export interface BatchRows {
  readonly from: number;
  readonly to: number;
  readonly firstRow: number;
  /** For each row of the batch, its index among the rows that were read, ascending; undefined: all are here. */
  readonly indices?: Uint32Array | undefined;
}

/**
 * The rows of a batch that are in the sample: about one in `every` rows of the run, chosen by a hash of its number. So
 * the sample does not depend on the worker, the attempt or the batch that reads a row.
 */
export function sampleRows(rows: BatchRows, every: number): Uint32Array {
  const { from, to, firstRow, indices } = rows;
  if (from >= to) {
    return new Uint32Array(0);
  }
  const [first = from, last = to - 1] = indices === undefined ? [] : [indices[from], indices[to - 1]];
  const lastGroup = Math.floor((firstRow + last) / every);
  const sampled: number[] = [];
  let row = from;
  for (let group = Math.floor((firstRow + first) / every); group <= lastGroup; group += 1) {
    const wanted = group * every + (hashOf(group) % every);
    row = indices === undefined ? wanted - firstRow : rowFrom(wanted - firstRow, indices, row, to);
    if (row >= from && row < to && (indices === undefined || firstRow + (indices[row] as number) === wanted)) {
      sampled.push(row);
    }
  }
  return Uint32Array.from(sampled);
}

/** The first of rows [from, to) of the batch whose index is `wanted` or more; `to`: there is none. */
function rowFrom(wanted: number, indices: Uint32Array, from: number, to: number): number {
  let row = from;
  while (row < to && (indices[row] as number) < wanted) {
    row += 1;
  }
  return row;
}

/** Returns a hash of 32 bits of the number of a row, or of a group of rows. */
export function hashOf(number: number): number {
  const upper = Math.floor(number / 0x1_0000_0000);
  return mixHash((number >>> 0) ^ (upper === 0 ? 0x9e3779b9 : mixHash(upper)));
}
