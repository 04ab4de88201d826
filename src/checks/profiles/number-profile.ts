import { exactMean, roundExact } from "./exact-sum.js";
import { emptyHistogram, type Histogram, mergeHistograms } from "./histogram.js";
import { mergeValues, noValues, type ValueCounts, type ValueLimits } from "./value-counts.js";

/** Numbers, counted exactly; what is said of `min`, `max`, sums and the histogram is said of the finite ones. */
export interface NumberProfile {
  readonly nan: number;
  readonly positiveInfinite: number;
  readonly negativeInfinite: number;
  readonly finite: number;
  /** Infinity and -Infinity where there is none. */
  readonly min: number;
  readonly max: number;
  /** In units of 2^-1074. */
  readonly sum: bigint;
  /** Of the squares, each rounded to float64, in units of 2^-1074. */
  readonly squares: bigint;
  readonly histogram: Histogram;
  readonly values: ValueCounts;
}

export interface ProfileLimits extends ValueLimits {
  /** Bins of a histogram, at least 2. */
  readonly bins: number;
}

/** The counts and extremes of a profile. */
export type NumberCounts = Omit<NumberProfile, "sum" | "squares" | "histogram" | "values">;

export const noCounts: NumberCounts = {
  nan: 0,
  positiveInfinite: 0,
  negativeInfinite: 0,
  finite: 0,
  min: Number.POSITIVE_INFINITY,
  max: Number.NEGATIVE_INFINITY,
};

export const noNumbers: NumberProfile = {
  ...noCounts,
  sum: 0n,
  squares: 0n,
  histogram: emptyHistogram,
  values: noValues,
};

/** Values that are profiled in one pass: they fit into the cache of a core. */
export const blockValues = 4096;

/** Fills the start of `target` with the next values, at most `blockValues`, and returns how many; 0 at the end. */
export type NextNumbers = (target: Float64Array) => number;

/** Merges the counts and extremes of two profiles, in any order. */
export function mergeCounts(one: NumberCounts, other: NumberCounts): NumberCounts {
  return {
    nan: one.nan + other.nan,
    positiveInfinite: one.positiveInfinite + other.positiveInfinite,
    negativeInfinite: one.negativeInfinite + other.negativeInfinite,
    finite: one.finite + other.finite,
    min: Math.min(one.min, other.min),
    max: Math.max(one.max, other.max),
  };
}

/** Merges two profiles, in any order. */
export function mergeNumbers(one: NumberProfile, other: NumberProfile, limits: ProfileLimits): NumberProfile {
  return {
    ...mergeCounts(one, other),
    sum: one.sum + other.sum,
    squares: one.squares + other.squares,
    histogram: mergeHistograms(one.histogram, other.histogram, limits.bins),
    values: mergeValues(one.values, other.values, limits, undefined),
  };
}

/** The mean of the finite numbers; NaN if there is none. */
export function mean({ sum, finite }: Pick<NumberProfile, "sum" | "finite">): number {
  return exactMean(sum, finite);
}

/**
 * Of the finite numbers, as a population; NaN of none. Below some 10^-7 of the mean it tells nothing, since squares are
 * rounded.
 */
export function standardDeviation({ sum, squares, finite }: Pick<NumberProfile, "sum" | "squares" | "finite">): number {
  if (finite === 0) {
    return Number.NaN;
  }
  const count = BigInt(finite);
  const spread = count * (squares << 1074n) - sum * sum;
  const variance = roundExact((spread > 0n ? spread : 0n) / (count * count * (1n << 1074n)));
  return Math.sqrt(variance);
}
