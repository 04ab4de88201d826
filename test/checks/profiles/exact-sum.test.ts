import * as fc from "fast-check";
import { expect, test } from "vitest";
import { createExactAdder, exactMean, roundExact } from "#src/checks/profiles/exact-sum.js";

const normalNumbers = fc
  .double({ noNaN: true, noDefaultInfinity: true })
  .map((value) => (Math.abs(value) < 2.3e-308 ? 0 : value));

function sumOf(values: readonly number[]): bigint {
  const adder = createExactAdder();
  for (const value of values) {
    adder.add(value);
  }
  return adder.finish();
}

const exactOf = (value: number): bigint => sumOf([value]);

/** A float64 in units of 2^-1074, found by halving rather than by its bits. */
function rationalOf(value: number): bigint {
  let [scaled, halvings] = [value, 0];
  while (!Number.isInteger(scaled)) {
    scaled *= 2;
    halvings += 1;
  }
  return BigInt(scaled) << BigInt(1074 - halvings);
}

test("a float64 and its exact number are one", () => {
  fc.assert(
    fc.property(normalNumbers, (value) => {
      expect(exactOf(value)).toBe(rationalOf(value));
      expect(roundExact(exactOf(value))).toBe(value + 0);
    }),
  );
  for (const value of [Number.MAX_VALUE, -Number.MAX_VALUE, 2 ** -1022, 1, 0.1, 2 ** 53 - 1]) {
    expect(roundExact(exactOf(value))).toBe(value);
  }
  expect(exactOf(Number.MIN_VALUE)).toBe(0n);
});

test("a sum is exact, however much its values cancel", () => {
  fc.assert(
    fc.property(fc.array(normalNumbers, { maxLength: 50 }), (values) => {
      expect(sumOf(values)).toBe(values.reduce((sum, value) => sum + rationalOf(value), 0n));
    }),
  );
  expect(roundExact(sumOf([1e300, 1, -1e300, 2 ** -500]))).toBe(1);
  expect(roundExact(sumOf([0.1, 0.2, 0.3, -0.6]))).toBe(2 ** -55);
});

test("a sum of many values is exact, and goes on after it was asked for", () => {
  const value = 2 ** -53 - 1; // all bits of its fraction are set
  const adder = createExactAdder();
  for (let count = 1; count <= 100_000; count += 1) {
    adder.add(value);
  }
  expect(adder.finish()).toBe(rationalOf(value) * 100_000n);
  adder.add(2 ** -1000);
  expect(adder.finish()).toBe(rationalOf(value) * 100_000n + rationalOf(2 ** -1000));
});

test("rounding goes to the nearest float64, ties to even, beyond the largest to infinity", () => {
  const one = exactOf(1);
  const ulp = exactOf(2 ** -52);
  expect(roundExact(one + ulp / 2n)).toBe(1);
  expect(roundExact(one + ulp / 2n + 1n)).toBe(1 + 2 ** -52);
  expect(roundExact(one + ulp + ulp / 2n)).toBe(1 + 2 ** -51);
  expect(roundExact(-one - ulp / 2n - 1n)).toBe(-1 - 2 ** -52);
  expect(roundExact(exactOf(Number.MAX_VALUE) * 2n)).toBe(Number.POSITIVE_INFINITY);
  expect(roundExact(3n)).toBe(3 * Number.MIN_VALUE);
});

test("a mean is the nearest to the exact one", () => {
  expect(exactMean(sumOf([0.1, 0.1, 0.1]), 3)).toBe(0.1);
  expect(exactMean(sumOf([1e308, 1e308]), 2)).toBe(1e308);
  expect(exactMean(0n, 0)).toBeNaN();
});
