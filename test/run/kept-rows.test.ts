import { expect, test } from "vitest";
import { fewestOf } from "#src/run/planning/kept-rows.js";
import { randomOf } from "../support/random.js";

test("the rows that a filter keeps are known exactly if all were counted", () => {
  const places = [
    { read: 600, sum: 3 },
    { read: 400, sum: 0 },
  ];
  expect(fewestOf(places, 1000)).toBe(3);
});

test("a filter is taken to keep no more rows than were found if none, or only one place, was counted", () => {
  expect(fewestOf([], 1_000_000)).toBe(0);
  expect(fewestOf([{ read: 1000, sum: 700 }], 1_000_000)).toBe(700);
});

/** Counts 64 places of 16,384 rows, of which a filter keeps the share that `draw` gives. */
function draws(draw: (random: () => number) => number): number[] {
  const random = randomOf(5);
  return Array.from({ length: 300 }, () => {
    const places = Array.from({ length: 64 }, () => ({ read: 16_384, sum: Math.round(16_384 * draw(random)) }));
    return fewestOf(places, 100_000_000) / 100_000_000;
  });
}

test("the rows that a filter keeps are hardly ever overestimated, and rows spread evenly are not underestimated by half", () => {
  const even = draws((random) => 0.02 + 0.01 * random());
  expect(Math.max(...even)).toBeLessThan(0.025);
  expect(Math.min(...even)).toBeGreaterThan(0.0125);
  // A fifth of the places has all kept rows, as in a table that is sorted by country.
  const clustered = draws((random) => (random() < 0.2 ? 1 : 0));
  expect(clustered.filter((share) => share > 0.2).length / clustered.length).toBeLessThan(0.01);
  expect(Math.min(...clustered)).toBeGreaterThan(0);
});
