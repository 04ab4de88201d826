import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type DuckDBConnection, DuckDBInstance } from "@duckdb/node-api";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type ColumnType, showType } from "#src/columnar/types.js";
import { columnTypeOf } from "#src/duckdb/types.js";
import { textRows } from "../support/expressions.js";
import { scratchFolder } from "../support/job.js";
import { writeModel } from "../support/onnx.js";
import { hasPythonWriters } from "../support/pyarrow.js";
import { rejectLines } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";
import { torture } from "../support/torture.js";
import { anySql } from "./any-sql.js";
import { type CaseShard, type ShardedTable } from "./cases.js";
import { type Dice, diceOf } from "./dice.js";
import { writeByPyarrow } from "./pyarrow.js";
import { anyType, makerOf, type TableColumn, type Value, withNulls } from "./values.js";
import { hidingNaN, makeTable } from "./write-duckdb.js";
import { type Writers, writeShard, writingOf } from "./writers.js";

/** INFER_BATCH_SEED=17: that case only, or so many from it as INFER_BATCH_CASES says. In torture each time others. */
const firstSeed = process.env["INFER_BATCH_SEED"];
const first = Number(firstSeed ?? (torture ? Date.now() % 1_000_000_000 : 1));
const count = Number(process.env["INFER_BATCH_CASES"] ?? (firstSeed === undefined ? (torture ? 500 : 10) : 1));
const seeds = Array.from({ length: count }, (_, index) => first + index);

/** A table that several writers wrote, and a job over it. */
interface SqlCase extends ShardedTable {
  readonly shards: readonly CaseShard[];
  /** By name. */
  readonly computed: ReadonlyMap<string, string>;
  readonly where: string | undefined;
  readonly carried: readonly string[];
}

const oddNames = [
  "x",
  "f_0",
  "select",
  "A",
  "y z",
  "größe",
  'say "so"',
  "it's",
  "a.b",
  "comma,",
  "日本",
  "{b}",
  "c[1]",
];
/** What a spec carries; columns of other names are carried by an expression. */
const plainName = /^\w+$/;

function anyColumn(dice: Dice, name: string): TableColumn {
  const float = dice.pick(["float32", "float64"] as const);
  const scalar = (): ColumnType => {
    const type = dice.chance(0.7) ? float : dice.chance(0.1) ? "timestamp[ns]" : anyType(dice);
    return typeof type === "object" && type.kind === "list" ? "int32" : type;
  };
  const struct = (): ColumnType => ({
    kind: "struct",
    fields: ["a", "B c"].map((field) => ({ name: field, type: scalar() })),
  });
  const type = dice.pick([
    scalar,
    scalar,
    scalar,
    struct,
    (): ColumnType => ({ kind: "list", element: scalar() }),
    (): ColumnType => ({ kind: "list", element: struct() }),
  ])();
  const nulls = dice.pick([0, 0, 0.1, 0.5]);
  const tame = makerOf(type, "tame", dice);
  const wild = makerOf(type, "wild", dice);
  const spice = dice.pick([0, 0, 0.02, 0.5]);
  const narrow = dice.chance(0.7);
  const make = (): Value => (dice.chance(spice) ? wild() : narrow ? withNarrowFloats(tame(), type, dice) : tame());
  return { name, type, nullable: nulls > 0 || dice.chance(0.5), make: withNulls(make, nulls, dice) };
}

/** Floats of few values, so that statistics tell something; float16 holds them, too. */
function withNarrowFloats(value: Value, type: ColumnType, dice: Dice): Value {
  if (typeof type === "object" && Array.isArray(value)) {
    return value.map((one: Value, place) => {
      const inner = type.kind === "list" ? type.element : type.kind === "struct" ? type.fields[place]?.type : undefined;
      return inner === undefined ? one : withNarrowFloats(one, inner, dice);
    });
  }
  return typeof value === "number" && /^float/.test(showType(type)) ? dice.pick([0.5, 1, 1, 2, 3, Number.NaN]) : value;
}

async function anyCase(seed: number, writers: Writers): Promise<SqlCase> {
  const dice = diceOf(seed);
  const rows = dice.int(1, 60);
  let next = 0n;
  const key: TableColumn = { name: "id", type: "int64", nullable: false, make: () => (next += 1n) };
  const columns = [key, ...dice.some(oddNames, dice.int(1, 5)).map((name) => anyColumn(dice, name))];
  const values = columns.map(({ make }) => Array.from({ length: rows }, make));
  const ends = Array.from({ length: dice.int(0, 3) }, () => dice.int(0, rows)).toSorted((one, two) => one - two);
  const shards = [...ends, rows].map((rowEnd, index): CaseShard => {
    const writing = dice.chance(0.3)
      ? ({ kind: "duckdb", ending: ".parquet", options: hidingNaN } as const)
      : writingOf(dice, writers);
    return {
      path: `data/s-${index}${writing.ending}`,
      folders: new Map(),
      rowStart: ends[index - 1] ?? 0,
      rowEnd,
      columns: dice.chance(0.3) ? dice.some([...columns.keys()], columns.length) : [...columns.keys()],
      writing,
    };
  });
  // DuckDB's result for zoned times may depend on the day of the run.
  const { condition, value } = anySql(
    dice,
    columns.slice(1).filter(({ type }) => !showType(type).includes("UTC")),
  );
  const drafts = Array.from({ length: dice.pick([0, 4, 8, 12]) }, (_, index) => [`e${index}`, value()] as const);
  const computed: [string, string][] = [];
  for (const [name, sql] of drafts) {
    if (await isCarried(columns, sql)) {
      computed.push([name, sql]);
    }
  }
  const where = dice.chance(0.6) ? condition() : undefined;
  const isFilter = where !== undefined && (await isCarried(columns, where));
  const names = columns.flatMap(({ name }) => (name !== "id" && plainName.test(name) ? [name] : []));
  return {
    columns,
    values,
    shards,
    computed: new Map(computed),
    where: isFilter ? where : undefined,
    carried: ["id", ...computed.map(([name]) => name), ...dice.some(names, dice.int(0, names.length))],
  };
}

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

async function faultsOf(folder: string, one: SqlCase): Promise<string[]> {
  const expected = await expectedOf(one);
  const out = await runCase(folder, one);
  const rows = (await textRows(out).catch(() => [])).map((row) => JSON.stringify(one.carried.map((name) => row[name])));
  const rejects = (await rejectLines(out)).map(
    ({ shard, row, column }) => [`${shard} ${row}`, String(column)] as const,
  );
  const found = rows.flatMap((row, index) =>
    row === expected.rows[index] ? [] : [`output row ${index}: ${row}, expected ${expected.rows[index]}`],
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
      const one = await anyCase(seed, writers);
      cases.set(seed, one);
      await mkdir(folderOf(seed));
    }
    await writeByPyarrow(
      scratch.path,
      ...[...cases].map(([seed, one]) => ({
        ...one,
        shards: one.shards.map((shard) => ({ ...shard, path: `${seed}/${shard.path}` })),
      })),
    );
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
