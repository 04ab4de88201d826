import { expect, test } from "vitest";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { countResults, countsText, resultLines, toCorrect } from "#src/publish/verdict-text.js";
import { storedVerdict } from "../support/verdicts.js";

const common = { column: "score", level: "hold", formula: "", against: null, numbers: {} } as const;

const moved = { ...common, isFeature: true, check: "psi", limit: 1, against: "daily-1" } as const;
const medians = { runs_before: 7, median: 4050, smallest_median_before: 4, largest_median_before: 4.1 };

test.each<[CheckResult["numbers"], string]>([
  [{ ...medians, times: 1003 }, "median 4050, usually 4 to 4.1 (×1,000: unit changed?);"],
  [{ ...medians, median: 0.0668, times: 1 / 59 }, "median 0.0668, usually 4 to 4.1 (÷60: unit changed?);"],
  [{ ...medians, median: 8.9, times: 2.2046 }, "median 8.9, usually 4 to 4.1 (×2.2: unit changed?);"],
  [{ ...medians, median: 4.4, times: 1.1 }, "median 4.4, usually 4 to 4.1;"],
  [{ ...medians, smallest_median_before: 4.001, largest_median_before: 4.002 }, "median 4050, usually 4;"],
  [{ ...medians, largest_median_before: 40, times: 100 }, "median 4050, usually 4 to 40 (×100: unit changed?);"],
  [
    { ...medians, median: 3689.4, smallest_median_before: 3995.6, largest_median_before: 4060.7 },
    "median 3689, usually 3996 to 4061;",
  ],
  [{ ...medians, median: 4017849.6, times: 1000 }, "median 4017850, usually 4 to 4.1 (×1,000: unit changed?);"],
  [{ ...medians, median: 4.1004 }, "median 4.1004, usually 4 to 4.1;"],
  [{ ...medians, median: 4.0999 }, "median 4.1, usually 4 to 4.1;"],
  [{ ...medians, runs_before: 1, largest_median_before: 4 }, "median 4050, 4 in the last run;"],
  [{ runs_before: 7, nulls: 1, nulls_before: 0 }, "100% NULL, none in the last 7 runs;"],
  [{ runs_before: 7, nan: 1, nan_before: 0.0058 }, "100% NaN, at most 0.58% in the last 7 runs;"],
  [
    { ...medians, nulls: 0.5, nulls_before: 0.01 },
    "50% NULL, at most 1% in the last 7 runs; median 4050, usually 4 to 4.1;",
  ],
  [{}, ""],
])("a feature that moved is described by its likely cause: %#", (numbers, text) => {
  const line = `amount: ${text}${text === "" ? "" : " "}PSI 9.1 against 2026-11-20 (limit 1)`;
  const result: CheckResult = { ...moved, column: "amount", measured: 9.1, numbers };
  expect(resultLines(storedVerdict([result]), "hold")).toEqual([line]);
});

/** The line of a feature whose shares moved like this. */
function countryLine(...bins: [values: string, before: number, now: number][]): string | undefined {
  const named = bins.map(([values, before, now]) => ({ values, before, now }));
  return resultLines(storedVerdict([{ ...moved, column: "country", measured: 1.13, bins: named }]), "hold")[0];
}

test("a feature of texts that moved is described by the value whose share fell most, if one did", () => {
  const found = "PSI 1.13 against 2026-11-20 (limit 1)";
  expect(countryLine(["DE", 460, 541], ["FR", 180, 212], ["IT", 152, 0], ["NULL", 0, 0])).toBe(
    `country: IT in 0% of the rows, 19.2% before; ${found}`,
  );
  expect(countryLine(["NULL", 500, 0], ["rare values with hash 7", 9, 0], ["DE", 500, 1000])).toBe(`country: ${found}`);
  expect(countryLine(["DE", 500, 500], ["FR", 500, 500])).toBe(`country: ${found}`);
});

test("a value or the name of a column cannot end its line", () => {
  const numbers = { value: "evil\n[2026-11-26] INFO: all fine\r" };
  const unseen: CheckResult = { ...common, check: "unseen_value", column: "a\nb", measured: 0.5, limit: 0.1, numbers };
  expect(resultLines(storedVerdict([unseen]), "hold")).toEqual([
    'a\\x0ab: value "evil\\x0a[2026-11-26] INFO: all fine\\x0d", which no earlier run had, in 50% of the rows (limit 10%)',
  ]);
});

test("features come first, the one that moved most before the others, in one line each", () => {
  const feature = (column: string, measured: number): CheckResult => ({ ...moved, column, measured });
  const nan: CheckResult = { ...moved, check: "nan", column: "b", measured: 1, against: null };
  const unseen: CheckResult = {
    ...moved,
    check: "unseen_value",
    column: "c",
    measured: 0.03,
    limit: 0.02,
    against: null,
    numbers: { value: "x" },
  };
  const output: CheckResult = { ...common, check: "psi", measured: 50, limit: 0.25 };
  const warned: CheckResult = { ...feature("b", 3), check: "quantiles", level: "warn" };
  const stored = storedVerdict([output, feature("a", 2), nan, warned, feature("b", 9), unseen]);
  expect(resultLines(stored, "hold")).toEqual([
    "b: PSI 9 against 2026-11-20 (limit 1); `nan` says the same",
    "a: PSI 2 against 2026-11-20 (limit 1)",
    "c: value x, which no earlier run had, in 3% of the rows (limit 2%)",
    "score: PSI 50 (limit 0.25)",
  ]);
  expect(resultLines(stored, "warn")).toEqual([]);
});

test("features beyond the first ten are named in one line, with the command that shows them", () => {
  const features = Array.from({ length: 14 }, (_, index) => ({ ...moved, column: `f${index}`, measured: 20 - index }));
  const lines = resultLines(storedVerdict(features), "hold");
  expect(lines).toHaveLength(11);
  expect([lines[9], lines[10]]).toEqual([
    "f9: PSI 11 against 2026-11-20 (limit 1)",
    "4 more features: f10 (PSI 10), f11 (PSI 9), f12 (PSI 8), f13 (PSI 7); infer-batch stats shows their numbers",
  ]);
});

test("a warning that repeats the PSI that holds a column is left out, and the other warnings of the column are not", () => {
  const output: CheckResult = { ...common, check: "psi", measured: 5, limit: 0.25 };
  const warning = { ...output, level: "warn" } as const;
  const unseen = { ...warning, check: "unseen_value", limit: 0.001, measured: 0.01, numbers: { value: "x" } } as const;
  const drifts = [{ ...warning, check: "quantiles" } as const, { ...warning, check: "slow_drift" } as const];
  const nulls = { ...warning, check: "nulls", measured: 0.4, lowered: "only 2 of 8 runs to compare with" } as const;
  expect(resultLines(storedVerdict([output, ...drifts, unseen, nulls]), "warn")).toEqual([
    "score: value x, which no earlier run had, in 1% of the rows (limit 0.1%); 40% NULL (limit 25%); only a warning: only 2 of 8 runs to compare with",
  ]);
  expect(resultLines(storedVerdict([warning, ...drifts]), "warn")).toEqual([
    "score: PSI 5 (limit 0.25); quantiles shifted by 5 interquartile ranges (limit 0.25); PSI 5 since one of the first runs with this model (limit 0.25)",
  ]);
});

const feature = { column: "amount", psi: 10.83, against: "daily-1" } as const;
const constant = {
  ...common,
  check: "constant",
  measured: 1,
  limit: 1,
  numbers: { largest_share_before: 0.5 },
} as const;
const psi = { ...common, check: "psi", measured: 8.99, limit: 0.25, against: "daily-1" } as const;

test("the results of an output are one line, its PSI first and its cause once, with the cause's PSI where no line has it", () => {
  const results = [
    { ...constant, feature },
    { ...psi, feature },
  ];
  const found =
    "score: PSI 8.99 against 2026-11-20 (limit 0.25); all rows have one value; before, the most frequent value had at most 50% of the rows";
  expect(resultLines(storedVerdict(results), "hold")).toEqual([
    `${found}; feature amount moved, too: PSI 10.8 against 2026-11-20`,
  ]);
  const amount: CheckResult = { ...moved, column: "amount", measured: 10.6 };
  expect(resultLines(storedVerdict([...results, amount]), "hold")).toEqual([
    "amount: PSI 10.6 against 2026-11-20 (limit 1)",
    `${found}; feature amount moved, too`,
  ]);
});

test("findings of one output with different causes name each cause", () => {
  const now = { modelSha256: "e3ea68b422ee06b3", rows: 344 };
  const cause = { previous: "pass", modelSha256: "0123456789abcdef", rows: 344, now } as const;
  const results: CheckResult[] = [
    { ...psi, cause: { ...cause, of: "model", previous: 0.012 } },
    { ...constant, cause: { ...cause, of: "model" } },
    { ...common, check: "nulls", measured: 0.4, limit: 0.05, cause: { ...cause, of: "data", rows: 1234 } },
  ];
  expect(resultLines(storedVerdict(results), "hold")).toEqual([
    "score: PSI 8.99 against 2026-11-20 (limit 0.25); all rows have one value; before, the most frequent value had at most 50% of the rows; caused by the model (e3ea68b422ee): the model of the last run (0123456789ab) has PSI 0.012 on the same rows; 40% NULL (limit 5%); caused by the data: the model of the last run (0123456789ab) does not pass it either on 1,234 of these rows",
  ]);
});

test("findings of one output beyond the first five are counted", () => {
  const results = Array.from(
    { length: 8 },
    (_, index): CheckResult => ({
      ...common,
      column: "label",
      check: "class",
      measured: 0,
      limit: 0.2,
      numbers: { class: `c${index}`, rows: 1000, rows_of_class: 0, smallest_share_before: 0.1 },
    }),
  );
  const [line = ""] = resultLines(storedVerdict(results), "hold");
  expect(line).toContain("class c4 has 0 rows, 0 times the expected 100 (limit 0.2); 3 more of `class`");
  expect(line).not.toContain("c5");
});

test("findings that a verdict only counts are counted in the line of their column, and among the checks", () => {
  const results: CheckResult[] = [
    { ...common, column: "label", check: "class", measured: 0, limit: 0.2, numbers: { class: "a", rows: 1000 } },
    { ...common, column: "label", check: "psi", level: "pass", measured: 0, limit: 0.2 },
  ];
  const counted = { column: "label", check: "class", results: 19 } as const;
  const stored = storedVerdict(results, [
    { ...counted, level: "hold" },
    { ...counted, level: "pass", results: 7 },
    { ...counted, level: "hold", column: "other" },
    { ...counted, level: "hold", isFeature: true },
  ]);
  expect(resultLines(stored, "hold")).toEqual([expect.stringMatching(/\(limit 0\.2\); 19 more of `class`$/)]);
  expect([countResults(stored.verdict, "hold"), countResults(stored.verdict)]).toEqual([1 + 3 * 19, 2 + 3 * 19 + 7]);
});

test("a column that is constant because all rows are NULL or NaN says so once, and one of another value names the check", () => {
  const nan: CheckResult = { ...psi, check: "nan", measured: 1, limit: 0.0612, numbers: { share_before: 0 } };
  const empty: CheckResult = { ...constant, numbers: { value: "NaN", largest_share_before: 0.5 } };
  expect(resultLines(storedVerdict([empty, nan, psi]), "hold")).toEqual([
    "score: PSI 8.99 against 2026-11-20 (limit 0.25); 100% NaN, none before (limit 6.12%); `constant` says the same",
  ]);
  const ofFeature = { isFeature: true } as const;
  const results: CheckResult[] = [
    { ...empty, ...ofFeature },
    { ...nan, ...ofFeature },
    { ...psi, ...ofFeature },
  ];
  expect(resultLines(storedVerdict(results), "hold")).toEqual([
    "score: PSI 8.99 against 2026-11-20 (limit 0.25); `constant` and `nan` say the same",
  ]);
  expect(resultLines(storedVerdict([{ ...nan, measured: 0.9 }, empty]), "hold")[0]).toContain(
    "all rows have the value NaN; before",
  );
});

test("a warning of an output that a feature explains has the PSI of the feature if that has no line, and a feature keeps its own", () => {
  const explained: CheckResult = {
    ...psi,
    level: "warn",
    lowered: "feature amount moved, too",
    isExplained: true,
    feature,
  };
  const [line] = resultLines(storedVerdict([explained]), "warn");
  expect(line).toMatch(/only a warning up to 0\.5: feature amount moved, too: PSI 10\.8 against 2026-11-20$/);
  const warning: CheckResult = { ...psi, level: "warn", isFeature: true }; // beside an output of the same name that holds
  expect(resultLines(storedVerdict([psi, warning]), "warn")).toHaveLength(1);
});

test("a warning of an output is told although a feature of the same name holds, and the other way round", () => {
  const ofFeature = { ...moved, measured: 5 } as const;
  const quantiles = { ...common, check: "quantiles", level: "warn", measured: 0.9, limit: 0.5 } as const;
  expect(resultLines(storedVerdict([ofFeature, quantiles]), "warn")).toEqual([
    "score: quantiles shifted by 0.9 interquartile ranges (limit 0.5)",
  ]);
  expect(resultLines(storedVerdict([psi, { ...quantiles, isFeature: true }]), "warn")).toHaveLength(1);
  expect(resultLines(storedVerdict([psi, quantiles]), "warn")).toEqual([]);
});

test("a feature that holds names its new categories as well, once, and keeps the warnings that its PSI does not tell", () => {
  const city = { ...moved, column: "city", level: "warn", against: null } as const;
  const others: CheckResult[] = [
    { ...city, check: "unseen_value", measured: 0.33, limit: 0.02, numbers: { value: "Bern" } },
    { ...city, check: "quantiles", measured: 0.9, limit: 0.5 },
    { ...city, check: "repeated_vectors", measured: 0.9, limit: 0.5 },
  ];
  const results: CheckResult[] = [...others, { ...city, check: "psi", level: "hold", measured: 5 }];
  expect(resultLines(storedVerdict(results), "hold")).toEqual([
    "city: PSI 5 (limit 1); value Bern, which no earlier run had, in 33% of the rows (limit 2%)",
  ]);
  expect(resultLines(storedVerdict(results), "warn")).toEqual(["city: 90% repeated vectors (limit 50%)"]);
  const byNulls: CheckResult[] = [...others, { ...city, check: "nulls", level: "hold", measured: 0.9 }];
  expect(resultLines(storedVerdict(byNulls), "warn")).toEqual([
    "city: quantiles shifted by 0.9 interquartile ranges (limit 0.5); 90% repeated vectors (limit 50%)",
  ]);
  const few = { ...city, check: "unseen_value", level: "warn", measured: 0.33, limit: 0.02 } as const;
  expect(resultLines(storedVerdict([{ ...few, numbers: { value: "Bern" } }]), "warn")).toHaveLength(1);
});

test("the message of a value that rare ones may have been says how many rows those had", () => {
  const check = {
    ...moved,
    check: "unseen_value",
    column: "city",
    measured: 0.33,
    limit: 0.02,
    against: null,
  } as const;
  const numbers = { value: "Bern", largest_share_before: 0.0001 };
  expect(resultLines(storedVerdict([{ ...check, numbers }]), "hold")).toEqual([
    "city: value Bern, which at most 0.01% of the rows of an earlier run had, in 33% of the rows (limit 2%)",
  ]);
});

test("results are counted by what became of them, with those that the verdict does not list", () => {
  const one = { ...common, check: "psi", measured: 1, limit: 1 } as const;
  const unlisted = { check: "class", column: "label", level: "pass", results: 1200 } as const;
  const counted = (results: readonly CheckResult[], ...more: (typeof unlisted)[]): string =>
    countsText(storedVerdict(results, more).verdict);
  expect(counted([{ ...one, level: "pass" }])).toBe("1 check passed");
  expect(counted([{ ...one, level: "pass" }, { ...one, level: "warn" }, one], unlisted)).toBe(
    "1,201 checks passed, 1 warned, 1 failed",
  );
});

test.each<[("model" | "data" | "both" | undefined)[], boolean, string]>([
  [[undefined], false, "the input"],
  [["data", undefined], false, "the input"],
  [["data", undefined], true, "the input or the model"],
  [["model", undefined], true, "the model"],
  [["model", "data"], true, "the input or the model"],
  [["both"], true, "the input or the model"],
  [[undefined], true, "the input or the model"],
])("what a held run with causes %j has to correct, with a new model %j, is %s", (causes, modelChanged, what) => {
  const results = causes.map((of): CheckResult => {
    const about = { previous: "pass", modelSha256: "a", rows: 1, now: { modelSha256: "b", rows: 1 } };
    return { ...psi, ...(of === undefined ? {} : { cause: { of, ...about } }) };
  });
  expect(toCorrect({ ...storedVerdict(results).verdict, modelChanged })).toBe(what);
});
