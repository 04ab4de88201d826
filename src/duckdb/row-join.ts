import { StreamEndedError } from "./stream-ended.js";
import type { ComparedRows } from "../checks/agreement/agreement.js";
import type { JoinRequest } from "../checks/agreement/matched-rows.js";
import type { ColumnType, FixedColumn, NamedColumn, SourceColumn } from "../columnar/types.js";
import type { DuckDBConnection } from "./instance.js";
import { readColumns } from "./parquet-schema.js";
import { csvRows } from "./csv-rows.js";
import { readColumn } from "./read-vector.js";
import { quotePaths } from "./sql.js";

export type JoinSide = "a" | "b";

/** A column of a table. Type undefined: no type that is known. */
export type JoinColumn = Pick<SourceColumn, "name" | "type">;

/**
 * Two tables of files in a DuckDB, which spills what does not fit in memory. A key column that is NULL equals
 * another one that is NULL.
 */
export interface RowJoin {
  readonly connection: DuckDBConnection;
  /** The memory limit of the DuckDB. */
  readonly memoryBytes: number;
  /** The columns of the tables that were loaded. */
  readonly columns: Record<JoinSide, readonly JoinColumn[]>;
}

interface LoadedRows {
  readonly groups: AsyncIterable<readonly string[]>;
  /** The columns of CSV files without a header; absent: the files are Parquet. */
  readonly columns?: readonly { readonly name: string; readonly type: ColumnType }[];
}

function parquetRows(paths: readonly string[]): string {
  return `read_parquet(${quotePaths(paths)}, hive_partitioning = false)`;
}

/** Loads files into a table, a group at a time, and returns its columns. */
export async function loadRows(
  { connection, columns }: RowJoin,
  side: JoinSide,
  { groups, columns: typed }: LoadedRows,
): Promise<readonly JoinColumn[]> {
  let isFirst = true;
  for await (const paths of groups) {
    const rows = `SELECT * FROM ${typed === undefined ? parquetRows(paths) : csvRows(typed, paths)}`;
    if (isFirst) {
      columns[side] = typed ?? (await readColumns(connection, paths[0] ?? ""));
    }
    await connection.run(isFirst ? `CREATE TEMP TABLE ${side} AS ${rows}` : `INSERT INTO ${side} ${rows}`);
    isFirst = false;
  }
  return columns[side];
}

/**
 * SQL for the number of a joined row: 53 bits of the hash of its key. So what is chosen by number depends on the rows
 * alone, not on the order in which DuckDB joined them. Two of 100 million rows may share a number; few are ever looked up.
 */
function rowNumber(key: readonly string[]): string {
  return `(hash(${key.map((_, index) => `k${index}`).join(", ")}) >> 11)::BIGINT`;
}

/** Yields the joined rows with these columns of both tables. @throws Error unless `expected` rows come */
export async function* readJoined(
  join: RowJoin,
  { key, columns }: Pick<JoinRequest, "key" | "columns">,
  expected: number,
): AsyncGenerator<ComparedRows> {
  const values = columns.flatMap((_, index) => [`a${index}`, `b${index}`]);
  const result = await join.connection.stream(`SELECT ${[rowNumber(key), ...values].join(", ")} FROM joined`);
  let rows = 0;
  for (let chunk = await result.fetchChunk(); chunk !== null && chunk.rowCount > 0; chunk = await result.fetchChunk()) {
    const one = chunk;
    const named = (side: JoinSide, offset: number): NamedColumn[] =>
      columns.map((name, index) => {
        const type = typeOf(join, side, name);
        if (type === undefined) {
          throw new RangeError(`column ${name} has no type that is known`);
        }
        return { name, type, column: readColumn(one, 1 + 2 * index + offset, type) };
      });
    const ids = readColumn(chunk, 0, "int64") as FixedColumn;
    const rowNumbers = Float64Array.from(ids.data as BigInt64Array, Number);
    rows += chunk.rowCount;
    yield { rowNumbers, one: named("a", 0), other: named("b", 1) };
  }
  if (rows !== expected) {
    throw new StreamEndedError(`${rows} joined rows came, expected ${expected}`);
  }
}

/** Reads the keys of joined rows, by number. */
export async function readKeys(
  join: RowJoin,
  key: readonly string[],
  rows: readonly number[],
): Promise<Map<number, Readonly<Record<string, string | null>>>> {
  const number = rowNumber(key);
  const casts = key.map((_, index) => `k${index}::VARCHAR`);
  const found =
    rows.length === 0
      ? []
      : await rowsOf(
          join,
          `SELECT ${[`${number}::DOUBLE`, ...casts].join(", ")} FROM joined WHERE ${number} IN (${rows.join(", ")})`,
        );
  return new Map(
    found.map(([row, ...values]) => {
      const texts = values.map((value) => (typeof value === "string" ? value : null));
      return [Number(row), Object.fromEntries(key.map((name, index) => [name, texts[index] ?? null]))];
    }),
  );
}

/** The type of a column of a side. */
export function typeOf({ columns }: RowJoin, side: JoinSide, name: string): SourceColumn["type"] {
  return columns[side].find((column) => column.name === name)?.type;
}

/** Runs a query with few rows. */
export async function rowsOf({ connection }: RowJoin, sql: string): Promise<unknown[][]> {
  return (await connection.runAndReadAll(sql)).getRows();
}
