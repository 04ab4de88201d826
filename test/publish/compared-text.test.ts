import { expect, test } from "vitest";
import type { CheckResult } from "#src/checks/verdicts/verdict.js";
import { coarseText, columnNotes, fewSampledText } from "#src/publish/compared-text.js";
import { resultLines, toCorrect } from "#src/publish/verdict-text.js";
import { storedVerdict } from "../support/verdicts.js";

const file = "training.json";

test("the note on a small sample names the file that a run is compared with", () => {
  expect(fewSampledText({ of: "earlier", sampled: 50, rows: 2000 }, file)).toBe(
    "features were compared without quantiles: the sample of training.json has only 50 of 2,000 rows, and quantiles need 1,000",
  );
  expect(fewSampledText({ of: "run", sampled: 41, rows: 2000 }, file)).toContain("the sample of this run has only 41");
});

test("notes on columns name the file that a run is compared with", () => {
  const verdict = {
    uncounted: [{ column: "label", checks: ["class"], run: "earlier" }],
  } as const;
  expect(columnNotes(verdict, file)).toEqual([
    "label had more different values in training.json than were counted one by one, so `class` does not compare them",
  ]);
  const coarse = { column: "x", run: "earlier", values: "2 to 8", rowsInBin: 953, rows: 1000 } as const;
  expect(coarseText(coarse, file)).toBe(
    "the PSI of x is coarse: 95.3% of the rows in training.json are in one bin, 2 to 8, and a change within it is not seen",
  );
});

const ofFile = { column: "score", level: "hold", formula: "", against: "training-1", numbers: {} } as const;
const moved = { ...ofFile, isFeature: true, check: "psi", measured: 9.1, limit: 1 } as const;
const movedNumbers = { runs_before: 1, median: 4050, smallest_median_before: 4, largest_median_before: 4 };

test.each<[CheckResult, string]>([
  [{ ...ofFile, check: "psi", measured: 1.3, limit: 0.25 }, "score: PSI 1.3 against training.json (limit 0.25)"],
  [
    { ...ofFile, check: "psi", measured: 1.3, limit: 0.25, against: null, numbers: { runs_together: 1 } },
    "score: PSI 1.3 against training.json (limit 0.25)",
  ],
  [
    { ...ofFile, check: "ranks", measured: 0.126, limit: 0.1, against: null, numbers: { runs_together: 1 } },
    "score: distance of ranks 0.126 from training.json (limit 0.1)",
  ],
  [
    { ...ofFile, check: "column", measured: "missing", limit: "float32" },
    "score: it is no longer in the output; it was float32 in training.json",
  ],
  [
    { ...ofFile, isFeature: true, check: "column", measured: "float32", limit: "missing" },
    "score: training.json does not have this feature, so it is not compared",
  ],
  [
    { ...ofFile, column: null, check: "stale", measured: 3, limit: 3 },
    "all 3 features have the same values as in training.json: does this run score the same rows?",
  ],
  [
    { ...ofFile, check: "unseen_value", measured: 0.5, limit: 0.1, against: null, numbers: { value: "x" } },
    "score: value x, which training.json does not have, in 50% of the rows (limit 10%)",
  ],
  [
    {
      ...ofFile,
      check: "unseen_value",
      measured: 0.5,
      limit: 0.1,
      against: null,
      numbers: { value: "x", largest_share_before: 0.01 },
    },
    "score: value x, which at most 1% of the rows in training.json had, in 50% of the rows (limit 10%)",
  ],
  [
    {
      ...ofFile,
      check: "constant",
      measured: 1,
      limit: 1,
      numbers: { largest_share_before: 0.24, least_values_before: 437 },
    },
    "score: all rows have one value; in training.json, the most frequent value had at most 24% of the rows (at least 437 different values)",
  ],
  [
    { ...ofFile, check: "nulls", measured: 0.4, limit: 0.0612, numbers: { share_before: 0.0102 } },
    "score: 40% NULL, 1.02% in training.json (limit 6.12%)",
  ],
  [
    { ...ofFile, check: "nan", measured: 1, limit: 0.0612, numbers: { share_before: 0 } },
    "score: 100% NaN, none in training.json (limit 6.12%)",
  ],
  [
    {
      ...ofFile,
      check: "class",
      measured: 0.0052,
      limit: 0.2,
      numbers: { class: "churn", rows_of_class: 10, rows: 5000, smallest_share_before: 0.3822 },
    },
    "score: class churn has 10 rows, 0.0052 times the 1,911 expected by its share in training.json (limit 0.2)",
  ],
  [
    { ...moved, numbers: movedNumbers },
    "score: median 4050, 4 in training.json; PSI 9.1 against training.json (limit 1)",
  ],
  [
    { ...moved, numbers: { ...movedNumbers, nulls: 0.5, nulls_before: 0.01 } },
    "score: 50% NULL, 1% in training.json; median 4050, 4 in training.json; PSI 9.1 against training.json (limit 1)",
  ],
  [
    {
      ...moved,
      bins: [
        { values: "DE", before: 460, now: 541 },
        { values: "IT", before: 540, now: 0 },
      ],
    },
    "score: IT in 0% of the rows, 54% in training.json; PSI 9.1 against training.json (limit 1)",
  ],
  [
    {
      ...ofFile,
      check: "psi",
      measured: 0.8,
      limit: 0.25,
      cause: {
        of: "model",
        previous: 0.012,
        modelSha256: "0b1a5e32c7f4aa",
        rows: 442,
        now: { modelSha256: "9f2c41d07b3eaa", rows: 1000 },
      },
    },
    "score: PSI 0.8 against training.json (limit 0.25); caused by the model (9f2c41d07b3e): the model of training.json (0b1a5e32c7f4) has PSI 0.012 on 442 of these rows",
  ],
])("what is compared with a file is said to be of that file, and not of an earlier run: %#", (result, line) => {
  const verdict = { ...storedVerdict([result]), dates: { "training-1": "training.json" } };
  expect(resultLines({ ...verdict, thresholds: { baseline: "training.json" } }, result.level)).toEqual([line]);
});

const result = { ...ofFile, check: "psi", measured: 1.3, limit: 0.25 } as const;

test.each<[Partial<CheckResult>, string]>([
  [{ check: "in" }, "the input or the spec"],
  [{ check: "rows", measured: 0, numbers: { filtered: 400 } }, "the input or the spec"],
  [{ check: "rows", measured: 0, numbers: {} }, "the input"],
  [{ check: "sql", measured: "false" }, "the input, the model or the spec"],
])("a held run with %j may have to correct %s", (changed, what) => {
  const { verdict } = storedVerdict([{ ...result, ...changed }]);
  expect(toCorrect({ ...verdict, modelChanged: changed.check === "sql" })).toBe(what);
});
