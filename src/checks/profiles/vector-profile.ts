import type { FixedColumn } from "../../columnar/types.js";
import type { ReadNumbers } from "./column-numbers.js";
import { type FloatBits, createFloatBits } from "./float-bits.js";
import { mergeNumbers, noNumbers, type NumberProfile, type ProfileLimits, blockValues } from "./number-profile.js";
import { profileNumbers } from "./profile-numbers.js";
import { hashBins, mixHash } from "./value-names.js";

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
  /**
   * The sum of the others' directions (vectors of length 1), in units of 2^-15 to which each is rounded, of the first
   * dimensions. Its direction is the centroid's.
   */
  readonly directions: Float64Array;
  /** How many vectors fall into each bin by the hash of their elements: one that repeats fills its bin. */
  readonly hashed: Float64Array;
}

export interface VectorLimits extends ProfileLimits {
  /** Dimensions of `directions`. */
  readonly dimensions: number;
}

export const noVectors: VectorProfile = {
  minDimension: Number.POSITIVE_INFINITY,
  maxDimension: 0,
  zero: 0,
  notFinite: 0,
  norms: noNumbers,
  directions: new Float64Array(0),
  hashed: new Float64Array(hashBins),
};

const unit = 2 ** 15;

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
  const directions = new Float64Array(Math.min(longest(lists), limits.dimensions));
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
      const norm = normOf(scratch.values, dimension);
      if (norm > 0 && norm < Number.POSITIVE_INFINITY) {
        norms[counted] = norm;
        counted += 1;
        addDirection(directions, scratch.values, dimension, unit / norm);
      } else if (norm === 0) {
        found.zero += 1;
      } else {
        found.notFinite += 1;
      }
    }
  }
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

function normOf(values: Float64Array, dimension: number): number {
  let sum = 0;
  for (let index = 0; index < dimension; index += 1) {
    const value = values[index] as number;
    sum += value * value;
  }
  return Math.sqrt(sum);
}

function addDirection(directions: Float64Array, values: Float64Array, dimension: number, scale: number): void {
  const end = Math.min(dimension, directions.length);
  // Adding it to a number and subtracting it again rounds the number to a whole one, ties to even.
  const rounder = 1.5 * 2 ** 52;
  for (let index = 0; index < end; index += 1) {
    directions[index] = (directions[index] as number) + ((values[index] as number) * scale + rounder - rounder);
  }
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
  const [long, short] =
    one.directions.length >= other.directions.length
      ? [one.directions, other.directions]
      : [other.directions, one.directions];
  return {
    minDimension: Math.min(one.minDimension, other.minDimension),
    maxDimension: Math.max(one.maxDimension, other.maxDimension),
    zero: one.zero + other.zero,
    notFinite: one.notFinite + other.notFinite,
    norms: mergeNumbers(one.norms, other.norms, limits),
    directions: long.map((sum, index) => sum + (short[index] ?? 0)),
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
  const limit = expected + 6 * Math.sqrt(expected);
  const above = hashed.reduce((sum, count) => sum + (count > limit ? count - expected : 0), 0);
  return total === 0 ? 0 : above / total;
}

/** The angle between the sums of the directions of two profiles, which point to their centroids. */
export interface CentroidAngle {
  /** NaN where one has no direction. */
  readonly cosine: number;
  /** The scalar product of the sums. */
  readonly product: number;
  /** The length of each sum: the number of vectors, if all point in one direction. */
  readonly lengths: readonly [one: number, other: number];
}

/** Returns the angle between the centroids of two profiles. */
export function centroidAngle(one: VectorProfile, other: VectorProfile): CentroidAngle {
  let [product, ones, others] = [0, 0, 0];
  const dimensions = Math.max(one.directions.length, other.directions.length);
  for (let index = 0; index < dimensions; index += 1) {
    const [a, b] = [(one.directions[index] ?? 0) / unit, (other.directions[index] ?? 0) / unit];
    product += a * b;
    ones += a * a;
    others += b * b;
  }
  const cosine = product / Math.sqrt(ones * others);
  return { cosine, product, lengths: [Math.sqrt(ones), Math.sqrt(others)] };
}
