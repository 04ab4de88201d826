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
    throw new Error(`${rowCount} rows came, ${files.rows} were stored`); // streams of DuckDB end silently on an error
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
 * Loads stored rows into the table `stored`, a group of files at a time, without those whose key is NULL or there twice.
 * Returns their number.
 * @throws Error when a file lacks a column, or has it with another type
 */
export async function loadStored(
  connection: DuckDBConnection,
  { key, outputs, hash }: StoredColumns,
  files: StoredGroups,
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
  // A key that is there often would be joined as often.
  await connection.run(`CREATE TEMP TABLE repeated AS ${repeatedKeys(keys, "stored")}`);
  const list = keys.join(", ");
  await connection.run(
    `DELETE FROM stored WHERE (SELECT count(*) FROM repeated) > 0 AND (${list}) IN (SELECT (${list}) FROM repeated)`,
  );
  const [[rows] = []] = (await connection.runAndReadAll("SELECT count(*)::DOUBLE FROM stored")).getRows();
  return Number(rows);
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
 * Joins the tables `wanted` and `stored`, and drops them. They are joined in passes and sorted afterwards: both at once
 * take more memory than each. A stream that ends early only leaves rows out.
 */
export async function* joinStored(
  connection: DuckDBConnection,
  { key, outputs, hash }: StoredColumns,
  memoryBytes: number,
): AsyncGenerator<FoundRows> {
  const keys = key.map(({ name }) => quoteName(name));
  const equal = keys.map((name) => `w.${name} = s.${name}`).join(" AND ");
  const columns = [...outputs, hash].map(({ name }) => `s.${quoteName(name)}`);
  const passes = await countPasses(connection, memoryBytes);
  for (let pass = 0; pass < passes; pass += 1) {
    const of = (table: string): string => `(SELECT * FROM ${table} WHERE ${isInPass(keys, pass, passes)})`;
    const rows = `SELECT ${[`w.${quoteName(rowColumn)}`, ...columns].join(", ")}
      FROM ${of("wanted")} w JOIN ${of("stored")} s ON ${equal}`;
    await connection.run(pass === 0 ? `CREATE TEMP TABLE found AS ${rows}` : `INSERT INTO found ${rows}`);
  }
  await connection.run("DROP TABLE wanted; DROP TABLE stored");
  const result = await connection.stream(`SELECT * FROM found ORDER BY ${quoteName(rowColumn)}`);
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    yield readFound(chunk, { outputs, hash });
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
