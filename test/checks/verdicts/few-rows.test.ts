import { describe, expect, test } from "vitest";
import type { ColumnProfile } from "#src/checks/profiles/column-profile.js";
import { judge } from "#src/checks/verdicts/judge.js";
import { defaultChecks } from "#src/checks/verdicts/run-profile.js";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import {
  nightsBefore,
  normals,
  numbersProfile,
  runProfile,
  textsProfile,
  vectorsProfile,
} from "../../support/run-profiles.js";
import { only, told } from "../../support/verdicts.js";

/** What a check says of the values of an output, which earlier runs had so, the latest last. */
function found(check: string, now: ColumnProfile, before: readonly ColumnProfile[]): CheckResult[] {
  const baseline = nightsBefore(before.length, (ago) => ({ outputs: { out: before.at(-ago) as ColumnProfile } }));
  const { results } = judge({ run: runProfile({ outputs: { out: now } }), baseline }, defaultChecks);
  return results.filter((result) => result.check === check);
}

const levels = (results: readonly CheckResult[]): unknown[] => results.map(({ level }) => level);
const levelsOfClass = (results: readonly CheckResult[], name: string): unknown[] =>
  levels(results.filter(({ numbers }) => numbers["class"] === name));

const times = <T>(count: number, one: T): T[] => Array.from({ length: count }, () => one);

/** Rows of which a share of 1 % are of a class, unless there are few. */
const labels = (rows: number, rare = Math.floor(rows / 100)): ColumnProfile =>
  textsProfile({ a: rows - rare - Math.floor(rows / 3), b: Math.floor(rows / 3), rare });

/** Numbers of which so many are NULL. */
const numbers = (rows: number, nulls: number): ColumnProfile =>
  numbersProfile(normals(rows, { seed: rows }).map((value, row) => (row < nulls ? null : value)));

const vectors = (rows: number, seed: number): ColumnProfile =>
  vectorsProfile(normals(rows, { seed }).map((value) => [value, 1]));

const large = labels(10_000);
const many = numbers(10_000, 1000);
const constant = numbersProfile(times(10_000, 1));

const night = (): Parameters<typeof runProfile>[0] => ({
  outputs: { out: numbers(1000, 0), label: labels(1000) },
  features: { weight: numbers(1000, 0) },
});

describe("earlier runs with few rows", () => {
  test.each([0, 1, 20, 30, 300])("two nights of %i rows without a rare class do not end its check", (rows) => {
    const nights = [large, labels(rows, 0), ...times(5, large), labels(rows, 0)];
    expect(levelsOfClass(found("class", labels(10_000, 0), nights), "rare")).toEqual(rows === 300 ? [] : ["hold"]);
    expect(levelsOfClass(found("class", labels(10_000, 100), nights), "rare")).toEqual(rows === 300 ? [] : ["pass"]);
  });

  test("an earlier night without a class excuses a night without it, if it had enough rows to show the class", () => {
    expect(levelsOfClass(found("class", labels(10_000, 0), [...times(7, large), labels(600, 0)]), "rare")).toEqual([]);
  });

  test("a class that only the first night lacks, which had few rows, is checked", () => {
    const first = textsProfile({ a: 20 });
    expect(levelsOfClass(found("class", labels(10_000, 0), [first, ...times(7, large)]), "rare")).toEqual(["hold"]);
  });

  test("earlier runs with few rows are pooled into one run: together they show that a class is missing, which none of them shows alone", () => {
    const nights = [...times(7, labels(2000, 0)), labels(5000, 40)];
    expect(found("class", labels(5000, 0), nights).some(({ numbers: { class: name } }) => name === "rare")).toBe(false);
    const rarer = [...times(5, labels(400, 2)), ...times(3, large)];
    const result = found("class", labels(10_000, 5), rarer).find(({ numbers: of }) => of["class"] === "rare");
    expect(result).toMatchObject({
      level: "hold",
      against: null,
      numbers: { rows_of_class_before: 10, rows_before: 2000, smallest_share_before: 0.005, runs_together: 5 },
    });
    expect(result?.measured).toBe(5 / (0.005 * 10_000));
  });

  test.each([0, 1, 5])("a night of %i rows, all NULL, does not end the checks of NULL and of constants", (rows) => {
    const nights = [...times(7, many), numbers(rows, rows)];
    expect(levels(found("nulls", numbers(10_000, 9000), nights))).toEqual(["hold"]);
    expect(levels(found("constant", constant, nights))).toEqual(["hold"]);
  });

  test("an earlier night that is all NULL excuses a night with many NULLs if it has at least 50 rows, or if both nights are small", () => {
    expect(levels(found("nulls", numbers(10_000, 9000), [...times(7, many), numbers(50, 50)]))).toEqual(["pass"]);
    expect(levels(found("nulls", numbers(10_000, 9000), [...times(7, many), numbers(49, 49)]))).toEqual(["hold"]);
    expect(levels(found("nulls", numbers(30, 30), [...times(7, many), numbers(30, 30)]))).toEqual(["pass"]);
    const [together] = found("nulls", numbers(10_000, 9000), [...times(6, many), numbers(30, 30), numbers(30, 30)]);
    expect(together).toMatchObject({ level: "pass", against: null, numbers: { share_before: 1, runs_together: 2 } });
  });

  test("an earlier night whose rows all had one value excuses a constant only if chance could not have made it", () => {
    const texts = textsProfile({ a: 9500, b: 500 });
    const onlyOf = (rows: number): unknown[] =>
      levels(found("constant", textsProfile({ a: 10_000 }), [...times(7, texts), textsProfile({ a: rows })]));
    expect([onlyOf(90), onlyOf(120)]).toEqual([["hold"], ["pass"]]);
    const one = times(7, textsProfile({ a: 1 }));
    expect(levels(found("constant", textsProfile({ a: 10_000 }), [texts, ...one]))).toEqual(["hold"]);
  });

  test("a value is new only if earlier runs had enough rows to show it", () => {
    const now = textsProfile({ a: 9900, new: 100 });
    expect(levels(found("unseen_value", now, times(8, textsProfile({ a: 30 }))))).toEqual([]);
    expect(levels(found("unseen_value", now, times(8, textsProfile({ a: 249 }))))).toEqual([]);
    const [result] = found("unseen_value", now, times(8, textsProfile({ a: 250 })));
    expect(result).toMatchObject({ level: "hold", numbers: { rows_before: 2000 } });
    expect(result?.formula).toContain("of at least 5 rows, where");
  });

  test("earlier runs with few rows do not take part in a check that they are too small for, even pooled", () => {
    const few = times(8, numbersProfile([1]));
    expect(levels(found("constant", constant, few))).toEqual(["pass"]);
    expect(found("nulls", many, few)).toEqual([]);
  });
});

describe("a run with few rows after nights with many", () => {
  test.each([
    [1, 1, 800, "pass"],
    [3, 2, 300, "pass"],
    [5, 2, 500, "pass"],
    [10, 2, 100, "pass"],
    [30, 9, 1000, "pass"],
    [8, 8, 100, "hold"],
    [30, 15, 1000, "hold"],
  ])(
    "a run of %i rows of which %i are NULL, after nights with %i NULLs of 10,000 rows, has the level %s",
    (rows, nulls, before, level) => {
      expect(levels(found("nulls", numbers(rows, nulls), times(8, numbers(10_000, before))))).toEqual([level]);
    },
  );

  test("a run with few rows is not held for a missing class, a new value or a constant that chance can cause", () => {
    expect(found("class", labels(30, 0), times(8, large)).filter(({ level }) => level !== "pass")).toEqual([]);
    expect(levels(found("constant", textsProfile({ a: 10 }), times(8, textsProfile({ a: 90, b: 10 }))))).toEqual([
      "pass",
    ]);
    expect(found("unseen_value", textsProfile({ a: 26, new: 4 }), times(8, large))).toEqual([]);
  });

  test("a run with few rows has no repeated vectors if each vector occurs once", () => {
    const nights = times(8, vectors(2000, 3));
    expect([1, 2, 3, 4].flatMap((rows) => levels(found("repeated_vectors", vectors(rows, 5), nights)))).toEqual(
      times(4, "pass"),
    );
  });
});

describe("a run without rows", () => {
  const anyRows = { ...defaultChecks, rows: { min: 0, max: Number.POSITIVE_INFINITY } };
  const empty = { rows: 0, carried: new Map() };

  test("the columns of a run without rows are not compared", () => {
    const nights = nightsBefore(8, night).map((run) => Object.assign(run, { carried: new Map([["id", large]]) }));
    const verdict = judge({ run: { ...runProfile({}), ...empty }, baseline: nights }, anyRows);
    expect(told(verdict)).toEqual([]);
  });

  test("a run without rows does not count among the eight runs that the next run is compared with", () => {
    const nights = nightsBefore(9, (ago) => (ago === 1 ? { rows: 0 } : night()));
    const now = { ...night(), features: { weight: numbers(1000, 900) } };
    const verdict = judge({ run: runProfile(now), baseline: nights }, anyRows);
    expect(verdict.baseline).toHaveLength(8);
    expect(only(verdict, "nulls", "weight").level).toBe("hold");
  });

  test("the columns of a run are not compared with those of a run without rows before it", () => {
    const nights = nightsBefore(9, (ago) => (ago === 1 ? { rows: 0 } : night()));
    const now = { ...night(), outputs: { out: labels(1000) } };
    const results = judge({ run: runProfile(now), baseline: nights }, anyRows).results;
    expect(
      results.filter(({ check }) => check === "column").map(({ column, level, against }) => [column, level, against]),
    ).toEqual([
      ["out", "hold", "night-2026-11-21"],
      ["label", "hold", "night-2026-11-21"],
    ]);
  });
});
