import { describe, expect, test } from "vitest";
import { judge } from "#src/checks/verdicts/judge.js";
import { type CheckOptions, defaultChecks } from "#src/checks/verdicts/run-profile.js";
import { normals, numbersProfile, runProfile, textsProfile } from "../../support/run-profiles.js";
import { only, told } from "../../support/verdicts.js";

/** The bounds of the rows out of a range, with their number in between. */
function outside(values: readonly number[], range: readonly [number, number]): [number, number, number] {
  const options = { ...defaultChecks, outputs: new Map([["score", { range }]]) };
  const run = runProfile({ outputs: { score: numbersProfile(values) } });
  const { numbers } = only(judge({ run, baseline: [] }, options), "range", "score");
  const rows = values.filter((value) => value < range[0] || value > range[1]).length;
  return [Number(numbers["rows_outside_least"]), rows, Number(numbers["rows_outside_most"])];
}

describe("absolute checks", () => {
  test("absolute checks hold a first run, which has no earlier runs", () => {
    const options: CheckOptions = {
      ...defaultChecks,
      outputs: new Map([
        ["score", { range: [0, 1] as const, nulls: 0 }],
        ["label", { in: ["a", "b"] }],
      ]),
    };
    const outputs = { score: numbersProfile([0.5, 1.5, null]), label: textsProfile({ a: 1, b: 1, c: 1 }) };
    const verdict = judge({ run: runProfile({ outputs, rejected: 11 }), baseline: [] }, options);
    expect(told(verdict)).toEqual(["rejects null hold", "range score hold", "nulls score hold", "in label hold"]);
    expect(verdict).toMatchObject({ outcome: "hold", baseline: [] });
    expect(only(verdict, "in", "label").numbers).toEqual({ c: 1 });
  });

  test("the ends of a range are rounded to float32 for an output of float32", () => {
    const outputs = new Map([["score", { range: [0, 0.1] as const }]]);
    const found = (value: number, type: "float32" | "float64"): unknown => {
      const profile = { ...numbersProfile([value]), type };
      return only(
        judge({ run: runProfile({ outputs: { score: profile } }), baseline: [] }, { ...defaultChecks, outputs }),
        "range",
        "score",
      ).level;
    };
    const tenth = Math.fround(0.1);
    expect([found(tenth, "float32"), found(tenth, "float64")]).toEqual(["pass", "hold"]);
    expect(found(tenth + 2 ** -27, "float32")).toBe("hold");
  });

  test("absolute checks pass values within their limits", () => {
    const options: CheckOptions = {
      ...defaultChecks,
      outputs: new Map([
        ["score", { range: [0, 1] as const, nulls: 0.5 }],
        ["label", { in: ["a", "b"] }],
      ]),
    };
    const outputs = { score: numbersProfile([0, 1, null]), label: textsProfile({ a: 1 }) };
    expect(told(judge({ run: runProfile({ outputs }), baseline: [] }, options))).toEqual([]);
  });

  test("a range tells how many rows are out of it: exactly for few different numbers, else between two bounds", () => {
    expect(outside([0, 0.5, 1, 1.5, 1.5, -2], [0, 1])).toEqual([3, 3, 3]);
    const values = normals(5000);
    for (const range of [
      [-1, 1],
      [-0.7707, 1.1303],
      [-0.0101, 1.3303],
      [-10, 2.5],
      [-10, 10],
      [0, Math.max(...values) * 0.9999],
    ] as const) {
      const [least, rows, most] = outside(values, range);
      expect(least).toBeLessThanOrEqual(rows);
      expect(most).toBeGreaterThanOrEqual(rows);
      expect(most - least).toBeLessThan(50);
      expect(least > 0).toBe(rows > 0);
    }
  });
});
