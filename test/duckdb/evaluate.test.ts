import { readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openRowJoin } from "#src/app/duckdb/open-row-join.js";
import { parquetFolder } from "#src/app/parquet-folder.js";
import type { Figures } from "#src/checks/evaluation.js";
import { judgeSide } from "#src/run/evaluate.js";
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
  return await judgeSide(joiner, { side, labels: rows }, { ...usual, ...request });
}

function expectFigures({ judged, values, calibration }: Figures, expected: Record<string, unknown>): void {
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
    const { kind, all, bySlice, repeated } = await judge(join(folder, name), join(folder, "labels"), request);
    expect([kind, repeated]).toEqual(["classes", 0]);
    const expected = golden.classes[name];
    expectFigures(all, expected);
    expect(all.rows).toBe(golden.rows[`rows_${name}`]);
    expect([...bySlice.keys()].toSorted()).toEqual(["north", "south", "west"]);
    for (const [slice, figures] of bySlice) {
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
  expect(texts).toMatchObject({ kind: "labels", repeated: 1, all: { rows: 4, labelled: 2, judged: 2 } });
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
