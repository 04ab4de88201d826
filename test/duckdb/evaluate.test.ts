import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openRowJoin } from "#src/job/duckdb.js";
import { parquetFolder } from "#src/job/reading.js";
import type { Figures } from "#src/checks/evaluation.js";
import { judgeSide } from "#src/run/two-sets.js";
import { projectFolder } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { writeRows } from "../support/parquet.js";

const folder = join(projectFolder, "fixtures/agreement");
const golden = JSON.parse(readFileSync(join(folder, "golden.json"), "utf8"));

type Request = Parameters<typeof judgeSide>[2];

const usual = { date: undefined, by: undefined, threshold: 0.5, positive: undefined };

async function judge(
  predictions: string,
  labels: string,
  request: Pick<Request, "key" | "label" | "prediction"> & Partial<Request>,
) {
  const [side, { rows }] = [await parquetFolder(predictions), await parquetFolder(labels)];
  const folders = [predictions, labels];
  await using joiner = await openRowJoin({ folders, threads: 2, memoryBytes: 2 ** 28 });
  const judged = await judgeSide(joiner, { side, labels: await joiner.load("b", rows) }, { ...usual, ...request });
  return judged ?? expect.fail("the run has no rows");
}

function expectFigures({ rows_judged: judged, values, calibration }: Figures, expected: Record<string, unknown>): void {
  const { rows_judged: rows, calibration: bins = [], by: _by, ...figures } = expected;
  expect(judged).toBe(rows);
  expect(Object.keys(values)).toEqual(Object.keys(figures));
  for (const [name, value] of Object.entries(figures)) {
    expect(Math.abs((values[name] ?? Number.NaN) - Number(value)), name).toBeLessThan(1e-9);
  }
  const given = bins as readonly Record<string, number>[];
  expect(calibration).toHaveLength(given.length);
  for (const [index, bin] of given.entries()) {
    expect(calibration[index]?.predicted).toBeCloseTo(Number(bin["predicted"]), 9);
    expect(calibration[index]?.observed).toBeCloseTo(Number(bin["observed"]), 9);
  }
}

test.each([
  ["a", "id"],
  ["a", "customer"],
  ["b", "id"],
])(
  "figures of a class of set %s by key %s are scikit-learn's, to 1e-9, of all rows and by slice",
  async (name, key) => {
    const request = { key: [key], label: "churned", prediction: "score", by: "region" };
    const {
      kind,
      all,
      by,
      keys_with_several_labels: repeated,
    } = await judge(join(folder, name), join(folder, "labels"), request);
    expect([kind, repeated]).toEqual(["classes", 0]);
    const expected = golden.classes[name];
    expectFigures(all, expected);
    expect(all.rows).toBe(golden.rows[`rows_${name}`]);
    expect(by.map(([slice]) => slice).toSorted()).toEqual(["north", "south", "west"]);
    for (const [slice, figures] of by) {
      expectFigures(figures, expected.by[slice]);
    }
  },
);

test.each(["a", "b"])("the errors of numbers of set %s are scikit-learn's, to 1e-9", async (name) => {
  const request = { key: ["id"], label: "spent", prediction: "amount" };
  const { kind, all } = await judge(join(folder, name), join(folder, "labels"), request);
  expect(kind).toBe("numbers");
  expectFigures(all, golden.amounts[name]);
});

test("labels of other dates and keys with several labels do not count, and texts are judged as right or wrong", async () => {
  const [predictions, labels] = [join(scratch.path, "predictions"), join(scratch.path, "labels")];
  await mkdir(predictions);
  await mkdir(labels);
  await writeRows(
    join(predictions, "one.parquet"),
    "SELECT * FROM (VALUES (1, 'a', 0.9::FLOAT), (2, 'b', 0.2), (3, 'a', 0.7), (NULL, 'a', 0.5)) AS t (id, label, score)",
  );
  await writeRows(
    join(labels, "one.parquet"),
    `SELECT id, ds::DATE AS ds, truth FROM (VALUES (1, '2026-11-20', 'a'), (2, '2026-11-20', 'a'), (1, '2026-11-19', 'b'),
      (3, '2026-11-20', 'a'), (3, '2026-11-20', 'b'), (NULL, '2026-11-20', 'a')) AS t (id, ds, truth)`,
  );
  const date = { column: "ds", value: "2026-11-20" };
  const texts = await judge(predictions, labels, { key: ["id"], label: "truth", prediction: "label", date });
  expect(texts).toMatchObject({
    kind: "labels",
    keys_with_several_labels: 1,
    all: { rows: 4, rows_labelled: 2, rows_judged: 2 },
  });
  expect(texts.all.values).toEqual({ accuracy: 0.5 });
  const classes = { key: ["id"], label: "truth", prediction: "score", date };
  await expect(judge(predictions, labels, classes)).rejects.toMatchObject({
    code: "USAGE",
    hint: expect.stringContaining("--positive"),
  });
  const named = await judge(predictions, labels, { ...classes, positive: "a" });
  // Without a row of the other class there is no AUC.
  expect(named.all.values).toMatchObject({ auc: Number.NaN, precision: 1, recall: 0.5 });
});

async function judgeRows(predictions: string, labels: string, request: Partial<Request> = {}) {
  const folders = [join(scratch.path, "predictions"), join(scratch.path, "labels")] as const;
  for (const [index, path] of folders.entries()) {
    await mkdir(path, { recursive: true });
    await writeRows(join(path, "rows.parquet"), [predictions, labels][index] ?? "");
  }
  return await judge(...folders, { key: ["id"], label: "y", prediction: "p", ...request });
}

const rowsOf = (column: string, type: string, values: readonly string[]): string =>
  values.map((value, id) => `SELECT ${id} AS id, ${value}::${type} AS ${column}`).join(" UNION ALL ");

const large = ["9007199254740993", "1", "0", "2"];

test.each([
  ["BIGINT", large, "DOUBLE", ["9007199254740992", "1", "0.4", "3"], 0.25],
  ["BIGINT", ["1", "0", "3", "123456792"], "FLOAT", ["1", "'nan'", "2.5", "123456792"], 2 / 3],
  ["BIGINT", large, "VARCHAR", ["'9007199254740993'", "'1.0'", "'false'", "'1'"], 0.75],
  ["BIGINT", large, "DECIMAL(20,2)", ["9007199254740993", "1", "0.40", "3"], 0.5],
  ["BIGINT", large, "UBIGINT", ["9007199254740992", "1", "0", "18446744073709551615"], 0.5],
  ["BIGINT", ["1", "0"], "BOOLEAN", ["true", "true"], 0.5],
  ["BOOLEAN", ["true", "false"], "DOUBLE", ["1", "1"], 0.5],
  ["VARCHAR", ["'1'", "'0'", "'maybe'"], "INTEGER", ["1", "1", "1"], 1 / 3],
  ["DATE", ["'2026-11-20'", "'2026-11-21'"], "VARCHAR", ["'2026-11-20 00:00:00'", "'2026-11-20'"], 0.5],
  ["VARCHAR", ["'2026-11-20'", "'soon'"], "DATE", ["'2026-11-20'", "'2026-11-20'"], 0.5],
] as const)("%s %j is judged by labels %s %j without rounding", async (predicted, p, labelled, y, accuracy) => {
  const { kind, all } = await judgeRows(rowsOf("p", predicted, p), rowsOf("y", labelled, y));
  expect([kind, all.values["accuracy"]]).toEqual(["labels", accuracy]);
});

test.each([
  ["BIGINT", "1", "VARCHAR", "'churned'"],
  ["BIGINT", "1", "DATE", "'2026-11-20'"],
  ["BOOLEAN", "true", "TIMESTAMP", "'2026-11-20'"],
  ["VARCHAR", "'churned'", "BIGINT", "1"],
  ["DATE", "'2026-11-20'", "VARCHAR", "'20/11/2026'"],
  ["DOUBLE", "0.5", "DATE", "'2026-11-20'"],
])("%s %s cannot equal labels %s %s", async (predicted, p, labelled, y) => {
  await expect(judgeRows(rowsOf("p", predicted, [p]), rowsOf("y", labelled, [y]))).rejects.toMatchObject({
    code: "USAGE",
    hint: expect.stringMatching(/--label|--positive/),
  });
});

test("a positive label is found as number or truth, and one that no label has is refused", async () => {
  const predictions = rowsOf("p", "DOUBLE", ["0.9", "0.2"]);
  const truths = rowsOf("y", "BOOLEAN", ["true", "false"]);
  for (const positive of ["1", "true"]) {
    const { all } = await judgeRows(predictions, truths, { positive });
    expect(all.values).toMatchObject({ auc: 1, precision: 1, recall: 1 });
  }
  const { all } = await judgeRows(predictions, rowsOf("y", "DOUBLE", ["1", "'nan'"]), { positive: "1" });
  expect(all).toMatchObject({ rows_labelled: 1 });
  for (const labels of [truths, rowsOf("y", "VARCHAR", ["'yes'", "'no'"])]) {
    await expect(judgeRows(predictions, labels, { positive: "churned" })).rejects.toMatchObject({
      code: "USAGE",
      message: expect.stringContaining("no label is churned"),
    });
  }
  expect((await judgeRows(predictions, rowsOf("y", "VARCHAR", ["NULL"]), { positive: "churned" })).kind).toBe(
    "classes",
  );
  await expect(judgeRows(rowsOf("p", "BIGINT", ["1"]), truths, { positive: "1" })).rejects.toMatchObject({
    code: "USAGE",
  });
});

test("a label that is NaN or infinite is none", async () => {
  const predictions = rowsOf("p", "DOUBLE", ["0.9", "0.2", "0.3", "0.4"]);
  const classes = await judgeRows(predictions, rowsOf("y", "DOUBLE", ["1", "0", "'nan'", "'inf'"]));
  expect(classes).toMatchObject({
    kind: "classes",
    all: { rows: 4, rows_labelled: 2, rows_judged: 2, values: { auc: 1 } },
  });
  const numbers = await judgeRows(predictions, rowsOf("y", "DOUBLE", ["1.9", "1.2", "'nan'", "'inf'"]));
  expect(numbers).toMatchObject({ kind: "numbers", all: { rows_labelled: 2, rows_judged: 2, values: { mae: 1 } } });
});

test("the kind is that of all labels, also for a date without any; times of a day are of its date", async () => {
  const predictions = rowsOf("p", "DOUBLE", ["0.9", "0.2"]);
  const labels = "SELECT 0 AS id, 5.5 AS y, TIMESTAMP '2026-11-20 23:30:00' AS ds";
  const night = async (value: string, column = "ds") =>
    await judgeRows(predictions, labels, { date: { column, value } });
  expect(await night("2026-11-20")).toMatchObject({ kind: "numbers", all: { rows_labelled: 1 } });
  expect(await night("2026-11-21")).toMatchObject({ kind: "numbers", all: { rows_labelled: 0 } });
  await expect(night("2026-11-20", "y")).rejects.toMatchObject({
    code: "USAGE",
    message: expect.stringContaining("is no date"),
  });
});

test("columns of the labels may have any name", async () => {
  const predictions = "SELECT 0 AS id, 0.9 AS p UNION ALL SELECT 1, 0.2";
  const labels = `SELECT id, true_one, y, k0, slice, n, score, truth, '2026-11-20' AS v FROM (VALUES
    (0, 1, 0, 5, 'north', 7, 3, 4), (1, 0, 1, 5, 'south', 7, 3, 4)) AS t (id, true_one, y, k0, slice, n, score, truth)`;
  const date = { column: "v", value: "2026-11-20" };
  const {
    all,
    by,
    keys_with_several_labels: repeated,
  } = await judgeRows(predictions, labels, { label: "true_one", by: "slice", date });
  expect([all.values["auc"], by.map(([slice]) => slice), repeated]).toEqual([1, ["north", "south"], 0]);
  const { all: turned, by: fives } = await judgeRows(predictions, labels, { label: "y", by: "k0" });
  expect([turned.values["auc"], fives.map(([slice]) => slice)]).toEqual([0, ["5"]]);
});
