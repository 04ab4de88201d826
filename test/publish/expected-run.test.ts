import { expect, test } from "vitest";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { resultLines } from "#src/publish/verdict-text.js";
import { storedVerdict } from "../support/verdicts.js";

const lowered = "expected on 2026-11-27: Black Friday; later runs are not compared with this one";
const psi: CheckResult = {
  check: "psi",
  column: "score",
  level: "warn",
  measured: 9,
  limit: 0.25,
  formula: "",
  against: "daily-1",
  numbers: {},
};
const expected: CheckResult = { ...psi, lowered, isExcused: true };
const found = "PSI 9 against 2026-11-20 (limit 0.25)";

test("only the first warning of a run that expect names has the reason, also after warnings of other kinds", () => {
  const results: CheckResult[] = [
    { ...psi, column: "age", isFeature: true, measured: 10, lowered: "only 3 of 8 runs to compare with" },
    expected,
    { ...expected, check: "nulls", measured: 0.5 },
    { ...expected, column: "other" },
    { ...expected, column: "amount", isFeature: true },
  ];
  expect(resultLines(storedVerdict(results), "warn")).toEqual([
    "age: PSI 10 against 2026-11-20 (limit 0.25); only a warning: only 3 of 8 runs to compare with",
    `amount: ${found}; only a warning: ${lowered}`,
    expect.stringMatching(/^score: PSI 9 against 2026-11-20 \(limit 0\.25\); 50% .*\); only a warning, as expected$/),
    `other: ${found}; only a warning, as expected`,
  ]);
});

test("a line with a warning in between names the reason once", () => {
  const results: CheckResult[] = [
    expected,
    { ...psi, check: "nulls", measured: 0.5 },
    { ...expected, check: "nan", measured: 0.4 },
  ];
  const [line = ""] = resultLines(storedVerdict(results), "warn");
  expect(line.split(lowered)).toHaveLength(2);
  expect(line).toMatch(/; only a warning, as expected$/);
});

test("the reason is not lost with a feature that has no line of its own", () => {
  const features = Array.from({ length: 11 }, (_, index): CheckResult => {
    const isLast = index === 10;
    return { ...(isLast ? expected : psi), column: `f${index}`, isFeature: true, measured: isLast ? 1 : 20 - index };
  });
  expect(resultLines(storedVerdict([...features, expected]), "warn").at(-1)).toBe(
    `score: ${found}; only a warning: ${lowered}`,
  );
});
