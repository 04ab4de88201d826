import { expect, test } from "vitest";
import { alignProfiles } from "#src/checks/verdicts/align/profiles.js";
import { nameBins, psi, psiBins, type PsiBin, psiChance, psiLimit } from "#src/checks/verdicts/psi.js";
import { hideRareValues } from "#src/checks/profiles/rare-values.js";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import type { ColumnType } from "#src/columnar/types.js";
import { integersProfile, normals, numbersProfile, textsProfile } from "../../support/run-profiles.js";

function binsOf(...profiles: Parameters<typeof alignProfiles>): PsiBin[] {
  const aligned = alignProfiles(...profiles);
  if (aligned === undefined) {
    throw new Error("the two have no distribution in common");
  }
  return nameBins(psiBins(aligned), aligned);
}

test("PSI is that of its formula", () => {
  // (0.75 - 0.25) · ln 3 + (0.25 - 0.75) · ln (1/3), but for the half that is added to each count
  expect(
    psi([
      { before: 25_000, now: 75_000 },
      { before: 75_000, now: 25_000 },
    ]),
  ).toBeCloseTo(Math.log(3), 4);
  expect(
    psi([
      { before: 10, now: 10 },
      { before: 30, now: 30 },
    ]),
  ).toBe(0);
  expect(
    psi([
      { before: 0, now: 4 },
      { before: 9, now: 5 },
    ]),
  ).toBeCloseTo((4.5 / 10 - 0.5 / 10) * Math.log(9) + (5.5 / 10 - 9.5 / 10) * Math.log(5.5 / 9.5), 12);
});

test("bins are the deciles of what was before", () => {
  const bins = binsOf(numbersProfile(normals(20_000)), numbersProfile(normals(20_000, { seed: 2 })));
  expect(bins).toHaveLength(10);
  for (const { before, now } of bins) {
    expect(before / 20_000).toBeGreaterThan(0.09);
    expect(before / 20_000).toBeLessThan(0.11);
    expect(Math.abs(now - before)).toBeLessThan(400);
  }
  expect(psi(bins)).toBeLessThan(psiLimit(0, 10, 20_000, 20_000));
});

test("values of 5 % or more on either side, NULL, NaN and infinity have bins of their own", () => {
  const others = normals(800, { mean: 10 });
  const before = numbersProfile([...others, ...Array.from({ length: 200 }, () => 0)]);
  const now = numbersProfile([
    ...others,
    ...Array.from({ length: 100 }, () => -7),
    null,
    Number.NaN,
    Number.NaN,
    1 / 0,
  ]);
  const bins = binsOf(before, now);
  const of = (name: string): PsiBin | undefined => bins.find(({ values }) => values.startsWith(name));
  expect(of("0 to")).toMatchObject({ before: 200, now: 0 });
  expect(of("-7")).toMatchObject({ before: 0, now: 100 });
  expect([of("NULL")?.now, of("NaN")?.now, of("Infinity")?.now]).toEqual([1, 2, 1]);
  const sum = (side: "before" | "now"): number => bins.reduce((total, bin) => total + bin[side], 0);
  expect([sum("before"), sum("now")]).toEqual([1000, 904]);
});

function repeated(value: number, count: number): number[] {
  return Array.from({ length: count }, () => value);
}

function edges(name: string): number[] {
  return name.split(" to ").map(Number);
}

test("the name of a bin leaves out the values at its ends that have bins of their own, and names one between them", () => {
  const spread = Array.from({ length: 400 }, (_, index) => 0.9 + index / 1000);
  const profile = numbersProfile([...repeated(1, 300), ...repeated(8, 300), ...spread]);
  const names = binsOf(profile, profile).map(({ values }) => values);
  expect(names).toContain("1 to 1.00098");
  const overlapping = names.flatMap((name, index) => {
    const [, high = 0] = edges(name);
    const inside = names.slice(index + 1).filter((other) => (edges(other)[0] ?? 0) < high);
    return name.includes("except") ? [] : inside.map((other) => `${name} and ${other}`);
  });
  expect(overlapping).toEqual([]);
  const first = textsProfile({ a: 60, b: 20, c: 20, d: 900 });
  expect(binsOf(first, first).map(({ values, before }) => `${values}: ${before}`)).toEqual([
    "a: 60",
    "b to c: 40",
    "d: 900",
  ]);
  const mixed = textsProfile({ a: 20, b: 60, c: 19, d: 901 });
  expect(binsOf(mixed, mixed).map(({ values, before }) => `${values}: ${before}`)).toEqual([
    "b: 60",
    "d: 901",
    "a to c, except b: 39",
  ]);
});

test("values beyond all earlier ones fall into the bins at the ends", () => {
  const before = numbersProfile(normals(10_000));
  const now = numbersProfile(normals(10_000, { mean: 1000, deviation: 200 }));
  expect(binsOf(before, now).at(-1)?.now).toBeGreaterThan(9000);
});

test("rare texts are counted together, in the order of their names", () => {
  const bins = binsOf(textsProfile({ a: 900, b: 30, c: 30, d: 40 }), textsProfile({ a: 900, c: 50, e: 50 }));
  expect(bins.map(({ values }) => values)).toContain("a");
  expect(bins.reduce((sum, { now }) => sum + now, 0)).toBe(1000);
  expect(psi(bins)).toBeGreaterThan(0.1);
});

const texts = (from: number): Record<string, number> =>
  Object.fromEntries(Array.from({ length: 2000 }, (_, index) => [`text ${from + index}`, 1 + (index % 5)]));

test("many different texts are compared by their hashes", () => {
  expect(psi(binsOf(textsProfile(texts(0)), textsProfile(texts(0))))).toBe(0);
  expect(psi(binsOf(textsProfile(texts(0)), textsProfile({ ...texts(0), hot: 3000 })))).toBeGreaterThan(0.5);
  expect(psi(binsOf(textsProfile({ a: 500, b: 500 }), textsProfile(texts(0))))).toBeGreaterThan(0.5);
});

test("chance alone stays below the limit, however few rows and bins", () => {
  for (const rows of [60, 200, 1000]) {
    const beyond = Array.from({ length: 200 }, (_, index) => {
      const profiles = [2 * index, 2 * index + 1].map((seed) => numbersProfile(normals(rows, { seed })));
      const bins = binsOf(...(profiles as Parameters<typeof alignProfiles>));
      return psi(bins) > psiLimit(0, bins.length, rows, rows);
    }).filter(Boolean);
    expect(beyond.length).toBeLessThanOrEqual(2);
  }
  expect(psiLimit(0.25, 10, 1e6, 1e6)).toBe(0.25);
  expect(psiLimit(0.25, 10, 49, 1e6)).toBe(Number.POSITIVE_INFINITY);
  expect(psiLimit(0, 9, 100, 100, psiChance.pooled)).toBe((8 + 4 * Math.sqrt(16)) * (1 / 100 + 1 / 100));
});

/** Rows of each value, as a profile of a run has them: of a feature, values of fewer than 20 rows have no name. */
function counted(
  rows: Readonly<Record<string, number>>,
  isFeature = false,
  type: ColumnType = "float64",
): ColumnProfile {
  const profile = numbersProfile(
    Object.entries(rows).flatMap(([value, count]) => repeated(Number(value), count)),
    type,
  );
  return isFeature ? (hideRareValues(new Map([["code", profile]])).get("code") ?? profile) : profile;
}

const linesOf = (bins: readonly PsiBin[]): string[] =>
  bins.map(({ values, before, now }) => `${values}: ${before}, ${now}`);

function sums(bins: readonly PsiBin[]): readonly [number, number] {
  return [bins.reduce((sum, { before }) => sum + before, 0), bins.reduce((sum, { now }) => sum + now, 0)];
}

const wide = (one: number, other: number): ColumnProfile =>
  integersProfile([...repeated(0, one).map(() => 2n ** 62n), ...repeated(0, other).map(() => 2n ** 62n + 1n)]);

test("values that share a bin of the histogram have bins of their own: integers, prices, features, and beyond 2^53", () => {
  for (const isFeature of [false, true]) {
    const bins = binsOf(
      counted({ 30001: 1500, 30002: 1200, 30003: 300 }, isFeature, "int64"),
      counted({ 30001: 330, 30002: 1200, 30003: 1470 }, isFeature, "int64"),
    );
    expect(linesOf(bins)).toEqual(["30001: 1500, 330", "30002: 1200, 1200", "30003: 300, 1470"]);
    expect(psi(bins)).toBeGreaterThan(1.1);
  }
  const prices = [100, 100.01, 100.02, 100.03];
  const of = (rows: readonly number[]): ColumnProfile =>
    counted(Object.fromEntries(prices.map((price, at) => [price, rows[at] ?? 0])));
  expect(psi(binsOf(of([400, 300, 200, 100]), of([100, 200, 300, 400])))).toBeGreaterThan(0.8);
  expect(linesOf(binsOf(wide(500, 500), wide(900, 100)))).toEqual([
    "4611686018427387904: 500, 900",
    "4611686018427387905: 500, 100",
  ]);
});

const codes = (most: number): ColumnProfile =>
  counted(Object.fromEntries(Array.from({ length: 100 }, (_, at) => [30_001 + at, at < 50 ? most : 40 - most])));

test("the deciles of values that are counted one by one are exact, also if they share a bin of the histogram", () => {
  const bins = binsOf(codes(20), codes(35));
  expect(bins).toHaveLength(10);
  expect(linesOf(bins)[0]).toBe("30001 to 30010: 200, 350");
  expect(psi(bins)).toBeGreaterThan(0.5);
});

test("a value that only one run names has a bin of its own, with as few other rows as it can have on the other side", () => {
  const before = counted({ 30001: 1000, 30002: 1900, 30003: 15, 30004: 85 }, true);
  const now = counted({ 30001: 1000, 30002: 8, 30003: 1892, 30004: 100 }, true);
  const bins = binsOf(before, now);
  expect(linesOf(bins)).toEqual(["30001: 1000, 1000", "30002: 1900, 8", "30003: 15, 1892", "30004: 85, 100"]);
  expect(sums(bins)).toEqual([3000, 3000]);
  // Of 15 and 9 rows without a name, each is of some value in this bin of the histogram.
  const others = binsOf(
    counted({ 30001: 1000, 30002: 1900, 30005: 15, 30006: 9, 30007: 76 }, true),
    counted({ 30001: 1000, 30002: 12, 30005: 1912, 30006: 5, 30007: 71 }, true),
  );
  expect(sums(others)).toEqual([3000, 3000]);
  expect(others.find(({ values }) => values === "30002")).toMatchObject({ before: 1900, now: 17 });
  expect(others.find(({ values }) => values === "30005")).toMatchObject({ before: 19, now: 1912 });
});

const sampled = (rows: number, seed: number): ColumnProfile => {
  const counts: Record<string, number> = {};
  for (const z of normals(rows, { seed })) {
    const code = 4_200_000 + Math.floor(Math.abs(z * 1e4) % 200);
    counts[code] = (counts[code] ?? 0) + 1;
  }
  return counted(counts, true);
};

test("rare values of a feature do not move its PSI, however unequal the numbers of rows are", () => {
  const found = Array.from({ length: 20 }, (_, seed) =>
    psi(binsOf(sampled(5000, 2 * seed), sampled(3500, 2 * seed + 1))),
  );
  expect(Math.max(...found)).toBeLessThan(0.06); // if each value that one side names were split off: 0.13
});

test("a value is named so that it can be told from others, and a range of values with six digits", () => {
  const thirds = repeated(Math.fround(1 / 3), 500);
  const tenths = Array.from({ length: 100 }, (_, at) => (at + 1) / 7);
  const profile = numbersProfile([...thirds, ...repeated(2 / 3, 500), ...tenths]);
  const names = binsOf(profile, profile).map(({ values }) => values);
  expect(names).toEqual(expect.arrayContaining(["0.333333343", "0.6666666666666666", "0.714286 to 14.2857"]));
});
