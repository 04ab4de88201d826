import { expect, test } from "vitest";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import { distributionOf, medianOf } from "#src/report/page/distribution.js";
import { histogram } from "#src/report/page/charts.js";
import { showNumber, showPsi, showShare, ticksBetween } from "#src/report/page/numbers.js";
import { normals, numbersProfile, textsProfile } from "../../support/run-profiles.js";

const sum = (bins: readonly number[] = []): number => bins.reduce((total, bin) => total + bin, 0);

test("the bins of both runs divide one range, and hold every value", () => {
  const [now, before] = [normals(500, { mean: 2 }), normals(300, { seed: 2 })];
  const found = distributionOf(numbersProfile(now), numbersProfile(before));
  if (found?.kind !== "numbers") {
    expect.fail();
  }
  expect(found.range).toEqual([Math.min(...now, ...before), Math.max(...now, ...before)]);
  expect([sum(found.now.bins), sum(found.before?.bins)]).toEqual([500, 300]);
});

test("the range leaves out values far from all others, which the last bin counts", () => {
  const found = distributionOf(numbersProfile([...normals(999), 1e6]), undefined);
  if (found?.kind !== "numbers") {
    expect.fail();
  }
  expect(found.range[1]).toBeLessThan(4);
  expect(found.now.bins.at(-1)).toBeGreaterThan(0);
  expect([found.now.total, found.now.max]).toEqual([1000, 1e6]);
});

const twelve = Object.fromEntries(Array.from({ length: 12 }, (_, index) => [`v${index}`, 20 - index]));

test("if there are more than ten values, those beyond the nine most frequent are counted together", () => {
  const counts = twelve;
  const found = distributionOf(textsProfile(counts), textsProfile({ v11: 5, old: 95 }));
  if (found?.kind !== "values") {
    expect.fail();
  }
  expect(found.values[0]).toEqual({ name: "old", now: 0, before: 95 });
  expect(found.values).toHaveLength(9);
  expect(found.others).toEqual({ name: "4 other values", now: 42, before: 5 });
});

test("ten values are shown one by one, and rare values of a feature after them as other values", () => {
  const ten = textsProfile(Object.fromEntries(Object.entries(twelve).slice(0, 10)));
  const shown = distributionOf(ten, undefined);
  expect(shown?.kind === "values" && [shown.values.length, shown.others]).toEqual([10, undefined]);
  const features = hideRareValues(new Map([["city", textsProfile({ Rome: 40, Oslo: 19, Bern: 3 })]]));
  const found = distributionOf(features.get("city") ?? expect.fail(), textsProfile({ Rome: 30, Oslo: 8 }));
  expect(found).toEqual({
    kind: "values",
    values: [{ name: "Rome", now: 40, before: 30 }],
    others: { name: "other values", now: 22, before: 8 },
    total: 62,
    totalBefore: 38,
  });
});

test("whole numbers are shown in their order, and the median of few values is one of them", () => {
  const profile = numbersProfile([2, 0, 2, 10, 2, 0], "int64");
  const found = distributionOf(profile, undefined);
  expect(found?.kind === "values" && found.values.map(({ name, now }) => [name, now])).toEqual([
    ["0", 2],
    ["2", 3],
    ["10", 1],
  ]);
  expect(medianOf(profile)).toBe(2);
  expect(distributionOf(numbersProfile([null, null]), undefined)).toBeUndefined();
});

test("numbers and shares are short, and ticks are round", () => {
  expect([0.412345, 1234.56, -554_321, 3e8, -2e-7].map(showNumber)).toEqual([
    "0.4123",
    "1235",
    "-554321",
    "300000000",
    "-2e-7",
  ]);
  expect([20_260_913, 20_260_913.4, 999_999_999_999_999, 1.23456e15, -1e300].map(showNumber)).toEqual([
    "20260913",
    "20260913",
    "999999999999999",
    "1.235e15",
    "-1e300",
  ]);
  expect([Number.MAX_VALUE, Number.NEGATIVE_INFINITY].map(showNumber)).toEqual(["1.798e308", "-Infinity"]);
  expect([0, 0.00001, 0.12345, 1].map(showShare)).toEqual(["0%", "<0.01%", "12.3%", "100%"]);
  expect([0.0001, 0.41234, 11.4512].map(showPsi)).toEqual(["<0.001", "0.412", "11.5"]);
  expect(ticksBetween(0.03, 0.99)).toEqual([0.2, 0.4, 0.6, 0.8]);
  expect(ticksBetween(-250, 300)).toEqual([-200, 0, 200]);
  expect(ticksBetween(5, 5)).toEqual([5]);
  expect(ticksBetween(0, 0.3)).toEqual([0, 0.1, 0.2, 0.3]);
  expect(ticksBetween(999_999_999_999_900, 999_999_999_999_990)).toHaveLength(5);
});

test.each([
  ["a week", [20_260_907, 20_260_913], ["20260908", "20260910", "20260912"]],
  ["codes of 15 digits", [2e14, 2.6e14], ["200000000000000", "240000000000000"]],
  ["shares", [0, 1], ["0", "0.2", "0.4", "0.6", "0.8", "1"]],
] as const)("the axis has its numbers in full, as many as there is room for: %s", (_, range, labels) => {
  const now = { bins: [1, 2, 1], total: 4, min: range[0], max: range[1], mean: range[0], deviation: 1 };
  const { markup } = histogram("day", { kind: "numbers", range, now, before: undefined });
  const shown = [...markup.matchAll(/y="119" text-anchor="\w+">([^<]*)</g)].map(([, label]) => label);
  expect(shown).toEqual(labels);
});

test("a value that a check names has a bar, however rare it is", () => {
  const counts = Object.fromEntries(Array.from({ length: 14 }, (_, at) => [`v${at}`, 100 - at]));
  const found = distributionOf(
    textsProfile({ ...counts, new: 1 }),
    textsProfile({ ...counts, gone: 1 }),
    new Set(["new", "gone"]),
  );
  const names = found?.kind === "values" ? found.values.map(({ name }) => name) : [];
  expect([names.length, names.includes("new"), names.includes("gone"), names[0]]).toEqual([9, true, true, "v0"]);
});
