import { expect, test } from "vitest";
import { leastSum, samplingError } from "#src/base/sampling.js";
import { randomOf } from "../support/random.js";

test("a sample of all rows has no error, and one of a single place says nothing", () => {
  expect(samplingError([{ read: 10, sum: 55 }], 10)).toBe(0);
  expect(samplingError([{ read: 10, sum: 55 }], 1000)).toBe(1);
  expect(samplingError([{ read: 10, sum: 0 }], 1000)).toBe(0);
});

const sizesIn = (rows: readonly (number | undefined)[]): number[] => rows.filter((size) => size !== undefined);
const sum = (sizes: readonly number[]): number => sizes.reduce((one, other) => one + other, 0);

test("the true mean lies within the error of about 95 of 100 samples, also where neighbouring rows are alike", () => {
  const random = randomOf(11);
  // 1,000 places of 10 rows: what neighbours have in common differs by a factor of ten, and 3 of 10 are left out.
  const table = Array.from({ length: 1000 }, () => {
    const common = 10 + 90 * random();
    return Array.from({ length: 10 }, () => (random() < 0.3 ? undefined : common * (0.8 + 0.4 * random())));
  });
  const truth = sum(table.flatMap(sizesIn)) / 10_000;
  const draws = 400;
  let within = 0;
  for (let draw = 0; draw < draws; draw += 1) {
    const drawn = Array.from({ length: 20 }, () => sizesIn(table[Math.floor(random() * 1000)] ?? []));
    const found = sum(drawn.flat()) / 200;
    const sampled = drawn.map((sizes) => ({ read: 10, sum: sum(sizes) }));
    within += Math.abs(found - truth) <= samplingError(sampled, 10_000) * found ? 1 : 0;
  }
  expect(within / draws).toBeGreaterThan(0.91);
  expect(within / draws).toBeLessThan(0.99);
});

test("the least sum over all rows is exact if all were read", () => {
  const places = [
    { read: 600, sum: 3 },
    { read: 400, sum: 0 },
  ];
  expect(leastSum(places, 1000)).toBe(3);
});

test("the least sum over all rows is an eighth of the estimate if only one place was read, and nothing if none was", () => {
  expect(leastSum([], 1_000_000)).toBe(0);
  expect(leastSum([{ read: 1000, sum: 700 }], 1_000_000)).toBe(87_500);
});

test.each([0.02, 0.05, 0.1])(
  "the least sum over all rows is not far below the true one if %d of them are together",
  (share) => {
    const places = Array.from({ length: 64 }, (_, place) => ({
      read: 16_384,
      sum: (place + 0.5) / 64 > 0.5 && (place + 0.5) / 64 <= 0.5 + share ? 16_384 : 0,
    }));
    const least = leastSum(places, 1_000_000_000) / 1_000_000_000;
    expect(least).toBeLessThan(share);
    expect(least).toBeGreaterThan(share / 12);
  },
);

/** Estimates the share of rows with a property from 64 places of 16,384 rows, in which `draw` gives it. */
function estimates(draw: (random: () => number) => number): number[] {
  const random = randomOf(5);
  return Array.from({ length: 300 }, () => {
    const places = Array.from({ length: 64 }, () => ({ read: 16_384, sum: Math.round(16_384 * draw(random)) }));
    return leastSum(places, 100_000_000) / 100_000_000;
  });
}

test("the least sum over all rows is hardly ever above the true one, nor half of it if values are spread evenly", () => {
  const even = estimates((random) => 0.02 + 0.01 * random());
  expect(Math.max(...even)).toBeLessThan(0.025);
  expect(Math.min(...even)).toBeGreaterThan(0.0125);
  // A fifth of the places has all of these rows, as in a table that is sorted by country.
  const clustered = estimates((random) => (random() < 0.2 ? 1 : 0));
  expect(clustered.filter((share) => share > 0.2).length / clustered.length).toBeLessThan(0.01);
  expect(Math.min(...clustered)).toBeGreaterThan(0);
});
