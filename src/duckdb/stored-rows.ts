import { quoteName } from "../base/sql.js";
import type { DuckDBDataChunk } from "@duckdb/node-api";
import type { Column, ColumnType, FixedColumn } from "../columns/types.js";
import { filterColumn } from "../columns/columns.js";
import type { DuckDBConnection } from "./instance.js";
import { readColumns } from "./parquet-schema.js";
import { csvRows, quotePaths } from "./sql.js";
import { readColumn } from "./vectors.js";

interface TypedColumn {
  readonly name: string;
  readonly type: ColumnType;
}

interface StoredColumns {
  readonly key: readonly TypedColumn[];
  readonly outputs: readonly TypedColumn[];
  readonly hash: TypedColumn;
}

/** Files with stored rows, a group at a time. */
export interface StoredGroups {
  readonly format: "parquet" | "csv";
  readonly groups: AsyncIterable<readonly string[]>;
}

/** Stored rows in the order of the files, none of which has a NULL. */
interface StoredChunk {
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
  let rowCount = 0;
  for await (const paths of files.groups) {
    for await (const chunk of readRows(connection, columns, await rowsIn(connection, columns, files, paths))) {
      rowCount += chunk.rowCount;
      const read = withoutNulls(chunk.columns, chunk.rowCount);
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

/**
 * Reads columns of rows, which the caller counts, as those of `chunksOf`.
 * @param rows SQL of what they are selected from
 */
export async function* readRows(
  connection: DuckDBConnection,
  columns: readonly TypedColumn[],
  rows: string,
): AsyncGenerator<{ readonly rowCount: number; readonly columns: readonly ReadColumn[] }> {
  const names = columns.map(({ name }) => quoteName(name)).join(", ");
  for await (const chunk of chunksOfQuery(connection, `SELECT ${names} FROM ${rows}`)) {
    yield {
      rowCount: chunk.rowCount,
      columns: columns.map(({ type }, index) => ({ type, column: readColumn(chunk, index, type) })),
    };
  }
}

/** Yields what a query answers. A stream that ends early does so without an error: the caller counts the rows. */
export async function* chunksOfQuery(connection: DuckDBConnection, sql: string): AsyncGenerator<DuckDBDataChunk> {
  const result = await connection.stream(sql);
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    yield chunk;
  }
}

interface ReadColumn {
  readonly type: ColumnType;
  readonly column: Column;
}

function withoutNulls(
  read: readonly ReadColumn[],
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

/** Fewer rows came than there are: DuckDB's streams end silently when memory or disk runs out. */
export class StreamEndedError extends Error {}
