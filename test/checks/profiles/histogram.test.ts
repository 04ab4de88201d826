import * as fc from "fast-check";
import { expect, test } from "vitest";
import { profileColumn, profileLimits } from "#src/checks/profiles/column-profile.js";
import {
  binEdges,
  coarsen,
  emptyHistogram,
  type Histogram,
  mergeHistograms,
  quantile,
} from "#src/checks/profiles/histogram.js";

function histogramOf(values: readonly number[], bins = 1024): Histogram {
  const column = { kind: "fixed", elementsPerValue: 1, data: Float64Array.from(values), valid: undefined } as const;
  const profile = profileColumn({ type: "float64" }, column, { ...profileLimits(1), bins });
  return profile.kind === "numbers" ? profile.numbers.histogram : emptyHistogram;
}

const keyOf = (value: number): number => histogramOf([value]).keys[0] as number;

const finite = fc.double({ noNaN: true, noDefaultInfinity: true }).map((value) => value + 0);

test("a number is between the edges of its bin, for any shift", () => {
  fc.assert(
    fc.property(finite, fc.integer({ min: 0, max: 12 }), (value, shift) => {
      const [low, high] = binEdges(keyOf(value) >> shift, shift);
      expect(low <= value && value <= high).toBe(true);
      // The next bin begins where this one ends.
      expect(binEdges((keyOf(value) >> shift) + 1, shift)[0] === high).toBe(true);
    }),
  );
});

test("the middle of a bin is as near to its numbers as is said", () => {
  fc.assert(
    fc.property(fc.double({ min: 1e-300, max: 1e300, noNaN: true }), fc.integer({ min: 0, max: 9 }), (value, shift) => {
      const [low, high] = binEdges(keyOf(value) >> shift, shift);
      expect(Math.abs((low + high) / 2 - value) / value).toBeLessThanOrEqual(2 ** (shift - 11));
    }),
  );
});

test("larger numbers never have smaller keys", () => {
  fc.assert(
    fc.property(finite, finite, (one, other) => {
      expect(Math.sign(keyOf(one) - keyOf(other)) * Math.sign(one - other)).toBeGreaterThanOrEqual(0);
    }),
  );
});

test("a histogram within its limit is the same however its values were merged", () => {
  fc.assert(
    fc.property(
      fc.array(finite, { maxLength: 200 }),
      fc.array(finite, { maxLength: 200 }),
      fc.integer({ min: 2, max: 64 }),
      (one, other, limit) => {
        const merged = mergeHistograms(histogramOf(one, limit), histogramOf(other, limit), limit);
        expect(merged).toEqual(histogramOf([...one, ...other], limit));
        expect(merged.keys.length).toBeLessThanOrEqual(limit);
        expect(merged.counts.reduce((sum, count) => sum + count, 0)).toBe(one.length + other.length);
      },
    ),
  );
});

test("coarser bins hold the values of the finer ones", () => {
  const fine = histogramOf([-3, -1, 0, 1, 1.001, 2, 1000]);
  const coarse = coarsen(fine, 10);
  expect([...coarse.counts]).toEqual([1, 1, 1, 2, 1, 1]);
  expect(coarsen(fine, 0)).toBe(fine);
});

test("a quantile is near the value that has it", () => {
  const values = Array.from({ length: 10_001 }, (_, index) => (index - 2000) / 7);
  const histogram = histogramOf(values);
  const accuracy = 2 ** (histogram.shift - 10);
  for (const share of [0, 0.1, 0.5, 0.9, 1]) {
    const exact = values[Math.round(share * 10_000)] as number;
    expect(Math.abs(quantile(histogram, share) - exact)).toBeLessThanOrEqual(Math.abs(exact) * accuracy + 0.2);
  }
  expect(quantile(histogramOf([]), 0.5)).toBeNaN();
});

test("values are assumed to be spread evenly inside a bin", () => {
  const histogram = histogramOf(
    Array.from({ length: 1000 }, (_, index) => 1 + index / 1000),
    1,
  );
  const [low, high] = binEdges(histogram.keys[0] as number, histogram.shift);
  expect([histogram.counts.length, high > low]).toEqual([1, true]);
  for (const share of [0, 0.25, 0.5, 1]) {
    expect(quantile(histogram, share)).toBeCloseTo(low + share * (high - low), 12);
  }
});
