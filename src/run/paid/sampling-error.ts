import type { SampledPlace } from "./sample-rows.js";

/** Standard errors on both sides of a mean, within which the true one lies in 95 of 100 samples. */
const standardErrors = 2;

/**
 * The share by which the mean of a sample may be wrong, because not all rows were read: rows of one place are alike, so
 * places are compared, not rows (a ratio estimate over clusters).
 * @param sizes what is added up, for each row that can be scored, in the order of the places
 * @param all the rows that the sample stands for
 */
export function samplingError(places: readonly SampledPlace[], sizes: readonly number[], all: number): number {
  const read = places.reduce((sum, place) => sum + place.read, 0);
  const total = sizes.reduce((sum, size) => sum + size, 0);
  if (read >= all || total === 0) {
    return 0;
  }
  if (places.length < 2) {
    return 1;
  }
  const perRow = total / read;
  let from = 0;
  let squares = 0;
  for (const place of places) {
    const sum = sizes.slice(from, from + place.rows).reduce((one, other) => one + other, 0);
    squares += (sum - perRow * place.read) ** 2;
    from += place.rows;
  }
  const variance = (squares * places.length) / (places.length - 1) / read ** 2;
  return (standardErrors * Math.sqrt(variance)) / perRow;
}
