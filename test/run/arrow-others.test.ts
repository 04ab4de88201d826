import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { inspectArrow } from "#src/formats/arrow/inspect.js";
import { writeArrow } from "../support/arrow.js";
import { projectFolder } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { query } from "../support/parquet.js";
import { scoreHere } from "../support/score.js";

const written = join(projectFolder, "fixtures/arrow");

describe("every type that polars and DuckDB export is carried with its values", () => {
  test.each([
    { name: "polars.arrows", least: 38 },
    { name: "polars.arrow", least: 38 },
    { name: "duckdb.arrows", least: 50 },
    { name: "duckdb-views.arrows", least: 50 },
    { name: "duckdb-large.arrows", least: 50 },
  ])("$name", async ({ name, least }) => {
    const due = join(written, "types.parquet");
    const types = new Map(
      (await query(`DESCRIBE SELECT * FROM '${due}'`)).map((row) => [
        String(row["column_name"]),
        String(row["column_type"]),
      ]),
    );
    const inFile = (await inspectArrow(join(written, name))).columns.map((column) => column.name);
    const columns = inFile.filter((column) => types.has(column));
    const { spec, out } = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: join(written, name) },
      modelSpec: { inputs: { x: ["id"] } },
      output: { columns, parquet: { path: "out" } },
    });

    await scoreHere(spec);

    // Hashes tell -0 from 0, and a difference by its row and column.
    const hashes = columns.map((column) => `hash(("${column}"::${types.get(column) ?? ""})::VARCHAR) AS "${column}"`);
    const rows = (files: string): ReturnType<typeof query> => query(`SELECT ${hashes.join(", ")} FROM '${files}'`);
    expect(await rows(`${out}/*.parquet`)).toEqual(await rows(due));
    expect(columns.length).toBeGreaterThanOrEqual(least);
  });
});

test.each(["file", "stream"] as const)(
  "booleans that are all NULL, of which Arrow's JavaScript library writes no values, are carried and bound from a %s",
  async (kind) => {
    const { spec, out } = await smallJob(scratch.path, {
      model: identity,
      select: "SELECT 1",
      input: { path: "in/b.arrow", format: "arrow" },
      modelSpec: { inputs: { x: ["x"] } },
      output: { columns: ["id", "flag", "flags"], parquet: { path: "out" } },
    });
    const select = `SELECT i AS id, i::FLOAT AS x, CASE WHEN i >= 20 THEN i % 2 = 0 END AS flag,
      CASE WHEN i < 10 THEN [NULL::BOOLEAN] ELSE [i % 3 = 0] END AS flags FROM range(30) t(i)`;
    await writeArrow(join(scratch.path, "in/b.arrow"), select, { kind, batchRows: 10 });

    await scoreHere(spec);

    expect(await query(`SELECT id, flag, flags FROM '${out}/*.parquet'`)).toEqual(
      await query(`SELECT id, flag, flags FROM (${select})`),
    );
  },
);
