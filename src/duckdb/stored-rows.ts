import { StreamEndedError } from "./stream-ended.js";
import type { DuckDBDataChunk } from "@duckdb/node-api";
import type { Column, ColumnType, FixedColumn } from "../columnar/types.js";
import { filterColumn } from "../columnar/column-builder.js";
import { appendRows, createTable } from "./append-rows.js";
import type { DuckDBConnection } from "./instance.js";
import { csvRows } from "./csv-rows.js";
import { readColumns } from "./parquet-schema.js";
import { countPasses, isInPass, repeatedKeys } from "./passes.js";
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

/** Files with stored rows, a group at a time. */
export interface StoredGroups {
  readonly format: "parquet" | "csv";
  readonly groups: AsyncIterable<readonly string[]>;
}

/** Stored rows in the order of the files, none of which has a NULL. */
export interface StoredChunk {
  readonly rowCount: number;
  readonly keys: readonly Column[];
  readonly outputs: readonly Column[];
  readonly hashes: FixedColumn;
}

/**
 * Reads stored rows, without those that have a NULL.
 * @throws Error when a file lacks a column, or has it with another type, or when other than `rows` rows came
 */
export async function* readStored(
  connection: DuckDBConnection,
  { key, outputs, hash }: StoredColumns,
  files: StoredGroups & { readonly rows: number },
): AsyncGenerator<StoredChunk> {
  const columns = [...key, ...outputs, hash];
  const names = columns.map(({ name }) => quoteName(name)).join(", ");
  let rowCount = 0;
  for await (const paths of files.groups) {
    const result = await connection.stream(`SELECT ${names} FROM ${await rowsIn(connection, columns, files, paths)}`);
    for (
      let chunk = await result.fetchChunk();
      chunk !== null && chunk.rowCount > 0;
      chunk = await result.fetchChunk()
    ) {
      const one = chunk;
      rowCount += chunk.rowCount;
      const read = withoutNulls(
        columns.map(({ type }, index) => ({ type, column: readColumn(one, index, type) })),
        chunk.rowCount,
      );
      yield {
        rowCount: read.rowCount,
        keys: read.columns.slice(0, key.length),
        outputs: read.columns.slice(key.length, -1),
        hashes: read.columns.at(-1) as FixedColumn,
      };
    }
  }
  if (rowCount !== files.rows) {
    throw new StreamEndedError(`${rowCount} rows came, ${files.rows} were stored`);
  }
}

/** The rows that have a value in each column. */
function withoutNulls(
  read: readonly { readonly type: ColumnType; readonly column: Column }[],
  rowCount: number,
): { readonly columns: readonly Column[]; readonly rowCount: number } {
  const valid = read.flatMap(({ column }) => (column.valid?.includes(0) === true ? [column.valid] : []));
  if (valid.length === 0) {
    return { columns: read.map(({ column }) => ({ ...column, valid: undefined })), rowCount };
  }
  const keep = Uint8Array.from({ length: rowCount }, (_, row) => (valid.every((one) => one[row] === 1) ? 1 : 0));
  return {
    columns: read.map(({ type, column }) => ({ ...filterColumn(type, column, keep), valid: undefined })),
    rowCount: keep.reduce((sum, kept) => sum + kept, 0),
  };
}

/**
 * Loads stored rows into the table `stored`, a group of files at a time, without those with a NULL, and the keys that are
 * there several times into the table `repeated`. Returns the number of rows whose key is there once.
 * @throws Error when a file lacks a column, or has it with another type
 */
export async function loadStored(
  connection: DuckDBConnection,
  { key, outputs, hash }: StoredColumns,
  files: StoredGroups,
  memoryBytes: number,
): Promise<number> {
  const columns = [...key, ...outputs, hash];
  const definitions = columns.map(({ name, type }) => `${quoteName(name)} ${sqlTypeOf(type)}`).join(", ");
  await connection.run(`CREATE TEMP TABLE stored (${definitions})`);
  const names = columns.map(({ name }) => quoteName(name));
  const complete = names.map((name) => `${name} IS NOT NULL`).join(" AND ");
  for await (const paths of files.groups) {
    const rows = await rowsIn(connection, columns, files, paths);
    await connection.run(`INSERT INTO stored SELECT ${names.join(", ")} FROM ${rows} WHERE ${complete}`);
  }
  const keys = key.map(({ name }) => quoteName(name));
  return await findRepeated(connection, keys, memoryBytes);
}

/** Finds the keys that are several times in the table `stored`, and returns the number of the other rows. */
async function findRepeated(
  connection: DuckDBConnection,
  keys: readonly string[],
  memoryBytes: number,
): Promise<number> {
  const list = keys.join(", ");
  // Their rows stay in the table: deleting them took more memory than all else.
  await connection.run(`CREATE TEMP TABLE repeated AS SELECT ${list}, 0::BIGINT AS ${quoteName(timesColumn)}
    FROM stored LIMIT 0`);
  const passes = await countPasses(connection, memoryBytes);
  for (let pass = 0; pass < passes; pass += 1) {
    const rows = `(SELECT ${list} FROM stored WHERE ${isInPass(keys, pass, passes)})`;
    await connection.run(`INSERT INTO repeated ${repeatedKeys(keys, rows, [...keys, "count(*)"])}`);
  }
  const result = await connection.runAndReadAll(`SELECT ((SELECT count(*) FROM stored)
    - coalesce((SELECT sum(${quoteName(timesColumn)}) FROM repeated), 0))::DOUBLE`);
  return Number(result.getRows()[0]?.[0]);
}

function rowsIn(
  connection: DuckDBConnection,
  columns: readonly TypedColumn[],
  { format }: StoredGroups,
  paths: readonly string[],
): Promise<string> {
  return format === "parquet" ? parquetRows(connection, columns, paths) : Promise.resolve(csvRows(columns, paths));
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
const timesColumn = "rows of the key";

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

/**
 * Joins the tables `wanted` and `stored`, but for the keys in `repeated`, and drops the three. They are joined in passes
 * and sorted afterwards: both at once take more memory than each. @throws StreamEndedError
 */
export async function* joinStored(
  connection: DuckDBConnection,
  { key, outputs, hash }: StoredColumns,
  memoryBytes: number,
): AsyncGenerator<FoundRows> {
  const keys = key.map(({ name }) => quoteName(name));
  const equal = (other: string): string => keys.map((name) => `w.${name} = ${other}.${name}`).join(" AND ");
  const columns = [...outputs, hash].map(({ name }) => `s.${quoteName(name)}`);
  const passes = await countPasses(connection, memoryBytes);
  for (let pass = 0; pass < passes; pass += 1) {
    const of = (table: string): string => `(SELECT * FROM ${table} WHERE ${isInPass(keys, pass, passes)})`;
    const rows = `SELECT ${[`w.${quoteName(rowColumn)}`, ...columns].join(", ")}
      FROM (SELECT * FROM ${of("wanted")} w ANTI JOIN ${of("repeated")} r ON ${equal("r")}) w
      JOIN ${of("stored")} s ON ${equal("s")}`;
    await connection.run(pass === 0 ? `CREATE TEMP TABLE found AS ${rows}` : `INSERT INTO found ${rows}`);
  }
  await connection.run("DROP TABLE wanted; DROP TABLE stored; DROP TABLE repeated");
  const [[expected]] = (await (await connection.run("SELECT count(*) FROM found")).getRows()) as [[bigint]];
  const result = await connection.stream(`SELECT * FROM found ORDER BY ${quoteName(rowColumn)}`);
  let rowCount = 0;
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    rowCount += chunk.rowCount;
    yield readFound(chunk, { outputs, hash });
  }
  if (rowCount !== Number(expected)) {
    throw new StreamEndedError(`${rowCount} rows came, ${expected} were found`);
  }
  await connection.run("DROP TABLE found");
}

function readFound(chunk: DuckDBDataChunk, { outputs, hash }: Omit<StoredColumns, "key">): FoundRows {
  const numbers = readColumn(chunk, 0, "float64") as FixedColumn;
  return {
    rows: numbers.data as Float64Array,
    outputs: outputs.map(({ type }, index) => readColumn(chunk, index + 1, type)),
    hashes: readColumn(chunk, outputs.length + 1, hash.type) as FixedColumn,
  };
}
