import { expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { checkStale } from "#src/checks/verdicts/stale-check.js";
import { normals, numbersProfile, runProfile, textsProfile } from "../../support/run-profiles.js";

type Features = Readonly<Record<string, ColumnProfile>>;

function isStale(now: Features, before: Features): boolean {
  return checkStale(runProfile({ features: now }), runProfile({ features: before })).length > 0;
}

/** The profile of every `every`-th of 1,000 numbers, with the exact counts of all. */
function sampled(every: number, values = normals(1000, { seed: 7 })): ColumnProfile {
  const whole = numbersProfile(values);
  if (every === 1 || whole.kind !== "numbers") {
    return whole;
  }
  const { rows, nulls, numbers } = whole;
  return { ...numbersProfile(values.filter((_, row) => row % every === 0)), all: { rows, nulls, numbers } };
}

test("features of the last run warn, also if another share of them was sampled", () => {
  expect(isStale({ weight: sampled(3) }, { weight: sampled(3) })).toBe(true);
  expect(isStale({ weight: sampled(3) }, { weight: sampled(4) })).toBe(true);
  expect(isStale({ weight: sampled(3) }, { weight: sampled(1) })).toBe(true);
  expect(isStale({ weight: sampled(1) }, { weight: sampled(3) })).toBe(true);
});

test("one number that differs in a row which is not sampled is enough not to warn", () => {
  const values = normals(1000, { seed: 7 });
  const changed = values.with(1, 0.5);
  expect(isStale({ weight: sampled(4, changed) }, { weight: sampled(4, values) })).toBe(false);
  expect(isStale({ weight: sampled(3, changed) }, { weight: sampled(4, values) })).toBe(false);
});

function country(rows: number): ColumnProfile {
  return { ...textsProfile({ AT: rows }), all: { rows: 1000, nulls: 0 } };
}

test("texts of samples of other sizes are left to the numbers beside them", () => {
  const [now, before] = [{ country: country(300) }, { country: country(250) }];
  expect(isStale(now, before)).toBe(false);
  expect(isStale({ ...now, weight: sampled(3) }, { ...before, weight: sampled(4) })).toBe(true);
});

test("a number that never changes does not say that the input is that of the last run", () => {
  const values = Array.from({ length: 1000 }, () => 3);
  expect(isStale({ version: sampled(3, values) }, { version: sampled(4, values) })).toBe(false);
});

test("features of which only rows are counted do not say that the input is that of the last run", () => {
  const text: ColumnProfile = { kind: "rows", type: "utf8", rows: 1000, nulls: 0 };
  expect(isStale({ text }, { text })).toBe(false);
  expect(isStale({ text, weight: sampled(1) }, { text, weight: sampled(1) })).toBe(true);
});

test("many numbers so close together that their standard deviation is not known can be those of the last run", () => {
  const values = Array.from({ length: 1000 }, (_, row) => 1e9 + row / 50);
  expect(isStale({ weight: sampled(1, values) }, { weight: sampled(1, values) })).toBe(true);
});

const flags = (rows: number, ones: number): ColumnProfile =>
  numbersProfile(Array.from({ length: rows }, (_, row) => (row < ones ? 1 : 0)));

test("few values in few rows can be those of the last run by chance, and do not say that the input is", () => {
  const [small, large] = [flags(1000, 300), flags(200_000, 60_000)];
  expect(isStale({ isNew: small }, { isNew: small })).toBe(false);
  expect(isStale({ isNew: large }, { isNew: large })).toBe(true);
  const both = { isNew: small, isOld: flags(1000, 700), weight: sampled(1) };
  expect(isStale(both, both)).toBe(true);
  const truths = { isNew: textsProfile({ true: 300, false: 700 }) };
  expect(isStale(truths, truths)).toBe(false);
  const countries = { country: textsProfile({ DE: 400, FR: 300, AT: 200, IT: 100 }) };
  expect(isStale(countries, countries)).toBe(true);
  const constant = { version: textsProfile({ v3: 1000 }) };
  expect(isStale(constant, constant)).toBe(false);
});

test.each([
  ["50 amounts", normals(50, { mean: 40, deviation: 9, seed: 3 })],
  ["50 times of a day", normals(50, { mean: 1.79e9, deviation: 20_000, seed: 3 }).map(Math.round)],
  ["200 numbers in a narrow range", normals(200, { mean: 1000, deviation: 8, seed: 3 })],
  ["200 whole numbers", normals(200, { mean: 1000, deviation: 300, seed: 3 }).map(Math.round)],
])("%s that are those of the last run warn, also if their rare values have no names", (_, values) => {
  const features = hideRareValues(new Map([["amount", numbersProfile(values)]]));
  expect(checkStale({ ...runProfile({}), features }, { ...runProfile({}), features })).toHaveLength(1);
});

/** 1,000 rows with a few different numbers, in shares that fall. */
const fewNumbers = (values: readonly number[]): number[] =>
  Array.from({ length: 1000 }, (_, row) => values[Math.floor(values.length * (row / 1000) ** 2)] as number);

test.each([
  ["ratings", [1, 2, 3, 4, 5]],
  ["codes", [30_001, 30_002, 90_000, 90_001]],
])("%s in few rows whose counts are all those of the last run warn", (_, values) => {
  const numbers = fewNumbers(values);
  expect(isStale({ rating: sampled(1, numbers) }, { rating: sampled(1, numbers) })).toBe(true);
  const counts = sampled(1, numbers);
  const swapped = sampled(1, numbers.with(0, values[1] as number).with(999, (values.at(-1) as number) - 1));
  expect(isStale({ rating: counts }, { rating: swapped })).toBe(false);
});
