import { expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { checkConstant } from "#src/checks/verdicts/constant-check.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import {
  integersProfile,
  fullLimits,
  normals,
  numbersProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";

function resultOf(now: ColumnProfile, ...earlier: readonly ColumnProfile[]): CheckResult {
  const nights = earlier.map((profile, index) => ({ runId: `night-${index}`, profile }));
  const [result] = checkConstant({ column: "score", now, earlier: nights });
  if (result === undefined) {
    throw new Error("there is no result");
  }
  return result;
}

const shareOf = ({ numbers }: CheckResult): number => Number(numbers["largest_share_before"]);

/** Numbers of which a share is 1. */
const valuesWithOnes = (percent: number, seed = 1): number[] =>
  normals(5000, { mean: 5, seed }).map((value, row) => (row % 100 < percent ? 1 : value));
const withOnes = (percent: number, seed = 1): ColumnProfile => numbersProfile(valuesWithOnes(percent, seed));
const ones = numbersProfile(Array.from({ length: 5000 }, () => 1));

test("the largest share of a value before is at least the true one, where there were many different values", () => {
  const result = resultOf(ones, withOnes(2, 2), withOnes(7), withOnes(1, 3));
  expect(result).toMatchObject({ level: "hold", measured: 1, against: "night-1" });
  expect(shareOf(result)).toBeGreaterThanOrEqual(0.07);
  expect(shareOf(result)).toBeLessThan(0.08);
  const { rows_of_value_before: rows, rows_before: all } = result.numbers;
  expect(Number(rows) / Number(all)).toBe(shareOf(result));
  const values = new Set(valuesWithOnes(7));
  const least = Number(result.numbers["least_values_before"]);
  expect([least > 256, least <= values.size]).toEqual([true, true]);
});

test("a column of many different values passes with the most rows that one value can have", () => {
  const result = resultOf(withOnes(7), withOnes(7, 2));
  expect(result.level).toBe("pass");
  expect(Number(result.measured)).toBeGreaterThanOrEqual(0.07);
  expect(Number(result.measured)).toBeLessThan(1);
});

test("one value in all rows passes where it had nearly all before, beside more different values than are counted", () => {
  const nearly = numbersProfile(Array.from({ length: 200_000 }, (_, row) => (row < 300 ? row + 2 : 0)));
  const zeros = numbersProfile(Array.from({ length: 5000 }, () => 0));
  expect(resultOf(zeros, nearly)).toMatchObject({ level: "pass" });
  expect(shareOf(resultOf(zeros, nearly))).toBeGreaterThanOrEqual(199_700 / 200_000);
});

test("one point in time in all rows holds, though all points of a day are in one bin of the histogram", () => {
  const times = normals(2000).map((z) => Math.floor(1.79e12 + 43_200_000 + z * 10_000_000));
  const result = resultOf(numbersProfile(Array.from({ length: 2000 }, () => 1.79e12)), numbersProfile(times));
  expect(result.level).toBe("hold");
  expect(shareOf(result)).toBeLessThan(0.99);
});

test("the largest share of a text before is at least the true one, where there were many different texts", () => {
  const many = Object.fromEntries(Array.from({ length: 1000 }, (_, index) => [`text ${index}`, 5]));
  const before = textsProfile({ ...many, often: 1000 });
  const result = resultOf(textsProfile({ often: 5000 }), before);
  expect(result.level).toBe("hold");
  expect(shareOf(result)).toBeGreaterThanOrEqual(1000 / 6000);
  expect(shareOf(result)).toBeLessThan(0.2);
});

test("a share of values that are counted one by one is exact, and the number of values is not told", () => {
  const result = resultOf(textsProfile({ a: 1000 }), textsProfile({ a: 600, b: 400 }));
  expect(result.numbers).toEqual({
    rows: 1000,
    rows_of_value: 1000,
    largest_share_before: 0.6,
    rows_of_value_before: 600,
    rows_before: 1000,
    value: "a",
  });
});

const always = (value: number | null): ColumnProfile => numbersProfile(Array.from({ length: 5000 }, () => value));

test("a constant is named: a text, a number, NULL or NaN", () => {
  const names = [ones, always(null), always(Number.NaN), always(0.31)].map((now) => resultOf(now, withOnes(7)).numbers);
  expect(names.map(({ value }) => value)).toEqual(["1", "NULL", "NaN", "0.31"]);
  expect(resultOf(ones, ones).numbers).not.toHaveProperty("value"); // nothing is wrong
});

test("20 other values of 8,000 are due in as many rows, and 19 are not", () => {
  const all = textsProfile({ a: 8000 });
  const levels = [21, 20, 19].map((others) => resultOf(all, textsProfile({ a: 8000 - others, b: others })).level);
  expect(levels).toEqual(["hold", "hold", "pass"]);
});

/** Integers as features are profiled. */
const rounded = (values: readonly bigint[]): ColumnProfile => ({
  ...numbersProfile(values.map(Number)),
  type: "int64",
});

test("integers and decimals that only rounding makes equal are not called constant", () => {
  const ids = Array.from({ length: 500 }, (__, row) => 2n ** 63n - 501n + BigInt(row));
  const night = { runId: "night", profile: rounded(ids.map((id, row) => (row % 2 === 0 ? 0n : id))) };
  expect(checkConstant({ column: "id", now: rounded(ids), earlier: [night] })).toEqual([]);
  const cents = numbersProfile(
    ids.map(() => 1e14 / 100),
    "float64",
  );
  const prices = { ...cents, type: "decimal(20,4)" };
  expect(checkConstant({ column: "price", now: prices, earlier: [{ runId: "night", profile: withOnes(7) }] })).toEqual(
    [],
  );
  const others = [
    integersProfile(ids.map(() => 2n ** 62n)),
    rounded(ids.map(() => 7n)),
    numbersProfile(ids.map(() => 1e300)),
    { ...cents, type: "decimal(20,2)" },
  ];
  expect(others.map((now) => resultOf(now, night.profile).level)).toEqual(["hold", "hold", "hold", "hold"]);
});

/** Vectors of normally distributed elements. */
function vectors(rows: number, dimensions: number, seed = 1): number[][] {
  const elements = normals(rows * dimensions, { mean: 1, seed });
  return Array.from({ length: rows }, (_, row) => elements.slice(row * dimensions, (row + 1) * dimensions));
}

test("one vector in all rows holds, where vectors differed before, also of more dimensions than fit", () => {
  for (const dimensions of [2, 8, 384]) {
    const before = vectorsProfile(vectors(300, dimensions), { ...fullLimits, dimensions: 64 });
    const [one = []] = vectors(1, dimensions, 2);
    const same = vectorsProfile(
      Array.from({ length: 300 }, () => one),
      { ...fullLimits, dimensions: 64 },
    );
    const result = resultOf(same, before);
    expect(result).toMatchObject({ level: "hold", measured: 1, numbers: { value: "one vector", rows_of_value: 300 } });
    expect(shareOf(result)).toBeLessThan(0.05);
    expect(resultOf(same, same).level).toBe("pass");
    expect(resultOf(before, before).level).toBe("pass");
  }
  const zeros = vectorsProfile(Array.from({ length: 300 }, () => [0, 0]));
  expect(resultOf(zeros, vectorsProfile(vectors(300, 2))).level).toBe("hold");
});

test("two vectors with one hash and one norm are not taken for one", () => {
  const permutations = (rest: readonly number[]): number[][] =>
    rest.length === 0
      ? [[]]
      : rest.flatMap((first) =>
          permutations(rest.filter((one) => one !== first)).map((others) => [first].concat(others)),
        );
  const byBin = new Map<number, number[]>();
  let pair: readonly (readonly number[])[] | undefined;
  for (const vector of permutations([1, 2, 3, 4, 5])) {
    const { vectors: of } = vectorsProfile([vector]) as Extract<ColumnProfile, { kind: "vectors" }>;
    const other = byBin.get(of.hashed.indexOf(1));
    pair ??= other && [other, vector];
    byBin.set(of.hashed.indexOf(1), vector);
  }
  const mixed = vectorsProfile(Array.from({ length: 300 }, (_, row) => pair?.[row % 3 === 0 ? 0 : 1] ?? []));
  expect(mixed).toMatchObject({ vectors: { norms: { values: { counts: new Map([[String(Math.sqrt(55)), 300]]) } } } });
  expect(resultOf(mixed, vectorsProfile(vectors(300, 5))).level).toBe("pass");
});
