import { type BinCounts, binFractionBits, clearBins, createBinCounts, takeHistogram } from "./bin-counts.js";
import { createDistinctNumbers, type DistinctNumbers } from "./distinct-numbers.js";
import { exactProduct } from "./exact-sum.js";
import { createFloatBits } from "./float-bits.js";
import { blockValues, noNumbers, type NumberProfile, type ProfileLimits } from "./number-profile.js";

/**
 * What `profileNumbers` says of the same values, in a third of its time: scores are float32 as a rule, and fractions of
 * 24 bits are summed in a float64 as they are. undefined where some are subnormal, infinite or NaN, which are counted
 * there.
 */
export function profileFloats(data: Float32Array, limits: ProfileLimits): NumberProfile | undefined {
  const work = workspace();
  const words = wordsOf(data);
  const range = { least: 0x7fffffff, most: -0x80000000 };
  const distinct = createDistinctNumbers(limits);
  for (let from = 0; from < words.length; from += blockValues) {
    const block = words.subarray(from, from + blockValues);
    addDistinct(distinct, data, from, block.length);
    countFloats(block, work, range);
  }
  const sums = takeSums(work);
  if (sums === undefined) {
    clearBins(work.bins);
    return undefined;
  }
  return {
    ...noNumbers,
    ...sums,
    ...extremesOf(range, words.length),
    finite: words.length,
    histogram: takeHistogram(work.bins, limits.bins, keyOfBlock),
    values: distinct.finish(),
  };
}

/** Each by sign and exponent. */
interface Workspace {
  readonly bins: BinCounts;
  /** The 24 bits of the fractions. */
  readonly fractions: Float64Array;
  /** Of their squares the upper and the lower 24 bits. */
  readonly upperSquares: Float64Array;
  readonly lowerSquares: Float64Array;
}

let shared: Workspace | undefined;

/** One for all profiles of a thread: each leaves it empty. */
function workspace(): Workspace {
  shared ??= {
    bins: createBinCounts(8),
    fractions: new Float64Array(512),
    upperSquares: new Float64Array(512),
    lowerSquares: new Float64Array(512),
  };
  return shared;
}

const implicitBit = 2 ** 23;
/** Between the exponents of float64 and float32, as they are stored. */
const biasBetween = 1023 - 127;
/** Of the numbers with exponent 0 none is left but zero. */
const keyOfBlock = (exponent: number): number => (exponent === 0 ? 0 : (exponent + biasBetween) << binFractionBits);
const negative = 256;
const notFinite = 255;

function wordsOf(data: Float32Array): Int32Array {
  return new Int32Array(data.buffer, data.byteOffset, data.length);
}

const block = createFloatBits(blockValues);

function addDistinct(distinct: DistinctNumbers, data: Float32Array, from: number, length: number): void {
  if (distinct.isFew) {
    for (let index = 0; index < length; index += 1) {
      block.values[index] = (data[from + index] as number) + 0; // -0 becomes 0
    }
    distinct.add(block, length);
  }
}

/** As whole numbers that are in the order of the floats. */
interface Range {
  least: number;
  most: number;
}

// Constants of a loop stand in it: V8 reads those of a module anew for each value, which doubles the time.
function countFloats(words: Int32Array, { bins: { counts, seen }, ...sums }: Workspace, range: Range): void {
  const { fractions, upperSquares, lowerSquares } = sums;
  let { least, most } = range;
  for (let index = 0; index < words.length; index += 1) {
    const word = words[index] as number;
    const bin = word >>> 13;
    counts[bin] = (counts[bin] as number) + 1;
    const place = word >>> 23;
    seen[place] = 1;
    const fraction = (word & 0x7fffff) | 0x800000;
    fractions[place] = (fractions[place] as number) + fraction;
    const square = fraction * fraction;
    const upper = (square / 16_777_216) | 0;
    upperSquares[place] = (upperSquares[place] as number) + upper;
    lowerSquares[place] = (lowerSquares[place] as number) + (square - upper * 16_777_216);
    const ordered = word ^ ((word >> 31) & 0x7fffffff);
    least = Math.min(least, ordered);
    most = Math.max(most, ordered);
  }
  range.least = least;
  range.most = most;
}

/** Leaves the sums at zero. undefined: they are not those of the values. */
function takeSums({ bins: { counts, seen }, ...work }: Workspace): Pick<NumberProfile, "sum" | "squares"> | undefined {
  const { fractions, upperSquares, lowerSquares } = work;
  const negativeZero = negative << binFractionBits;
  const zeros = (counts[0] as number) + (counts[negativeZero] as number);
  const isSubnormal = (fractions[0] as number) + (fractions[negative] as number) !== zeros * implicitBit;
  const isNotFinite = seen[notFinite] === 1 || seen[negative + notFinite] === 1;
  let [sum, squares] = [0n, 0n];
  for (let exponent = 1; exponent < notFinite; exponent += 1) {
    const signed = (fractions[exponent] as number) - (fractions[negative + exponent] as number);
    const [upper, lower] = [upperSquares, lowerSquares].map(
      (sums) => (sums[exponent] as number) + (sums[negative + exponent] as number),
    );
    const square = (BigInt(upper as number) << 24n) + BigInt(lower as number);
    sum += exactProduct(BigInt(signed), exponent - 150);
    squares += exactProduct(square, 2 * (exponent - 150));
  }
  for (const sums of [fractions, upperSquares, lowerSquares]) {
    sums.fill(0);
  }
  if (isSubnormal || isNotFinite) {
    return undefined;
  }
  counts[0] = zeros;
  counts[negativeZero] = 0;
  seen[0] = 1;
  return { sum, squares };
}

const single = new Int32Array(1);
const float = new Float32Array(single.buffer);

function extremesOf({ least, most }: Range, count: number): Pick<NumberProfile, "min" | "max"> {
  return count === 0 ? { min: noNumbers.min, max: noNumbers.max } : { min: floatAt(least), max: floatAt(most) };
}

function floatAt(ordered: number): number {
  single[0] = ordered ^ ((ordered >> 31) & 0x7fffffff);
  return (float[0] as number) + 0;
}
