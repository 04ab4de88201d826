import { expect, test } from "vitest";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { resultLines } from "#src/publish/verdict-text.js";
import { storedVerdict } from "../support/verdicts.js";

const common = { column: "score", level: "hold", formula: "", against: null, numbers: {} } as const;

const twoRuns = { compared: "last runs", nights: "a: 1, b: 1", min: 0.7, max: 5 };
const outside = { rows_outside_least: 3, rows_outside_most: 3 };

test.each<[CheckResult, string]>([
  [
    { ...common, check: "psi", measured: 1.3041, limit: 0.25, against: "daily-1" },
    "score: PSI 1.3 against 2026-11-20 (limit 0.25)",
  ],
  [
    { ...common, check: "psi", measured: 0.6, limit: 0.5, numbers: { runs_together: 8 } },
    "score: PSI 0.6 against the last 8 runs together (limit 0.5)",
  ],
  [
    { ...common, check: "ranks", measured: 0.126, limit: 0.1, numbers: { runs_together: 8 } },
    "score: distance of ranks 0.126 from the last 8 runs together (limit 0.1)",
  ],
  [
    { ...common, check: "ranks", measured: 0.126, limit: 0.1, numbers: { runs_together: 1 } },
    "score: distance of ranks 0.126 from the last run (limit 0.1)",
  ],
  [
    {
      ...common,
      column: null,
      check: "rows",
      measured: 0.11312,
      limit: 0.7,
      numbers: { rows: 50, least: 442, ...twoRuns },
    },
    "50 rows, 11.3% of 442, the fewest of the last 2 runs (rows.min: 70%)",
  ],
  [
    {
      ...common,
      column: null,
      check: "rows",
      measured: 0.01,
      limit: 0.7,
      numbers: { rows: 1, least: 100, ...twoRuns },
    },
    "1 row, 1% of 100, the fewest of the last 2 runs (rows.min: 70%)",
  ],
  [
    {
      ...common,
      column: null,
      check: "rows",
      measured: 0,
      limit: 0.7,
      numbers: { rows: 0, least: 5000, most: 5200, ...twoRuns },
    },
    "0 rows, 0% of 5,000, the fewest of the last 2 runs (rows.min: 70%)",
  ],
  [
    {
      ...common,
      column: null,
      check: "rows",
      measured: 0.9,
      limit: 1,
      numbers: { rows: 900, least: 1000, most: 1000, min: 1, max: 1, compared: "last runs", nights: "a: 1, b: 1" },
    },
    "900 rows, 90% of 1,000, the fewest of the last 2 runs (rows.min: 100%)",
  ],
  [
    {
      ...common,
      column: null,
      check: "rows",
      measured: 6,
      limit: 5,
      numbers: { rows: 6000, least: 400, most: 1000, ...twoRuns },
    },
    "6,000 rows, 600% of 1,000, the most of the last 2 runs (rows.max: 500%)",
  ],
  [
    {
      ...common,
      column: null,
      check: "rows",
      measured: "infinitely many",
      limit: 5,
      numbers: { rows: 7, least: 0, most: 0, ...twoRuns },
    },
    "7 rows, the most of the last 2 runs had 0 (rows.max: 500%)",
  ],
  [
    { ...common, column: null, check: "rejects", measured: 0.0512, limit: 0.01 },
    "5.12% of the rows were rejected (limit 1%)",
  ],
  [
    { ...common, column: "label", check: "in", measured: 2, limit: 0, numbers: { x: 3, "": 1 } },
    'label: values that are not in the list: x (3 rows), "" (1 row)',
  ],
  [
    {
      ...common,
      check: "class",
      measured: 0.0052,
      limit: 0.2,
      numbers: { class: "churn", rows_of_class: 10, rows: 5000, smallest_share_before: 0.3822 },
    },
    "score: class churn has 10 rows, 0.0052 times the expected 1,911 (limit 0.2)",
  ],
  [
    {
      ...common,
      check: "class",
      measured: 0.0052,
      limit: 0.2,
      against: "daily-1",
      numbers: { class: "churn", rows_of_class: 10, rows: 5000, smallest_share_before: 0.3822 },
    },
    "score: class churn has 10 rows, 0.0052 times the 1,911 expected by its share on 2026-11-20 (limit 0.2)",
  ],
  [
    { ...common, check: "constant", measured: 1, limit: 1, numbers: { largest_share_before: 0.6134 } },
    "score: all rows have one value; before, the most frequent value had at most 61.3% of the rows",
  ],
  [
    {
      ...common,
      check: "constant",
      measured: 1,
      limit: 1,
      against: "daily-1",
      numbers: { value: "DE", largest_share_before: 0.0696 },
    },
    "score: all rows have the value DE; before, the most frequent value had at most 6.96% of the rows (2026-11-20)",
  ],
  [
    {
      ...common,
      check: "constant",
      measured: 1,
      limit: 1,
      against: "daily-1",
      numbers: { largest_share_before: 0.2406, least_values_before: 437 },
    },
    "score: all rows have one value; before, the most frequent value had at most 24.1% of the rows (2026-11-20: at least 437 different values)",
  ],
  [
    { ...common, check: "constant", measured: 1, limit: 1, numbers: { value: "", largest_share_before: 0.6134 } },
    'score: all rows have the value ""; before, the most frequent value had at most 61.3% of the rows',
  ],
  [
    { ...common, check: "unseen_value", measured: 0.5, limit: 0.02, numbers: { value: "" } },
    'score: value "", which no earlier run had, in 50% of the rows (limit 2%)',
  ],
  [
    {
      ...common,
      column: "twice",
      check: "sql",
      measured: "false",
      limit: "sum(case when a then 1 end) <\n sum(case when b then 1 end)",
      numbers: { "sum(CASE WHEN a THEN 1 END)": 3, "sum(CASE WHEN b THEN 1 END)": 2, "count(*)": 8 },
    },
    "twice: sum(case when a then 1 end) < sum(case when b then 1 end) is false: sum(CASE WHEN a THEN 1 END) is 3, sum(CASE WHEN b THEN 1 END) is 2, count(*) is 8",
  ],
  [
    {
      ...common,
      check: "range",
      measured: 1.5,
      limit: 1,
      numbers: { rows_outside_least: 1131, rows_outside_most: 1131 },
    },
    "score: 1,131 rows are out of range, up to 1.5 (limit 1)",
  ],
  [
    { ...common, check: "range", measured: -2, limit: 0, numbers: { rows_outside_least: 1, rows_outside_most: 1 } },
    "score: 1 row is out of range, down to -2 (limit 0)",
  ],
  [
    { ...common, check: "range", measured: 2, limit: 1, numbers: { rows_outside_least: 120, rows_outside_most: 1134 } },
    "score: at least 120 and at most 1,134 rows are out of range; the largest value is 2 (limit 1)",
  ],
  [
    { ...common, level: "warn", check: "slow_drift", measured: 0.3461, limit: 0.25, against: "daily-1" },
    "score: PSI 0.346 since 2026-11-20, one of the first runs with this model (limit 0.25)",
  ],
  [
    { ...common, check: "column", measured: "missing", limit: "float32", against: "daily-1" },
    "score: it is no longer in the output; it was float32 on 2026-11-20",
  ],
  [
    { ...common, isFeature: true, check: "column", measured: "missing", limit: "float32", against: "daily-1" },
    "score: the feature is gone; it was float32 on 2026-11-20",
  ],
  [
    { ...common, check: "nulls", measured: 0.4, limit: 0.0612, against: "daily-1", numbers: { share_before: 0.0102 } },
    "score: 40% NULL, at most 1.02% before, on 2026-11-20 (limit 6.12%)",
  ],
  [
    { ...common, check: "nan", measured: 1, limit: 0.0612, against: "daily-1", numbers: { share_before: 0 } },
    "score: 100% NaN, none before (limit 6.12%)",
  ],
  [
    { ...common, level: "warn", check: "unexplained", measured: 0.934, limit: 0.1, against: "daily-1" },
    "score: PSI 0.934 against 2026-11-20, which no feature explains (limit 0.1)",
  ],
  [
    { ...common, column: null, level: "warn", check: "stale", measured: 3, limit: 3, against: "daily-1" },
    "all 3 features have the same values as in the last run, of 2026-11-20: was the input refreshed?",
  ],
  [
    { ...common, check: "column", measured: "int64", limit: "float32", against: "daily-1" },
    "score: its type is int64; it was float32 on 2026-11-20",
  ],
  [
    {
      ...common,
      level: "warn",
      check: "column",
      isFeature: true,
      measured: "float32",
      limit: "missing",
      against: "daily-1",
    },
    "score: the run of 2026-11-20 did not have this feature, so it is not compared; nothing to do: later runs compare it",
  ],
  [
    {
      ...common,
      check: "psi",
      measured: 1.3041,
      limit: 0.25,
      against: "daily-1",
      feature: { column: "amount", psi: 9.123, against: "daily-1" },
    },
    "score: PSI 1.3 against 2026-11-20 (limit 0.25); feature amount moved, too: PSI 9.12 against 2026-11-20",
  ],
  [
    { ...common, level: "warn", check: "psi", measured: 0.4, limit: 0.25, lowered: "only 2 of 8 runs to compare with" },
    "score: PSI 0.4 (limit 0.25); only a warning: only 2 of 8 runs to compare with",
  ],
])("a result is shown as a line that people understand: %#", (result, line) => {
  expect(resultLines(storedVerdict([result]), result.level)).toEqual([line]);
});

test.each<[Partial<CheckResult> & Pick<CheckResult, "check" | "measured" | "limit">, string]>([
  [
    { check: "range", measured: 1.0000001192092896, limit: 1, numbers: outside },
    "score: 3 rows are out of range, up to 1.0000001 (limit 1)",
  ],
  [
    { check: "range", measured: 1234567, limit: 1234567.4, numbers: outside },
    "score: 3 rows are out of range, down to 1234567 (limit 1234567.4)",
  ],
  [
    { check: "range", measured: -1e-9, limit: 0, numbers: outside },
    "score: 3 rows are out of range, down to -1e-9 (limit 0)",
  ],
  [{ check: "nulls", measured: 0.050004, limit: 0.05 }, "score: 5.0004% NULL (limit 5%)"],
  [{ check: "psi", measured: 0.2503, limit: 0.25 }, "score: PSI 0.2503 (limit 0.25)"],
  [
    { check: "centroid", measured: 0.89995, limit: 0.9 },
    "score: cosine 0.89995 between the mean directions (limit 0.9)",
  ],
  [
    { check: "rows", column: null, measured: 0.69996, limit: 0.7, numbers: { rows: 69996, least: 100000, ...twoRuns } },
    "69,996 rows, 69.996% of 100,000, the fewest of the last 2 runs (rows.min: 70%)",
  ],
  [
    { check: "constant", measured: 1, limit: 1, numbers: { largest_share_before: 0.99996 } },
    "score: all rows have one value; before, the most frequent value had at most 99.996% of the rows",
  ],
])("a value close to its limit has as many digits as tell the two apart: %#", (result, line) => {
  expect(resultLines(storedVerdict([{ ...common, ...result }]), "hold")).toEqual([line]);
});
