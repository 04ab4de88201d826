/**
 * Numbers in [0, 1) with 53 random bits, the same ones for a seed on every machine: two steps of xoshiro128** (Blackman
 * and Vigna) each, whose state splitmix32 makes from the seed.
 */
export function randomNumbers(seed: number): () => number {
  let mixed = seed;
  const word = (): number => {
    mixed = (mixed + 0x9e3779b9) | 0;
    let bits = Math.imul(mixed ^ (mixed >>> 16), 0x21f0aaad);
    bits = Math.imul(bits ^ (bits >>> 15), 0x735a2d97);
    return bits ^ (bits >>> 15);
  };
  let [a, b, c, d] = [word(), word(), word(), word()];
  const next = (): number => {
    const result = Math.imul(rotated(Math.imul(b, 5), 7), 9) >>> 0;
    const shifted = b << 9;
    c ^= a;
    d ^= b;
    b ^= c;
    a ^= d;
    c ^= shifted;
    d = rotated(d, 11);
    return result;
  };
  return () => {
    const high = next() >>> 5;
    return (high * 2 ** 26 + (next() >>> 6)) / 2 ** 53;
  };
}

function rotated(word: number, bits: number): number {
  return (word << bits) | (word >>> (32 - bits));
}

/** Standard errors on both sides of a mean, within which the true one lies in 95 of 100 samples. */
const standardErrors = 2;

/** Neighbouring rows of a sample: how many were read, and the sum of what is measured over them. */
export interface SampledSum {
  readonly read: number;
  readonly sum: number;
}

/**
 * The share by which the mean of a sample may be wrong, because not all rows were read: rows of one place are alike, so
 * places are compared, not rows (a ratio estimate over clusters).
 * @param all the rows that the sample stands for
 */
export function samplingError(places: readonly SampledSum[], all: number): number {
  const read = places.reduce((rows, place) => rows + place.read, 0);
  const total = places.reduce((sum, place) => sum + place.sum, 0);
  if (read >= all || total === 0) {
    return 0;
  }
  if (places.length < 2) {
    return 1;
  }
  const perRow = total / read;
  const squares = places.reduce((sum, place) => sum + (place.sum - perRow * place.read) ** 2, 0);
  const variance = (squares * places.length) / (places.length - 1) / read ** 2;
  return (standardErrors * Math.sqrt(variance)) / perRow;
}

/** Errors that an estimate is lowered by: three standard errors. */
const caution = 1.5;
/** The lowest share of an estimate. If all that is measured lies in few places, the error alone would leave nothing of it. */
const lowest = 1 / 8;

/**
 * Returns what the sum over all rows is at least, for values that are not negative: exactly if all rows were read, and
 * otherwise with three standard errors to spare, but no less than was found, nor than an eighth of the estimate.
 * @param all the number of rows
 */
export function leastSum(places: readonly SampledSum[], all: number): number {
  const read = places.reduce((rows, place) => rows + place.read, 0);
  const total = places.reduce((sum, place) => sum + place.sum, 0);
  const estimate = (total / Math.max(1, read)) * all;
  return Math.max(total, Math.floor(estimate * Math.max(lowest, 1 - caution * samplingError(places, all))));
}
