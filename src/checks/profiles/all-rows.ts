import type { NumberProfile } from "./number-profile.js";

/** Exact counts of all rows of a column whose values were sampled. `numbers`: of numbers only. */
export interface AllRows {
  readonly rows: number;
  readonly nulls: number;
  readonly numbers?: AllNumbers | undefined;
}

/** What `NumberProfile` says but for squares, histogram and values. */
export type AllNumbers = Omit<NumberProfile, "squares" | "histogram" | "values">;

/** The rows of both; the same whichever is first. */
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
  return {
    nan: one.nan + other.nan,
    positiveInfinite: one.positiveInfinite + other.positiveInfinite,
    negativeInfinite: one.negativeInfinite + other.negativeInfinite,
    finite: one.finite + other.finite,
    min: Math.min(one.min, other.min),
    max: Math.max(one.max, other.max),
    sum: one.sum + other.sum,
  };
}
