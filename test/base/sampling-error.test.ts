import { expect, test } from "vitest";
import { samplingError } from "#src/base/sampling.js";
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
