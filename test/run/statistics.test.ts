import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { textRows } from "../support/expressions.js";
import { scratchFolder } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { type TinyFile, tinyParquet } from "../support/parquet-bytes.js";
import { scoreHere } from "../support/score.js";

const columns = {
  clean: "nullif(x, 'nan'::double)",
  flag: "case when x between 0 and 100 then 1 else 0 end",
  listed: "x in (1, 'nan'::double)",
  above: "list_transform([x], lambda e: e > 50)",
  less: "{'x': x} < {'x': 50::double}",
  size: "abs(x)::float",
};

/** The rows that a job gives of files, one after the other; `kept` keeps what is not from 5 to 20. */
async function rowsOf(files: readonly TinyFile[]): Promise<unknown> {
  await using scratch = await scratchFolder();
  await mkdir(join(scratch.path, "in"));
  for (const [index, file] of files.entries()) {
    await writeFile(join(scratch.path, "in", `${index}.parquet`), tinyParquet(file));
  }
  await writeModel(join(scratch.path, "model.onnx"), {
    inputs: [{ name: "f", dtype: "float32", shape: ["n", 1] }],
    outputs: [{ name: "y", dtype: "float32", shape: ["n", 1] }],
    nodes: [{ op: "Identity", from: ["f"], to: "y" }],
  });
  const spec = join(scratch.path, "job.yaml");
  const job = {
    version: 1,
    name: "told",
    input: { path: "in/*.parquet", columns, where: "not (x between 5 and 20) and x <> 7" },
    model: { path: "model.onnx", inputs: { f: ["flag"] }, outputs: { y: "y" } },
    output: { columns: ["x", ...Object.keys(columns)], parquet: { path: "out" } },
  };
  await writeFile(spec, JSON.stringify(job));
  await scoreHere(spec);
  return (await textRows(join(scratch.path, "out"))).map((row) => Object.values(row).join(" "));
}

const row = (...values: readonly unknown[]): string => values.join(" ");
const of = (x: number, flag: number): string =>
  row(`${x}.0`, `${x}.0`, flag, x === 1, "[false]", true, `${Math.abs(x)}.0`, `${flag}.0`);
const ofNaN = row("nan", "", 0, true, "[true]", false, "nan", "0.0");

test.each([
  ["that leave NaN out", [1, 3]],
  ["that are wrong", [8, 9]],
  ["that are NaN", [Number.NaN, Number.NaN]],
  ["that are none", undefined],
] as const)("a file's statistics %s do not change a value", async (_what, bounds) => {
  const told = { values: [1, 2, Number.NaN, -3], ...(bounds === undefined ? {} : { bounds }) };
  const rows = [of(1, 1), of(2, 1), ofNaN, of(-3, 0)];

  expect(await rowsOf([told])).toEqual(rows);
  expect(await rowsOf([told, { values: [4] }])).toEqual([...rows, of(4, 1)]);
});
