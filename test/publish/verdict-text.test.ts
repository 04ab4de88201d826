import { expect, test } from "vitest";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import type { RunVerdict } from "#src/publish/run-verdict.js";
import { resultLines } from "#src/publish/verdict-text.js";

const dates = { "daily-1": "2026-11-20" };
const common = { column: "score", level: "hold", formula: "", against: null, numbers: {} } as const;

test.each<[CheckResult, string]>([
  [
    { ...common, check: "psi", measured: 1.3041, limit: 0.25, against: "daily-1" },
    "score: PSI 1.3 against 2026-11-20 (limit 0.25)",
  ],
  [
    { ...common, column: null, check: "rows", measured: 0.11312, limit: 0.7, numbers: { rows: 50 } },
    "50 rows, 0.113 times the usual number (limit 0.7)",
  ],
  [
    { ...common, column: null, check: "rejects", measured: 0.0512, limit: 0.01 },
    "5.12% of the rows were rejected (limit 1%)",
  ],
  [
    { ...common, column: "label", check: "in", measured: 2, limit: 0, numbers: { x: 3, y: 1 } },
    "label: values that are not in the list: x, y (limit 0)",
  ],
  [{ ...common, check: "range", measured: 1.5, limit: 1 }, "score: value 1.5 is out of range (limit 1)"],
  [
    { ...common, check: "column", measured: "none", limit: "float32", against: "daily-1" },
    "score: type none against 2026-11-20 (limit float32)",
  ],
  [
    { ...common, level: "warn", check: "psi", measured: 0.4, limit: 0.25, lowered: "only 2 of 8 runs to compare with" },
    "score: PSI 0.4 (limit 0.25); only a warning: only 2 of 8 runs to compare with",
  ],
])("a result is told as a line that people understand: %#", (result, line) => {
  const verdict = {
    outcome: "hold",
    runId: "r",
    date: "",
    baseline: [],
    modelChanged: false,
    results: [result],
  } as const;
  const stored: RunVerdict = { verdict, dates, thresholds: {}, writer: "w", at: "" };
  expect(resultLines(stored, result.level)).toEqual([line]);
});
