import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { writeModel } from "../support/onnx.js";
import { writeRows } from "../support/parquet.js";
import { shardJob } from "../support/shards.js";

const rows = 40_000;

interface Found {
  readonly rows_compared: number;
  readonly rows_missed: object;
  readonly outputs: {
    readonly score: {
      readonly mean_difference: number;
      readonly median_difference: number;
      readonly p90_difference: number;
      readonly p99_difference: number;
      readonly largest_difference: number;
      readonly rows_beyond_tolerance: number;
      readonly most_different: readonly { readonly row: number; readonly keys: { readonly id: string } }[];
    };
  };
}

/** Scores x as itself, and y as itself with the challenger. */
async function agreementOf(folder: string, y: string, overrides: object = {}): Promise<Found> {
  const job = await shardJob(folder, {});
  await writeRows(
    job.shard("a"),
    `SELECT range AS id, CAST(range AS DOUBLE) AS x, CAST(${y} AS DOUBLE) AS y FROM range(${rows})`,
    "ROW_GROUP_SIZE 4096",
  );
  await writeModel(join(folder, "challenger.onnx"), {
    inputs: [{ name: "y", dtype: "float64", shape: ["N", 1] }],
    outputs: [{ name: "score", dtype: "float64", shape: ["N", 1] }],
    nodes: [{ op: "Identity", from: ["y"], to: "score" }],
  });
  await job.rewrite({
    commit_rows: 15_000,
    engine: { batch_size: 1000 }, // so that the last rows of a row group fill no batch
    output: { columns: ["id"] },
    challenger: { path: "challenger.onnx", tolerance: 0.5 },
    ...overrides,
  });
  const done = await runHere(["run", job.spec, "--json", "--log-level", "debug"]);
  expect(done.code, done.stderr).toBe(0);
  expect(await readFile(join(job.out, "_SUCCESS"), "utf8")).toBeDefined();
  const stats = await runHere(["stats", job.spec, "--json"]);
  return lastJson(stats)["challenger"] as Found;
}

/** y is x, and so many eighths more. */
const eighths = (row: number): number => (row % 11) / 8;
const y = "range + (range % 11) / 8.0";

/** What is right for the rows that both models score. */
function expected(isScored: (row: number) => boolean): object {
  const scored = Array.from({ length: rows }, (_, row) => row).filter(isScored);
  const sum = scored.reduce((total, row) => total + eighths(row), 0);
  return {
    rows_compared: scored.length,
    mean_difference: sum / scored.length,
    largest_difference: 1.25,
    rows_beyond_tolerance: scored.filter((row) => eighths(row) > 0.5).length,
    most: scored.filter((row) => eighths(row) === 1.25).slice(0, 10),
  };
}

function shownOf({ rows_compared, outputs: { score } }: Found): object {
  const { mean_difference, largest_difference, rows_beyond_tolerance, most_different } = score;
  const most = most_different.map(({ keys }) => Number(keys.id));
  return { rows_compared, mean_difference, largest_difference, rows_beyond_tolerance, most };
}

test("no thread is started for a challenger that is planned and scored on the CPU", async () => {
  let threads = 0;
  const count = (): void => {
    threads += 1;
  };
  process.on("worker", count);
  try {
    await agreementOf(scratch.path, y, { engine: { threads: 2 } });
  } finally {
    process.off("worker", count);
  }
  expect(threads).toBe(2);
});

test("rows that workers score with both models have the right figures across spans and row groups", async () => {
  const found = await agreementOf(scratch.path, y);
  expect(shownOf(found)).toEqual(expected(() => true));
  expect(found.rows_missed).toEqual({});
  const sorted = Array.from({ length: rows }, (_, row) => eighths(row)).toSorted((one, other) => one - other);
  const { median_difference, p90_difference, p99_difference } = found.outputs.score;
  expect(p99_difference).toBeLessThanOrEqual(found.outputs.score.largest_difference);
  for (const [share, quantile] of [
    [0.5, median_difference],
    [0.9, p90_difference],
    [0.99, p99_difference],
  ] as const) {
    expect(quantile / (sorted[share * rows] ?? 0), String(share)).toBeCloseTo(1, 2);
  }
});

test("rows that only the challenger cannot score are left out, in batches that workers or the main thread score", async () => {
  const found = await agreementOf(
    scratch.path,
    `CASE WHEN range IN (4090, 9000, 20480, 39999) THEN NULL ELSE ${y} END`,
  );
  expect(shownOf(found)).toEqual(expected((row) => ![4090, 9000, 20_480, 39_999].includes(row)));
  expect(found.rows_missed).toEqual({ missing: 4 });
});

test("rows that the main thread reads have the same figures of agreement", async () => {
  const found = await agreementOf(scratch.path, y, { input: { where: "id >= 100" } });
  expect(shownOf(found)).toEqual(expected((row) => row >= 100));
});
