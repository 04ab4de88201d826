import type { DuckDBDataChunk } from "@duckdb/node-api";
import type { Column, ColumnType, FixedColumn } from "../columnar/types.js";
import { appendRows, createTable } from "./append-rows.js";
import type { DuckDBConnection } from "./instance.js";
import { csvRows } from "./csv-rows.js";
import { readColumns } from "./parquet-schema.js";
import { readColumn } from "./read-vector.js";
import { quoteName, quotePaths, sqlTypeOf } from "./sql.js";

/** A column with its type. */
export interface TypedColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** The columns of stored rows: the key, the predictions, then the hash. */
export interface StoredColumns {
  readonly key: readonly TypedColumn[];
  readonly outputs: readonly TypedColumn[];
  readonly hash: TypedColumn;
}

/** Rows that were found by their keys, ascending by the numbers of the rows that have these keys. */
export interface FoundRows {
  readonly rows: Float64Array;
  readonly outputs: readonly Column[];
  readonly hashes: FixedColumn;
}

/**
 * Loads stored rows into the table `stored`, a group of files at a time, without those whose key is NULL or there twice.
 * Returns their number.
 * @throws Error when a file lacks a column, or has it with another type
 */
export async function loadStored(
  connection: DuckDBConnection,
  { key, outputs, hash }: StoredColumns,
  files: { readonly format: "parquet" | "csv"; readonly groups: AsyncIterable<readonly string[]> },
): Promise<number> {
  const columns = [...key, ...outputs, hash];
  const definitions = columns.map(({ name, type }) => `${quoteName(name)} ${sqlTypeOf(type)}`).join(", ");
  await connection.run(`CREATE TEMP TABLE stored (${definitions})`);
  const names = columns.map(({ name }) => quoteName(name));
  const complete = names.map((name) => `${name} IS NOT NULL`).join(" AND ");
  for await (const paths of files.groups) {
    const rows = files.format === "parquet" ? await parquetRows(connection, columns, paths) : csvRows(columns, paths);
    await connection.run(`INSERT INTO stored SELECT ${names.join(", ")} FROM ${rows} WHERE ${complete}`);
  }
  const keys = key.map(({ name }) => quoteName(name)).join(", ");
  // A key that is there often would be joined as often.
  await connection.run(`CREATE TEMP TABLE repeated AS SELECT ${keys} FROM stored GROUP BY ${keys} HAVING count(*) > 1`);
  await connection.run(
    `DELETE FROM stored WHERE (SELECT count(*) FROM repeated) > 0 AND (${keys}) IN (SELECT (${keys}) FROM repeated)`,
  );
  const [[rows] = []] = (await connection.runAndReadAll("SELECT count(*)::DOUBLE FROM stored")).getRows();
  return Number(rows);
}

async function parquetRows(
  connection: DuckDBConnection,
  columns: readonly TypedColumn[],
  paths: readonly string[],
): Promise<string> {
  const there = await readColumns(connection, paths[0] ?? "");
  for (const { name, type } of columns) {
    const found = there.find((column) => column.name === name);
    if (found === undefined || JSON.stringify(found.type) !== JSON.stringify(type)) {
      throw new Error(found === undefined ? `they have no column ${name}` : `their column ${name} has another type`);
    }
  }
  return `read_parquet(${quotePaths(paths)}, hive_partitioning = false)`;
}

const rowColumn = "row of the run";

/** Adds the keys of rows to the table `wanted`, which it creates at first. */
export async function addWanted(
  connection: DuckDBConnection,
  key: readonly TypedColumn[],
  { rows, keys, isFirst }: { readonly rows: Float64Array; readonly keys: readonly Column[]; readonly isFirst: boolean },
): Promise<void> {
  const numbers: Column = {
    kind: "fixed",
    elementsPerValue: 1,
    data: rows as Float64Array<ArrayBuffer>,
    valid: undefined,
  };
  const columns = [
    { name: rowColumn, type: "float64" as const, column: numbers },
    ...key.map(({ name, type }, index) => ({ name, type, column: keys[index] as Column })),
  ];
  const wanted = { rowCount: rows.length, columns };
  await (isFirst ? createTable(connection, "wanted", wanted) : appendRows(connection, "wanted", wanted));
}

/** Joins the tables `wanted` and `stored`, and drops `wanted`. A stream that ends early only leaves rows out. */
export async function* joinStored(
  connection: DuckDBConnection,
  { key, outputs, hash }: StoredColumns,
): AsyncGenerator<FoundRows> {
  const equal = key.map(({ name }) => `w.${quoteName(name)} = s.${quoteName(name)}`).join(" AND ");
  const columns = [...outputs, hash].map(({ name }) => `s.${quoteName(name)}`);
  const result = await connection.stream(
    `SELECT ${[`w.${quoteName(rowColumn)}`, ...columns].join(", ")} FROM wanted w JOIN stored s ON ${equal}
     ORDER BY w.${quoteName(rowColumn)}`,
  );
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    yield readFound(chunk, { outputs, hash });
  }
  await connection.run("DROP TABLE wanted");
}

function readFound(chunk: DuckDBDataChunk, { outputs, hash }: Omit<StoredColumns, "key">): FoundRows {
  const numbers = readColumn(chunk, 0, "float64") as FixedColumn;
  return {
    rows: numbers.data as Float64Array,
    outputs: outputs.map(({ type }, index) => readColumn(chunk, index + 1, type)),
    hashes: readColumn(chunk, outputs.length + 1, hash.type) as FixedColumn,
  };
}
