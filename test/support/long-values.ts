import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { projectFolder } from "./cli.js";
import { writeRows } from "./parquet.js";

const features = Array.from({ length: 32 }, (_, index) => `(range % ${index + 2})::FLOAT AS f${index}`).join(", ");

/** Rows [from, to) of a table with an id, the features of `bench-linear.onnx`, and a column of long values. */
export function longRowsSql(body: string, from: number, to: number): string {
  return `SELECT range AS id, ${features}, ${body} AS body FROM range(${from}, ${to})`;
}

export async function writeLongRows(
  path: string,
  { body, from = 0, to, options }: { body: string; from?: number; to: number; options: string },
): Promise<void> {
  await writeRows(path, longRowsSql(body, from, to), options);
}

/** Writes a job over the shards in `in/` that copies `id` and `body` to its output. */
export async function writeLongValuesSpec(folder: string, spec: object): Promise<string> {
  const path = join(folder, "job.json");
  const base = {
    version: 1,
    name: "long-values",
    input: { path: "in/*.parquet" },
    model: { path: join(projectFolder, "fixtures/models/bench-linear.onnx") },
    output: { columns: ["id", "body"], parquet: { path: "out" } },
  };
  await writeFile(path, JSON.stringify({ ...base, ...spec }));
  return path;
}
