import { type BinCounts, binFractionBits, createBinCounts, takeHistogram } from "./bin-counts.js";
import { createDistinctNumbers } from "./distinct-numbers.js";
import { createExactAccumulator, type ExactAccumulator, exactMean, roundExact } from "./exact-sum.js";
import { createFloatBits, type FloatBits, upperWord } from "./float-bits.js";
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

export const noNumbers: NumberProfile = {
  nan: 0,
  positiveInfinite: 0,
  negativeInfinite: 0,
  finite: 0,
  min: Number.POSITIVE_INFINITY,
  max: Number.NEGATIVE_INFINITY,
  sum: 0n,
  squares: 0n,
  histogram: emptyHistogram,
  values: noValues,
};

/** Values that are looked at together: they stay in the cache of a core. */
export const blockValues = 4096;

/** Fills the start of `target` with the next values, at most `blockValues`, and returns how many; 0 at the end. */
export type NextNumbers = (target: Float64Array) => number;

export function profileNumbers(next: NextNumbers, limits: ProfileLimits): NumberProfile {
  const { block, squares, exactSum, exactSquares, bins } = workspace();
  const distinct = createDistinctNumbers(limits);
  const found = { ...noNumbers };
  for (let count = next(block.values); count > 0; count = next(block.values)) {
    const finite = keepFinite(block.values, count, found);
    distinct.add(block, finite);
    exactSum.add(block, finite);
    square(block.values, squares.values, finite);
    exactSquares.add(squares, finite);
    countBins(bins, block, finite);
    found.finite += finite;
  }
  return {
    ...found,
    sum: exactSum.take(),
    squares: exactSquares.take(),
    histogram: takeHistogram(bins, limits.bins, (exponent) => exponent << binFractionBits),
    values: distinct.finish(),
  };
}

interface Workspace {
  readonly block: FloatBits;
  readonly squares: FloatBits;
  readonly exactSum: ExactAccumulator;
  readonly exactSquares: ExactAccumulator;
  readonly bins: BinCounts;
}

let shared: Workspace | undefined;

/** One for all profiles of a thread: each leaves it empty. */
function workspace(): Workspace {
  shared ??= {
    block: createFloatBits(blockValues),
    squares: createFloatBits(blockValues),
    exactSum: createExactAccumulator(),
    exactSquares: createExactAccumulator(),
    bins: createBinCounts(11),
  };
  return shared;
}

function countBins({ counts, seen }: BinCounts, { words }: FloatBits, count: number): void {
  const high = upperWord;
  for (let index = 0; index < count; index += 1) {
    const word = words[2 * index + high] as number;
    seen[word >>> 20] = 1;
    const bin = word >>> 10;
    counts[bin] = (counts[bin] as number) + 1;
  }
}

interface Extremes {
  nan: number;
  positiveInfinite: number;
  negativeInfinite: number;
  min: number;
  max: number;
}

/** Moves finite values to the start, without a sign of zero, and counts the others; returns how many are left. */
function keepFinite(values: Float64Array, count: number, found: Extremes): number {
  let { min, max } = found;
  let kept = 0;
  for (let index = 0; index < count; index += 1) {
    const value = (values[index] as number) + 0; // -0 becomes 0
    if (value - value === 0) {
      values[kept] = value;
      kept += 1;
      min = value < min ? value : min;
      max = value > max ? value : max;
    } else if (Number.isNaN(value)) {
      found.nan += 1;
    } else if (value > 0) {
      found.positiveInfinite += 1;
    } else {
      found.negativeInfinite += 1;
    }
  }
  found.min = min;
  found.max = max;
  return kept;
}

function square(values: Float64Array, squares: Float64Array, count: number): void {
  for (let index = 0; index < count; index += 1) {
    const value = values[index] as number;
    squares[index] = value * value;
  }
}

/** The numbers of both; the same whichever is first. */
export function mergeNumbers(one: NumberProfile, other: NumberProfile, limits: ProfileLimits): NumberProfile {
  return {
    nan: one.nan + other.nan,
    positiveInfinite: one.positiveInfinite + other.positiveInfinite,
    negativeInfinite: one.negativeInfinite + other.negativeInfinite,
    finite: one.finite + other.finite,
    min: Math.min(one.min, other.min),
    max: Math.max(one.max, other.max),
    sum: one.sum + other.sum,
    squares: one.squares + other.squares,
    histogram: mergeHistograms(one.histogram, other.histogram, limits.bins),
    values: mergeValues(one.values, other.values, limits, undefined),
  };
}

/** Of the finite numbers; NaN of none. */
export function mean({ sum, finite }: NumberProfile): number {
  return exactMean(sum, finite);
}

/**
 * Of the finite numbers, as a population; NaN of none. Below some 10^-7 of the mean it tells nothing, since squares are
 * rounded.
 */
export function standardDeviation({ sum, squares, finite }: NumberProfile): number {
  if (finite === 0) {
    return Number.NaN;
  }
  const count = BigInt(finite);
  const spread = count * (squares << 1074n) - sum * sum;
  const variance = roundExact((spread > 0n ? spread : 0n) / (count * count * (1n << 1074n)));
  return Math.sqrt(variance);
}
