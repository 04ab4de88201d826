import type { RowNumbers } from "./prediction-pair.js";

/** Compares the numbers of two models, a block of at most `blockValues` rows at a time. */
export interface BlockComparer {
  /** The numbers to compare: each model's. */
  readonly one: Float64Array;
  readonly other: Float64Array;
  /** Compares the first `count` numbers. What it returns is valid until the next call. */
  compare(count: number, about: BlockRows): BlockDifferences;
}

export interface BlockRows {
  readonly rowNumbers: RowNumbers;
  /** The index of the block's first row among them. */
  readonly from: number;
  readonly tolerance: number;
  /** The least difference that is listed in `different`. */
  readonly least: number;
  /** The level of the sample, see `RankSample`. */
  readonly level: number;
}

export interface BlockDifferences {
  /** The absolute differences of rows for which both numbers are finite, in the order of the rows. */
  readonly finite: Float64Array;
  /** How many rows differ by more than the tolerance. A number that is not finite differs from all others. */
  readonly beyond: number;
  /** Indices in the block of rows that differ by `least` or more, but not by 0. */
  readonly different: Uint32Array;
  /** Indices in the block of rows in the sample, if their difference is finite. */
  readonly sampled: Uint32Array;
}

/** The difference of two numbers; infinite if one of them is not finite and the other one differs. */
export function distanceOf(one: number, other: number): number {
  const distance = Math.abs(one - other);
  return distance < Number.POSITIVE_INFINITY ? distance : Object.is(one, other) ? 0 : Number.POSITIVE_INFINITY;
}

/** Bits that are 0 in the hash of the number of each row in a sample of this level. */
export function maskOf(level: number): number {
  return level < 32 ? (1 << level) - 1 : -1;
}
