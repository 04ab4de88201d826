import { mixHash } from "./value-names.js";

/**
 * The sum of directions (vectors of length 1), in units of 2^-15 to which each is rounded, and so the same in any order. Its
 * direction is the centroid's.
 */
export interface Directions {
  /** By dimension, or by group of dimensions. */
  readonly sums: Float64Array;
  /**
   * Set if each number is the sum of a group of dimensions, some of them with the opposite sign: all dimensions did not fit.
   * This is a count sketch (Charikar, Chen and Farach-Colton, 2002), which keeps the cosine of two vectors but for an error
   * of about (1 - cosine²) / sqrt(groups).
   */
  readonly areGroups?: true;
}

export const noDirections: Directions = { sums: new Float64Array(0) };

/** The unit that directions are rounded to. */
export const directionUnit = 2 ** 15;

/** Adds a vector times `scale` to sums of directions. */
export function addDirection(sums: Float64Array, values: Float64Array, dimension: number, scale: number): void {
  const end = Math.min(dimension, sums.length);
  // Adding it to a number and subtracting it again rounds the number to a whole one, ties to even.
  const rounder = 1.5 * 2 ** 52;
  for (let index = 0; index < end; index += 1) {
    sums[index] = (sums[index] as number) + ((values[index] as number) * scale + rounder - rounder);
  }
}

/** Keeps the sums of all dimensions while at most `dimensions` numbers are kept, else those of groups of dimensions. */
export function fitDirections(directions: Directions, dimensions: number): Directions {
  return directions.sums.length <= dimensions
    ? directions
    : foldDirections(directions, 2 ** Math.floor(Math.log2(dimensions)));
}

/** @param groups a power of two, at most as many as there are already */
function foldDirections({ sums, areGroups }: Directions, groups: number): Directions {
  const folded = new Float64Array(groups);
  for (let index = 0; index < sums.length; index += 1) {
    const hash = mixHash(index);
    // A group has those dimensions that agree in the lower bits of their hash, so that groups can be put together further.
    const group = (areGroups === undefined ? hash : index) & (groups - 1);
    const sign = areGroups === undefined && hash >>> 31 === 1 ? -1 : 1;
    folded[group] = (folded[group] as number) + sign * (sums[index] as number);
  }
  return { sums: folded, areGroups: true };
}

/** Adds two sums, in any order. */
export function mergeDirections(one: Directions, other: Directions, dimensions: number): Directions {
  const [a, b] = alike(one, other);
  const [long, short] = a.sums.length >= b.sums.length ? [a, b] : [b, a];
  return fitDirections({ ...long, sums: long.sums.map((sum, index) => sum + (short.sums[index] ?? 0)) }, dimensions);
}

/** Puts dimensions of one together where the other has only groups of them. */
function alike(one: Directions, other: Directions): readonly [Directions, Directions] {
  if (one.areGroups === undefined && other.areGroups === undefined) {
    return [one, other];
  }
  const groups = Math.min(
    ...[one, other].flatMap(({ sums, areGroups }) => (areGroups === undefined ? [] : [sums.length])),
  );
  return [foldDirections(one, groups), foldDirections(other, groups)];
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
export function centroidAngle(one: Directions, other: Directions): CentroidAngle {
  const [a, b] = alike(one, other);
  const dimensions = Math.max(a.sums.length, b.sums.length);
  let [product, ones, others] = [0, 0, 0];
  for (let index = 0; index < dimensions; index += 1) {
    const [x, y] = [(a.sums[index] ?? 0) / directionUnit, (b.sums[index] ?? 0) / directionUnit];
    product += x * y;
    ones += x * x;
    others += y * y;
  }
  const cosine = product / Math.sqrt(ones * others);
  return { cosine, product, lengths: [Math.sqrt(ones), Math.sqrt(others)] };
}
