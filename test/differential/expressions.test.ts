import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type DuckDBConnection, DuckDBInstance } from "@duckdb/node-api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { showType } from "#src/columns/types.js";
import { columnTypeOf } from "#src/duckdb/vectors.js";
import { textRows } from "../support/expressions.js";
import { scratchFolder } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { hasPythonWriters } from "../support/pyarrow.js";
import { rejectLines } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";
import { torture } from "../support/torture.js";
import { anyCase, type SqlCase } from "./expression-cases.js";
import { writeByPyarrow } from "./pyarrow.js";
import type { TableColumn } from "./values.js";
import { makeTable } from "./write-duckdb.js";
import { type Writers, writeShard } from "./writers.js";

/** INFER_BATCH_SEED=17: that case only, or so many from it as INFER_BATCH_CASES says. In torture each time others. */
const firstSeed = process.env["INFER_BATCH_SEED"];
const first = Number(firstSeed ?? (torture ? Date.now() % 1_000_000_000 : 1));
const count = Number(process.env["INFER_BATCH_CASES"] ?? (firstSeed === undefined ? (torture ? 500 : 4) : 1));
const seeds = Array.from({ length: count }, (_, index) => first + index);

/** A DuckDB over tables in memory, whose statistics are its own, and that takes nothing out of TRY. */
let duckdb: DuckDBConnection;
beforeAll(async () => {
  const instance = await DuckDBInstance.create(":memory:", { threads: "1" });
  duckdb = await instance.connect();
  await duckdb.run("SET disabled_optimizers = 'common_subexpressions,unused_columns'; SET TimeZone = 'UTC'");
});
afterAll(() => duckdb.closeSync());

/** Whether DuckDB takes an expression, and its values can be carried. */
async function isCarried(columns: readonly TableColumn[], sql: string): Promise<boolean> {
  await makeTable(duckdb, "bound", columns, []);
  try {
    const [type] = (await duckdb.run(`SELECT (${sql}) FROM bound LIMIT 0`)).columnTypes();
    const known = type === undefined ? undefined : columnTypeOf(type);
    return known !== undefined && !/interval|zone/.test(showType(known));
  } catch {
    return false;
  } finally {
    await duckdb.run("DROP TABLE bound");
  }
}

interface Outcome {
  readonly rows: readonly string[];
  /** Rows that are rejected, and the expressions that fail on them. */
  readonly rejects: readonly (readonly [row: string, failed: readonly string[]])[];
}

/** What DuckDB makes of the table in memory. */
async function expectedOf({ columns, values, shards, computed, where, carried }: SqlCase): Promise<Outcome> {
  await makeTable(duckdb, "whole", columns, values);
  const tried = [...computed.values(), where ?? "true"].map(
    (sql, index) => `TRY(struct_pack(v := (${sql}))) AS t${index}`,
  );
  const names = [...computed.keys()];
  const shown = carried.map((name) => {
    const place = names.indexOf(name);
    return place < 0 ? `"${name.replaceAll('"', '""')}"::VARCHAR` : `(t${place}).v::VARCHAR`;
  });
  const failed = tried.map((_, index) => `t${index} IS NULL`);
  const kept = `coalesce((t${names.length}).v, false)`;
  const found = await duckdb.runAndReadAll(
    `SELECT ${[kept, ...failed, ...shown].join(", ")} FROM (SELECT *, ${tried.join(", ")} FROM whole) ORDER BY id`,
  );
  await duckdb.run("DROP TABLE whole");
  const rows: string[] = [];
  const rejects: [string, string[]][] = [];
  for (const [index, [isKept, ...rest]] of found.getRows().entries()) {
    const shard = shards.find(({ rowStart, rowEnd }) => index >= rowStart && index < rowEnd);
    const place = `${shard?.path} ${index - (shard?.rowStart ?? 0)}`;
    const failures = names.filter((_, at) => rest[at] === true);
    if (rest[names.length] === true) {
      rejects.push([place, ["input.where"]]);
    } else if (isKept === true && failures.length > 0) {
      rejects.push([place, failures]);
    } else if (isKept === true) {
      rows.push(JSON.stringify(rest.slice(names.length + 1)));
    }
  }
  return { rows, rejects };
}

async function runCase(folder: string, { computed, where, carried, shards }: SqlCase): Promise<string> {
  await writeModel(join(folder, "model.onnx"), {
    inputs: [{ name: "f", dtype: "float32", shape: ["n", 1] }],
    outputs: [{ name: "prediction", dtype: "float32", shape: ["n", 1] }],
    nodes: [{ op: "Identity", from: ["f"], to: "prediction" }],
  });
  const endings = [...new Set(shards.map(({ writing }) => writing.ending))];
  const job = {
    version: 1,
    name: "expressions",
    input: {
      path: endings.map((ending) => `data/*${ending}`),
      min_rows: 0,
      ...(computed.size === 0 ? {} : { columns: Object.fromEntries(computed) }),
      ...(where === undefined ? {} : { where }),
    },
    model: { path: "model.onnx", inputs: { f: ["id"] }, outputs: { prediction: "prediction" } },
    engine: { threads: 1 },
    output: { columns: carried, parquet: { path: "out" } },
    on_bad_row: "reject",
    max_rejects: "100%",
  };
  await writeFile(join(folder, "job.yaml"), JSON.stringify(job));
  await scoreHere(join(folder, "job.yaml"));
  return join(folder, "out");
}

/** A NaN's sign says nothing. */
const withoutSigns = (row: string): string => row.replaceAll("-nan", "nan");

async function faultsOf(folder: string, one: SqlCase): Promise<string[]> {
  const expected = await expectedOf(one);
  const out = await runCase(folder, one);
  const rows = (await textRows(out).catch(() => [])).map((row) => JSON.stringify(one.carried.map((name) => row[name])));
  const rejects = (await rejectLines(out)).map(
    ({ shard, row, column }) => [`${String(shard)} ${String(row)}`, String(column)] as const,
  );
  const found = rows.flatMap((row, index) =>
    withoutSigns(row) === withoutSigns(expected.rows[index] ?? "")
      ? []
      : [`output row ${index}: ${row}, expected ${expected.rows[index]}`],
  );
  const counts = [rows.length, expected.rows.length, rejects.length, expected.rejects.length];
  if (counts[0] !== counts[1] || counts[2] !== counts[3]) {
    found.push(`${counts[0]} rows, expected ${counts[1]}; ${counts[2]} rejects, expected ${counts[3]}`);
  }
  for (const [index, [place, failed]] of expected.rejects.entries()) {
    const [at, column] = rejects[index] ?? [];
    if (at !== place || column === undefined || !failed.includes(column)) {
      found.push(`reject ${index}: ${at} ${column}, expected ${place} ${failed.join(" or ")}`);
    }
  }
  return found.slice(0, 10);
}

function about(seed: number, { columns, shards, computed, where }: SqlCase): string {
  const lines = [
    `INFER_BATCH_SEED=${seed} repeats it`,
    ...columns.map(({ name, type }) => `column ${name} ${showType(type)}`),
    ...shards.map(
      ({ path, rowStart, rowEnd, writing }) => `${path} [${rowStart}, ${rowEnd}) ${JSON.stringify(writing)}`,
    ),
    ...[...computed].map(([name, sql]) => `${name}: ${sql}`),
    ...(where === undefined ? [] : [`where: ${where}`]),
  ];
  return lines.join("\n");
}

/** Python takes as long to start as to write all cases: it writes them together. */
function testCases(writers: Writers): void {
  let scratch: Awaited<ReturnType<typeof scratchFolder>>;
  const cases = new Map<number, SqlCase>();
  const folderOf = (seed: number): string => join(scratch.path, String(seed));

  beforeAll(async () => {
    scratch = await scratchFolder();
    for (const seed of seeds) {
      const one = await anyCase(seed, writers, isCarried);
      cases.set(seed, one);
      await mkdir(folderOf(seed));
    }
    const tables = [...cases].map(([seed, { columns, values, shards }]) => ({
      columns,
      values,
      shards: shards.map((shard) => Object.assign({}, shard, { path: `${seed}/${shard.path}` })),
    }));
    const wrote = await writeByPyarrow(scratch.path, ...tables);
    // A writer that cannot hold a table leaves it to pyarrow: of many tables, each writes some.
    const idle = count < 100 ? [] : (writers.others ?? []).filter((writer) => !wrote.includes(writer));
    expect(idle).toEqual([]);
  }, 600_000);
  afterAll(() => scratch[Symbol.asyncDispose]());

  test.each(seeds)("case %i", { timeout: 120_000 }, async (seed) => {
    const one = cases.get(seed) as SqlCase;
    const folder = folderOf(seed);
    for (const shard of one.shards) {
      const columns = shard.columns.map((index) => one.columns[index] as TableColumn);
      const values = shard.columns.map((index) => one.values[index]?.slice(shard.rowStart, shard.rowEnd) ?? []);
      await writeShard(join(folder, shard.path), columns, values, shard.writing);
    }

    const found = await faultsOf(folder, one).catch((error: unknown) => [
      error instanceof Error ? (error.stack ?? error.message) : String(error),
    ]);

    expect(found, about(seed, one)).toEqual([]);
  });
}

describe("expressions give what DuckDB computes over the same rows in memory, however the shards were written", () => {
  testCases({ isPlain: false, pyarrow: false });
});

describe.skipIf(!hasPythonWriters)(
  "expressions over shards of pyarrow, polars and fastparquet give what DuckDB computes in memory",
  () => {
    testCases({ isPlain: false, pyarrow: true, others: ["polars", "fastparquet", "spark"] });
  },
);
