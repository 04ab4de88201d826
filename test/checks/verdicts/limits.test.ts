import { describe, expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks, type RunProfile } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import {
  type Columns,
  nightsBefore,
  normals,
  numbersProfile,
  runProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";

/** What a check says of a run's columns, after eight runs. */
function found(check: string, now: Columns, before: (nightsAgo: number) => Columns): CheckResult[] {
  const { results } = judge({ run: runProfile(now), baseline: nightsBefore(8, before) }, defaultChecks);
  return results.filter((result) => result.check === check);
}

const levels = (results: readonly CheckResult[]): unknown[] => results.map(({ column, level }) => [column, level]);

const vectors = (seed: number, fault?: readonly number[]): number[][] => {
  const numbers = normals(3000, { seed });
  return Array.from({ length: 1000 }, (_, row) =>
    fault !== undefined && row % 4 === 0 ? [...fault] : numbers.slice(3 * row, 3 * row + 3),
  );
};

const labels = (rare: number): Columns => ({ outputs: { label: textsProfile({ a: 1000 - rare, rare }) } });

const city = (added: number): Columns => ({
  features: { city: textsProfile({ Rome: 1000 - added, Oslo: added }) },
});

const weightsOf = (seed: number, mean = 0): Columns => ({
  features: { weight: numbersProfile(normals(5000, { seed, mean })) },
});

const scoresOf = (rows: number, seed: number, mean = 0): Columns => ({
  outputs: { score: numbersProfile(normals(rows, { seed, mean })) },
});

const slicesOf = (seed: number, mean: number): Pick<RunProfile, "slices"> => ({
  slices: new Map(
    ["country=DE", "country=FR"].map((slice, index) => [
      slice,
      new Map([["score", numbersProfile(normals(1000, { seed: seed + 50 * index, mean: index * mean }))]]),
    ]),
  ),
});

const levelOfRows = (rows: number): unknown => {
  const baseline = nightsBefore(3, () => ({ rows: 1000 }));
  return judge({ run: runProfile({ rows }), baseline }, defaultChecks).results.find(({ check }) => check === "rows")
    ?.level;
};

const night = (seed: number, score: number, weight: number, rows = 5000): Columns => ({
  outputs: { score: numbersProfile(normals(rows, { seed, mean: score })) },
  features: { weight: numbersProfile(normals(rows, { seed: seed + 100, mean: weight })) },
});

const vectorColumns = (seed: number, fault?: readonly number[]): Columns => ({
  outputs: { out: vectorsProfile(vectors(seed, fault)) },
  features: { in: vectorsProfile(vectors(seed + 100, fault)) },
});

const classesAfter = (before: number): unknown =>
  found("class", labels(0), () => labels(before)).map(({ numbers, level }) => [numbers["class"], level]);

const weightLevels = (mean: number): unknown => found("psi", weightsOf(0, mean), weightsOf).map(({ level }) => level);

const quantileLevels = (rows: number): unknown =>
  levels(found("quantiles", scoresOf(rows, 0, 1), (nightsAgo) => scoresOf(rows, nightsAgo)));

const still = (nightsAgo: number): Columns => night(nightsAgo, 0, 0);

describe("vectors with faults", () => {
  test.each([
    { check: "zero_vectors", fault: [0, 0, 0], level: "hold" },
    { check: "nan", fault: [1, Number.NaN, 0], level: "hold" },
    { check: "repeated_vectors", fault: [1, -2, 0.5], level: "warn" },
  ])("a quarter of the vectors with a fault, where there were none: $check, $level", ({ check, fault, level }) => {
    expect(levels(found(check, vectorColumns(0, fault), vectorColumns))).toEqual([
      ["in", level],
      ["out", level],
    ]);
    expect(levels(found(check, vectorColumns(0), vectorColumns))).toEqual([
      ["in", "pass"],
      ["out", "pass"],
    ]);
  });
});

describe("the limits of the checks", () => {
  test("a class of an output is checked if 20 of its rows are expected", () => {
    expect(classesAfter(25)).toEqual([
      ["a", "pass"],
      ["rare", "hold"],
    ]);
    expect(classesAfter(15)).toEqual([["a", "pass"]]);
  });

  test("a new value of a feature warns above 1% of the rows, or above 2% if a value of the earlier runs was there only once", () => {
    expect(levels(found("unseen_value", city(10), () => city(0)))).toEqual([]);
    expect(levels(found("unseen_value", city(11), () => city(0)))).toEqual([["city", "warn"]]);
    const once = (ago: number): Columns =>
      ago === 3 ? { features: { city: textsProfile({ Rome: 999, Bern: 1 }) } } : city(0);
    expect(levels(found("unseen_value", city(20), once))).toEqual([]);
    expect(levels(found("unseen_value", city(21), once))).toEqual([["city", "warn"]]);
  });

  test("a feature warns above a PSI of 0.25", () => {
    expect([weightLevels(0.4), weightLevels(0.6), weightLevels(1.5)]).toEqual([["pass"], ["warn"], ["hold"]]);
  });

  test("quantiles are compared from 1,000 values on", () => {
    expect([quantileLevels(999), quantileLevels(1000)]).toEqual([[], [["score", "warn"]]]);
  });

  test("each slice is compared with the slice of the same value", () => {
    const baseline = nightsBefore(8, () => ({})).map((before, seed) => Object.assign(before, slicesOf(seed + 1, 0)));
    const { results } = judge({ run: { ...runProfile({}), ...slicesOf(0, 1) }, baseline }, defaultChecks);
    expect(levels(results.filter(({ check }) => check === "psi"))).toEqual([
      ["country=DE: score", "pass"],
      ["country=FR: score", "warn"],
    ]);
  });

  test("a run that has few runs before it is held if it has less than a quarter of their rows", () => {
    expect([levelOfRows(240), levelOfRows(260), levelOfRows(810)]).toEqual(["hold", "warn", "pass"]);
  });
});

describe("an output that moved further than its features", () => {
  test.each([
    { score: 0.45, weight: 0, level: ["warn"] },
    { score: 0.45, weight: 0.15, level: ["warn"] }, // PSI 0.2 and 0.02
    { score: 0.45, weight: 0.4, level: ["pass"] },
    { score: 0.1, weight: 0, level: ["pass"] },
  ])("an output that moved by $score, with a feature that moved by $weight: unexplained $level", (one) => {
    expect(found("unexplained", night(0, one.score, one.weight), still).map(({ level }) => level)).toEqual(one.level);
  });

  test.each([
    { rows: 1000, weight: 0, level: ["warn"] },
    { rows: 1000, weight: 0.7, level: ["pass"] },
    { rows: 999, weight: 0, level: [] },
  ])(
    "an output as in the campaign before, with $rows rows and a feature moved by $weight: unexplained $level",
    (one) => {
      const campaign = (nightsAgo: number): Columns => {
        const moved = nightsAgo <= 7 ? 0.7 : 0;
        return night(nightsAgo, moved, moved, one.rows);
      };
      const now = night(0, 0.7, one.weight, one.rows);
      expect(found("unexplained", now, campaign).map(({ level }) => level)).toEqual(one.level);
    },
  );

  test("an output that moved without its features some runs ago still warns", () => {
    const moved = (nightsAgo: number): Columns => night(nightsAgo, nightsAgo <= 3 ? 0.45 : 0, 0);
    expect(found("unexplained", night(0, 0.45, 0), moved).map(({ level }) => level)).toEqual(["warn"]);
  });
});
