import { mixHash } from "../profiles/value-counts.js";

/** Rows [from, to) of a record batch. Their numbers in the run begin with `firstRow` at row 0 of what was read. */
export interface BatchRows {
  readonly from: number;
  readonly to: number;
  readonly firstRow: number;
  /** For each row of the batch, its index among the rows that were read, ascending; undefined: all are here. */
  readonly indices?: Uint32Array | undefined;
}

/**
 * The rows of a batch that a sample has: of each `every` rows of the run one, chosen by a hash. So it is the same rows
 * whoever reads them, when, and beside which others.
 */
export function sampleRows({ from, to, firstRow, indices }: BatchRows, every: number): Uint32Array {
  const numberOf = (row: number): number => firstRow + (indices === undefined ? row : (indices[row] as number));
  const sampled: number[] = [];
  for (let row = from; row < to; ) {
    const group = Math.floor(numberOf(row) / every);
    const wanted = group * every + (hashOf(group) % every);
    const end = rowFrom((group + 1) * every, { from: row, to, firstRow, indices });
    const found = rowFrom(wanted, { from: row, to: end, firstRow, indices });
    if (found < end && numberOf(found) === wanted) {
      sampled.push(found);
    }
    row = end;
  }
  return Uint32Array.from(sampled);
}

/** The first row of the batch whose number in the run is `wanted` or more; `to`: there is none. */
function rowFrom(wanted: number, { from, to, firstRow, indices }: BatchRows): number {
  if (indices === undefined) {
    return Math.min(Math.max(wanted - firstRow, from), to);
  }
  let row = from;
  while (row < to && firstRow + (indices[row] as number) < wanted) {
    row += 1;
  }
  return row;
}

/** Returns a hash of 32 bits of the number of a row, or of a group of rows. */
export function hashOf(number: number): number {
  const upper = Math.floor(number / 0x1_0000_0000);
  return mixHash((number >>> 0) ^ (upper === 0 ? 0x9e3779b9 : mixHash(upper)));
}
