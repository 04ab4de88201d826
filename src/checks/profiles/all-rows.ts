import { mergeCounts, type NumberCounts } from "./number-profile.js";

/** Exact counts of all rows of a column whose values were sampled. `numbers`: of numbers only. */
export interface AllRows {
  readonly rows: number;
  readonly nulls: number;
  readonly numbers?: AllNumbers | undefined;
}

/** The counts, extremes and exact sum of all numbers. */
export interface AllNumbers extends NumberCounts {
  /** Of the finite numbers, in units of 2^-1074. */
  readonly sum: bigint;
}

/** Merges the counts of different rows of one column. The order of the arguments does not matter. */
export function mergeAllRows(one: AllRows, other: AllRows): AllRows {
  const numbers =
    one.numbers === undefined || other.numbers === undefined ? undefined : mergeAll(one.numbers, other.numbers);
  return {
    rows: one.rows + other.rows,
    nulls: one.nulls + other.nulls,
    ...(numbers === undefined ? {} : { numbers }),
  };
}

function mergeAll(one: AllNumbers, other: AllNumbers): AllNumbers {
  return { ...mergeCounts(one, other), sum: one.sum + other.sum };
}
