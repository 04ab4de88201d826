import type { FixedColumn } from "../../columnar/types.js";
import type { ReadNumbers } from "./column-numbers.js";
import { type FloatBits, createFloatBits } from "./float-bits.js";
import { mergeNumbers, noNumbers, type NumberProfile, type ProfileLimits, blockValues } from "./number-profile.js";
import { profileNumbers } from "./profile-numbers.js";
import { hashBins, mixHash } from "./value-names.js";
import {
  addDirection,
  type Directions,
  directionUnit,
  fitDirections,
  mergeDirections,
  noDirections,
} from "./vector-directions.js";

/** Lists of numbers, as vectors. */
export interface VectorProfile {
  /** Elements of the shortest and the longest; Infinity and 0 where there is none. */
  readonly minDimension: number;
  readonly maxDimension: number;
  /** Vectors whose elements are all zero, or of which one is NaN or infinite; these have no norm and no direction. */
  readonly zero: number;
  readonly notFinite: number;
  /** Euclidean lengths of the others. */
  readonly norms: NumberProfile;
  /** The sum of the others' directions. */
  readonly directions: Directions;
  /** How many vectors fall into each bin by the hash of their elements: one that repeats fills its bin. */
  readonly hashed: Float64Array;
}

export interface VectorLimits extends ProfileLimits {
  /** Dimensions of `directions`, or groups of them. */
  readonly dimensions: number;
}

export const noVectors: VectorProfile = {
  minDimension: Number.POSITIVE_INFINITY,
  maxDimension: 0,
  zero: 0,
  notFinite: 0,
  norms: noNumbers,
  directions: noDirections,
  hashed: new Float64Array(hashBins),
};

/** Lists [offsets[row], offsets[row + 1]) of `child`, those that are NULL left out. An element that is NULL is NaN. */
export interface NumberLists {
  readonly offsets: Uint32Array;
  readonly child: FixedColumn;
  readonly valid: Uint8Array | undefined;
  readonly read: ReadNumbers;
}

export function profileVectors(lists: NumberLists, limits: VectorLimits): VectorProfile {
  const { offsets, valid } = lists;
  const rows = offsets.length - 1;
  const found = { ...noVectors, hashed: new Float64Array(hashBins) };
  const norms = new Float64Array(rows);
  const sums = new Float64Array(longest(lists));
  let scratch = createFloatBits(blockValues);
  let counted = 0;
  for (let row = 0; row < rows; row += 1) {
    if (valid === undefined || valid[row] !== 0) {
      const [from, to] = [offsets[row] as number, offsets[row + 1] as number];
      const dimension = to - from;
      if (dimension > scratch.values.length) {
        scratch = createFloatBits(dimension);
      }
      readVector(lists, from, to, scratch.values);
      found.minDimension = Math.min(found.minDimension, dimension);
      found.maxDimension = Math.max(found.maxDimension, dimension);
      const bin = hashVector(scratch, dimension) % hashBins;
      found.hashed[bin] = (found.hashed[bin] as number) + 1;
      const squares = squaresOf(scratch.values, dimension);
      const scale =
        squares >= leastSquares && squares < Number.POSITIVE_INFINITY ? 1 : rescale(scratch.values, dimension, squares);
      const norm = Math.sqrt(scale === 1 ? squares : squaresOf(scratch.values, dimension));
      if (norm > 0 && norm < Number.POSITIVE_INFINITY) {
        norms[counted] = norm / scale;
        counted += 1;
        addDirection(sums, scratch.values, dimension, directionUnit / norm);
      } else if (norm === 0) {
        found.zero += 1;
      } else {
        found.notFinite += 1;
      }
    }
  }
  const directions = fitDirections({ sums: sums.subarray(0, found.maxDimension) }, limits.dimensions);
  return { ...found, norms: profileNumbers(numbersOf(norms.subarray(0, counted)), limits), directions };
}

function longest({ offsets }: NumberLists): number {
  let most = 0;
  for (let row = 0; row + 1 < offsets.length; row += 1) {
    most = Math.max(most, (offsets[row + 1] as number) - (offsets[row] as number));
  }
  return most;
}

function readVector({ child, read }: NumberLists, from: number, to: number, target: Float64Array): void {
  read(child, from, to, target);
  if (child.valid !== undefined) {
    for (let at = from; at < to; at += 1) {
      if (child.valid[at] === 0) {
        target[at - from] = Number.NaN;
      }
    }
  }
}

function hashVector({ words }: FloatBits, dimension: number): number {
  let hash = 0x2c1b3c6d;
  for (let index = 0; index < 2 * dimension; index += 2) {
    hash = Math.imul(hash ^ (words[index] as number) ^ Math.imul(words[index + 1] as number, 0x9e3779b1), 0x7feb352d);
    // Downwards, too: floats of few digits differ in their upper bits only.
    hash ^= hash >>> 15;
  }
  return mixHash(hash);
}

function squaresOf(values: Float64Array, dimension: number): number {
  let sum = 0;
  for (let index = 0; index < dimension; index += 1) {
    const value = values[index] as number;
    sum += value * value;
  }
  return sum;
}

/** Below this sum, squares may be so small that float64 has fewer bits of them, or none. */
const leastSquares = 2 ** -900;

/** Multiplies a vector by a power of two that keeps its squares within float64. Returns the power. */
function rescale(values: Float64Array, dimension: number, squares: number): number {
  const scale = squares < leastSquares ? 2 ** 600 : 2 ** -600;
  for (let index = 0; index < dimension; index += 1) {
    values[index] = (values[index] as number) * scale;
  }
  return scale;
}

function numbersOf(values: Float64Array): (target: Float64Array) => number {
  let at = 0;
  return (target) => {
    const block = values.subarray(at, at + blockValues);
    target.set(block);
    at += block.length;
    return block.length;
  };
}

export function mergeVectors(one: VectorProfile, other: VectorProfile, limits: VectorLimits): VectorProfile {
  return {
    minDimension: Math.min(one.minDimension, other.minDimension),
    maxDimension: Math.max(one.maxDimension, other.maxDimension),
    zero: one.zero + other.zero,
    notFinite: one.notFinite + other.notFinite,
    norms: mergeNumbers(one.norms, other.norms, limits),
    directions: mergeDirections(one.directions, other.directions, limits.dimensions),
    hashed: one.hashed.map((count, bin) => count + (other.hashed[bin] as number)),
  };
}

/**
 * About the share of vectors that repeat one another: those above six standard deviations of what a bin would have if
 * all were different. A vector that has less than some hundredths of the rows is not seen.
 */
export function repeatedShare({ hashed }: VectorProfile): number {
  const total = hashed.reduce((sum, count) => sum + count, 0);
  const expected = total / hashBins;
  const limit = Math.max(expected + 6 * Math.sqrt(expected), 1); // a single row repeats nothing
  const above = hashed.reduce((sum, count) => sum + (count > limit ? count - expected : 0), 0);
  return total === 0 ? 0 : above / total;
}
