import { exactMean, roundExact } from "./exact-sum.js";
import { emptyHistogram, type Histogram, mergeHistograms } from "./histogram.js";
import { mergeValues, noValues, type ValueCounts, type ValueLimits } from "./value-counts.js";
import { mergeWide, type WideExtremes } from "./wide-integers.js";

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
  /** The exact extremes of integers beyond 2^53; absent: there are none, or the numbers are no integers. */
  readonly wide?: WideExtremes | undefined;
}

export interface ProfileLimits extends ValueLimits {
  /** Bins of a histogram, at least 2. */
  readonly bins: number;
}

/** The counts and extremes of a profile. */
export type NumberCounts = Omit<NumberProfile, "sum" | "squares" | "histogram" | "values" | "wide">;

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

/** Counts a number; returns whether it is finite. */
export function countNumber(
  counts: { -readonly [Count in keyof NumberCounts]: NumberCounts[Count] },
  value: number,
): boolean {
  if (value - value === 0) {
    counts.finite += 1;
    counts.min = value < counts.min ? value + 0 : counts.min; // -0 becomes 0
    counts.max = value > counts.max ? value + 0 : counts.max;
    return true;
  }
  counts[Number.isNaN(value) ? "nan" : value > 0 ? "positiveInfinite" : "negativeInfinite"] += 1;
  return false;
}

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
  const wide = mergeWide(one, other);
  return {
    ...mergeCounts(one, other),
    sum: one.sum + other.sum,
    squares: one.squares + other.squares,
    histogram: mergeHistograms(one.histogram, other.histogram, limits.bins),
    values: mergeValues(one.values, other.values, limits, undefined),
    ...(wide && { wide }),
  };
}

/** The mean of the finite numbers; NaN if there is none. */
export function mean({ sum, finite }: Pick<NumberProfile, "sum" | "finite">): number {
  return exactMean(sum, finite);
}

/**
 * The standard deviation of the finite numbers, as a population. NaN where it is not known: of no number, and where there are
 * so many different numbers, so close together or so large that the rounding of their squares hides it.
 */
export function standardDeviation(numbers: NumberProfile): number {
  const { finite, values, min, max, wide } = numbers;
  if (finite === 0) {
    return Number.NaN;
  }
  if (values.kind === "few" && values.rare === undefined) {
    return deviationOf([...values.counts], wide?.min);
  }
  return deviationOfSums(numbers, Math.max(Math.abs(min), Math.abs(max)));
}

/** @param base subtracted from each integer, which float64 may round otherwise */
function deviationOf(counts: readonly (readonly [string, number])[], base: bigint | undefined): number {
  const numbers = counts.map(([name]) => (base === undefined ? Number(name) : Number(BigInt(name) - base)));
  const largest = numbers.reduce((most, number) => Math.max(most, Math.abs(number)), 0);
  const scale = scaleFor(largest);
  const rows = counts.reduce((sum, [, count]) => sum + count, 0);
  const sum = (of: (number: number) => number): number =>
    counts.reduce((total, [, count], index) => total + count * of((numbers[index] as number) * scale), 0);
  const middle = sum((number) => number) / rows;
  // The second sum corrects the rounding of the mean.
  const rest = sum((number) => number - middle);
  const squares = sum((number) => (number - middle) ** 2) - rest ** 2 / rows;
  return Math.sqrt(Math.max(squares, 0) / rows) / scale;
}

/** A power of two by which numbers are multiplied, so that float64 has their squares. */
function scaleFor(largest: number): number {
  return largest > 2 ** 400 ? 2 ** -600 : largest < 2 ** -400 ? 2 ** 600 : 1;
}

/** The variance must be above this many times the largest error of the squares: then a hundredth of the deviation is exact. */
const leastCertainty = 50;

function deviationOfSums({ sum, squares, finite }: NumberProfile, largest: number): number {
  const count = BigInt(finite);
  const spread = count * (squares << 1074n) - sum * sum;
  const variance = roundExact((spread > 0n ? spread : 0n) / (count * count * (1n << 1074n)));
  const error = largest ** 2 * 2 ** -53 + 2 ** -1022;
  return variance > leastCertainty * error ? Math.sqrt(variance) : Number.NaN;
}
