import { expect, test } from "vitest";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { warnedText } from "#src/publish/feature-text.js";
import { resultLines } from "#src/publish/verdict-text.js";
import { storedVerdict } from "../support/verdicts.js";

const common = { column: "score", level: "hold", formula: "", against: null, numbers: {} } as const;

test.each([
  ["north ", '"north "'],
  [" north", '" north"'],
  ["", '""'],
  ["north sea", "north sea"],
])("a value that begins or ends with a blank, or is empty, is in quotes: %j", (value, text) => {
  const unseen: CheckResult = {
    ...common,
    check: "unseen_value",
    column: "region",
    measured: 0.5,
    limit: 0.1,
    numbers: { value },
  };
  expect(resultLines(storedVerdict([unseen]), "hold")[0]).toMatch(
    `region: value ${text}, which no earlier run had, in`,
  );
  const bins = [
    { values: value, before: 180, now: 0 },
    { values: "FR", before: 460, now: 541 },
  ];
  const fallen: CheckResult = {
    ...common,
    isFeature: true,
    check: "psi",
    column: "region",
    measured: 1.13,
    limit: 1,
    bins,
  };
  expect(resultLines(storedVerdict([fallen]), "hold")[0]).toContain(`region: ${text} in `);
});

test("a new value that has no name in the profile is said to have none, and why", () => {
  const numbers = { value: "of fewer than 20 rows", bin: 7 };
  const unseen: CheckResult = {
    ...common,
    check: "unseen_value",
    column: "region",
    measured: 0.03,
    limit: 0.01,
    numbers,
  };
  expect(resultLines(storedVerdict([unseen]), "hold")[0]).toMatch(
    "region: a value without a name (of fewer than 20 rows), which no earlier run had, in 3% of the rows",
  );
});

test("columns that only warn are named with their PSI, or else with a check, the largest PSI first", () => {
  const of = (column: string, about: Partial<CheckResult>): CheckResult => ({
    ...common,
    check: "psi",
    measured: 0,
    limit: 1,
    column,
    level: "warn",
    ...about,
  });
  const results: CheckResult[] = [
    of("score", { check: "ranks", measured: 0.2 }),
    of("age", { check: "quantiles", measured: 3, isFeature: true }),
    of("age", { check: "psi", measured: 0.854, isFeature: true }),
    of("tenure", { check: "psi", measured: 0.9, isFeature: true }),
    of("weight", { check: "psi", measured: 2, level: "hold", isFeature: true }),
    of("weight", { check: "quantiles", measured: 2, isFeature: true }),
    { ...common, check: "rows", column: null, level: "warn", measured: 0.7, limit: 0.8 },
    of("fine", { check: "psi", measured: 0.1, level: "pass" }),
  ];
  expect(warnedText(results)).toBe("3 more columns only warn: tenure (PSI 0.9), age (PSI 0.854), score (`ranks`)");
  expect(warnedText(results.slice(1, 3))).toBe("1 more column only warns: age (PSI 0.854)");
  expect(warnedText(results.slice(4))).toBeUndefined();
  const many = Array.from({ length: 12 }, (_, index) => of(`c${index}`, { check: "psi", measured: 1 - index / 100 }));
  expect(warnedText(many)).toMatch(/^12 more columns only warn: c0 \(PSI 1\), .*c9 \(PSI 0\.91\), and 2 others$/);
});
