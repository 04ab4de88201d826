import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type ColumnProfile, profileColumn, profileLimits } from "#src/checks/profiles/column-profile.js";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { quantileOfColumn } from "#src/checks/profiles/shown-quantile.js";
import type { ColumnType } from "#src/columnar/types.js";
import { normals, numbersProfile } from "../../support/run-profiles.js";

/** The profile of numbers, in few bins and with few names, as columns have them in jobs of many columns. */
function coarseProfile(values: readonly number[], type: ColumnType = "float64"): ColumnProfile {
  const data = type === "int64" ? BigInt64Array.from(values, BigInt) : Float64Array.from(values);
  const limits = { ...profileLimits(1), bins: 16, values: 8 };
  return profileColumn({ type }, { kind: "fixed", elementsPerValue: 1, data, valid: undefined }, limits);
}

function hidden(profile: ColumnProfile): ColumnProfile {
  return hideRareValues(new Map([["x", profile]])).get("x") ?? expect.fail();
}

const shares = [0.01, 0.1, 0.5, 0.9, 0.99];
const quantilesOf = (profile: ColumnProfile): (number | undefined)[] =>
  shares.map((share) => quantileOfColumn(profile, share));

test("a quantile among zeros is 0, also beside numbers of all sizes in coarse bins", () => {
  const tiny = Array.from({ length: 600 }, (_, index) => 1e-40 * 10 ** (index / 20));
  const profile = coarseProfile([...Array<number>(9400).fill(0), ...tiny]);
  expect(profile.kind === "numbers" && profile.numbers.histogram.shift).toBeGreaterThan(11);
  expect(quantilesOf(profile).slice(0, 4)).toEqual([0, 0, 0, 0]);
});

test("a quantile of few different numbers is one of them, as the ranks say, although rare ones have no names", () => {
  const hours = Array.from({ length: 24_000 }, (_, index) => index % 24);
  expect(quantilesOf(numbersProfile(hours))).toEqual([0, 2, 11, 21, 23]);
  expect(quantilesOf(hidden(numbersProfile([-0.5, ...hours, 100.5])))).toEqual([0, 2, 11, 21, 23]);
  expect(quantilesOf(numbersProfile([-3.25, -3.25, -1, 0.3]))).toEqual([-3.25, -3.25, -3.25, 0.3, 0.3]);
});

test("a quantile of integers is an integer, of decimals one with their digits, and both are near the exact one", () => {
  const values = normals(5000, { mean: 40, deviation: 30 });
  const wholes = values.map((value) => Math.round(value)).toSorted((one, other) => one - other);
  for (const [share, found = Number.NaN] of quantilesOf(coarseProfile(wholes, "int64")).entries()) {
    expect(Number.isInteger(found)).toBe(true);
    const exact = wholes[Math.floor((shares[share] as number) * 5000)] as number;
    expect(Math.abs(found - exact)).toBeLessThanOrEqual(1 + Math.abs(exact));
  }
  const cents = values.map((value) => Math.round(value * 100));
  const decimals = coarseProfile(cents, "int64");
  const asDecimal: ColumnProfile = { ...decimals, type: "decimal(10,2)" };
  expect(quantilesOf(asDecimal).every((found) => Number(found?.toFixed(2)) === found)).toBe(true);
});

test("a quantile is between the extremes, and no larger than that of a larger share", () => {
  fc.assert(
    fc.property(
      fc.array(fc.integer({ min: -400, max: 400 }), { minLength: 1, maxLength: 100 }),
      fc.constantFrom<ColumnType>("int64", "float64"),
      (values, type) => {
        const found = quantilesOf(coarseProfile(values, type)).map(Number);
        expect(found).toEqual(found.toSorted((one, other) => one - other));
        expect(found.every((one) => one >= Math.min(...values) && one <= Math.max(...values))).toBe(true);
        expect(type === "float64" || found.every(Number.isInteger)).toBe(true);
      },
    ),
  );
});

test("a column without numbers has no quantiles", () => {
  expect(quantilesOf(numbersProfile([Number.NaN]))).toEqual(shares.map(() => undefined));
});
