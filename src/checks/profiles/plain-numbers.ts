import { type BinCounts, createBinCounts, takeHistogram } from "./bin-counts.js";
import { createDistinctNumbers } from "./distinct-numbers.js";
import { createExactAccumulator, type ExactAccumulator } from "./exact-sum.js";
import { createFloatBits, type FloatBits, upperWord } from "./float-bits.js";
import { blockValues, type NextNumbers, noNumbers, type NumberProfile, type ProfileLimits } from "./number-profile.js";

/** The profile of all numbers that come, made in JavaScript: where there is no WebAssembly. */
export function profilePlainly(next: NextNumbers, limits: ProfileLimits): NumberProfile {
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
    histogram: takeHistogram(bins, limits.bins),
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
    bins: createBinCounts(),
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
