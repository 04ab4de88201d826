import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { runCommand } from "../support/cli.js";
import { useFirstStores } from "../support/clouds.js";
import { scratch } from "../support/job.js";
import { type LakeAnswer, rowText, sparkAnswers, sparkTables, tableOf } from "../support/lakes.js";
import { writeModel } from "../support/onnx.js";
import { outputRows } from "../support/output.js";
import { upload } from "../support/s3-job.js";

/** A job that carries all columns of a table and scores its keys as themselves. */
async function jobOf(table: string, at: string, columns: readonly string[], input: object = {}): Promise<string> {
  await writeModel(join(scratch.path, "model.onnx"), {
    inputs: [{ name: "x", dtype: "float64", shape: ["N", 1] }],
    outputs: [{ name: "score", dtype: "float64", shape: ["N", 1] }],
    nodes: [{ op: "Identity", from: ["x"], to: "score" }],
  });
  const spec = {
    version: 1,
    name: "lake",
    input: { table, at, ...input },
    model: { path: "model.onnx", inputs: { x: ["id"] } },
    output: { columns, parquet: { path: "out" } },
  };
  const path = join(scratch.path, "job.yaml");
  await writeFile(path, JSON.stringify(spec));
  return path;
}

function versionOf({ at }: LakeAnswer): string {
  return at === "latest" ? at : String(Object.values(at as object)[0]);
}

async function expectRows({ rows }: LakeAnswer, columns: readonly string[]): Promise<void> {
  const scored = await outputRows(join(scratch.path, "out"));
  const expected = rows.map((row) => rowText([...columns.map((name) => row[name]), row["id"]]));
  const found = scored.map((row) => rowText([...columns.map((name) => row[name]), row["score"]]));
  expect(found.toSorted()).toEqual(expected.toSorted());
}

const cases = [...sparkAnswers()];

describe("tables that Spark wrote, on a disk:", () => {
  test.each(cases)("%s is scored as Spark reads it", async (name, answer) => {
    const columns = Object.keys(answer.rows[0] ?? {});
    const spec = await jobOf(tableOf(name, answer), versionOf(answer), columns);
    const { code, stderr, stdout } = await runCommand(["run", spec, "--json"]);
    expect(stderr + stdout).not.toContain("error");
    expect(code).toBe(0);
    await expectRows(answer, columns);
    const told = JSON.parse(stdout) as Record<string, number>;
    expect(told["rows_scored"]).toBe(answer.rows.length);
    expect((told["rows_scored"] ?? 0) + (told["rows_filtered"] ?? 0)).toBe(told["rows_planned"]);
  });
});
