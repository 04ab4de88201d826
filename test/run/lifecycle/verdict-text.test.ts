import { expect, test } from "vitest";
import type { Finding } from "#src/checks/check.js";
import type { RunVerdict } from "#src/run/lifecycle/lifecycle.js";
import {
  columnNotes,
  countsText,
  knownText,
  resultLines,
  toCorrect,
  warnedText,
} from "#src/run/lifecycle/verdict-text.js";

/** A verdict with these results as a target stores it. The run `daily-1` is of 2026-11-20. */
function storedVerdict(results: readonly Finding[]): RunVerdict {
  const verdict = {
    outcome: "hold",
    runId: "r",
    date: "",
    baseline: [],
    modelChanged: false,
    results,
    known: 14,
    growing: [],
  } as const;
  return { verdict, dates: { "daily-1": "2026-11-20" }, thresholds: {}, writer: "w", at: "" };
}

const nulls: Finding = {
  check: "nulls",
  column: "score",
  level: "hold",
  measured: 0.4,
  limit: 0.08,
  against: "daily-1",
  numbers: { share: 0.4, noun: "NULL", most: 0.01, nearest: 0 },
};
const feature = (column: string, measured: number): Finding => ({ ...nulls, column, measured, isFeature: true });
const rows: Finding = { ...nulls, check: "rows", column: null, numbers: { rows: 482, nearest: 1000 } };
const lines = (results: readonly Finding[], level: Finding["level"] = "hold"): string[] =>
  resultLines(storedVerdict(results), level);

test("the run comes first, then the feature that is farthest, then outputs, which name the features that moved", () => {
  const found = "40% NULL; before, at most 1%";
  expect(lines([nulls, feature("near", 0.1), feature("far", 0.4), rows])).toEqual([
    "482 rows; the nearest night had 1,000 (2026-11-20), 48.2% of it",
    `far: ${found}`,
    `near: ${found}`,
    `score: ${found}; far and near moved, too`,
  ]);
});

test("keys that repeat have no cause in features that moved", () => {
  const unique: Finding = { ...nulls, check: "unique", column: "id", numbers: { repeated: 9, nulls: 0 } };
  expect(lines([unique, feature("far", 0.4)]).at(-1)).toBe("id: 9 rows repeat a key");
});

test("a sign that says less than another one of its column is not told", () => {
  const constant: Finding = { ...nulls, check: "constant", numbers: { empty: 1, nights: 3 } };
  expect(lines([constant, nulls])).toEqual(["score: no row has a value; that never was"]);
});

test("a reason why lines only warn comes once", () => {
  const lowered = "expected to differ: Black Friday";
  const warned = [nulls, { ...nulls, column: "other" }].map((finding) =>
    Object.assign({}, finding, { level: "warn", lowered }),
  );
  expect(lines(warned as Finding[], "warn")).toEqual([
    "score: 40% NULL; before, at most 1%; only a warning: expected to differ: Black Friday",
    "other: 40% NULL; before, at most 1%; only a warning, too",
  ]);
});

test("columns beyond the first ten are named in one line", () => {
  const many = Array.from({ length: 14 }, (_, index) => feature(`f${index}`, 20 - index));
  expect(lines(many)).toHaveLength(11);
  expect(lines(many).at(-1)).toBe("4 more: f10, f11, f12, f13");
});

test("a value or the name of a column cannot end its line", () => {
  const unseen: Finding = {
    ...nulls,
    check: "unseen",
    column: "a\nb",
    numbers: { share: 0.5, usual: 0, value: "evil\nINFO" },
  };
  expect(lines([unseen])).toEqual([
    "a\\x0ab: 50% of the rows have values that no earlier night had, such as evil\\x0aINFO; usually at most 0%",
  ]);
});

test("counts, warnings beside what holds, known nights and growing columns are told", () => {
  const { verdict } = storedVerdict([nulls, { ...nulls, column: "b", level: "warn" }, { ...rows, level: "pass" }]);
  expect(countsText(verdict)).toBe("1 check passed, 1 warned, 1 failed");
  expect(warnedText(verdict)).toBe("1 more column only warns: b");
  expect([knownText(verdict, undefined), knownText({ ...verdict, known: 3 }, undefined)]).toEqual([
    undefined,
    "3 of 14 nights known: what differs little is not noticed yet",
  ]);
  expect(columnNotes({ ...verdict, growing: ["id"] })).toEqual([
    "id has only grown from run to run, so it is not compared",
  ]);
});

test.each<[Partial<Finding>, boolean, string]>([
  [{}, false, "the input"],
  [{}, true, "the input or the model"],
  [{ cause: { of: "model", previous: 0, modelSha256: "b", rows: 9 } }, true, "the model"],
  [{ check: "range" }, false, "the input or the spec"],
])("what to correct: %j with a new model %s is %s", (about, modelChanged, text) => {
  const { verdict } = storedVerdict([{ ...nulls, ...about }]);
  expect(toCorrect({ ...verdict, modelChanged })).toBe(text);
});
