import type { ComparedRows } from "../checks/agreement/agreement.js";
import type { JoinRequest, MatchedRows } from "../checks/agreement/matched-rows.js";
import type { ColumnType, FixedColumn, NamedColumn, SourceColumn } from "../columnar/types.js";
import type { DuckDBConnection } from "./instance.js";
import { readColumns } from "./parquet-schema.js";
import { csvRows } from "./csv-rows.js";
import { readColumn } from "./read-vector.js";
import { quoteName, quotePaths } from "./sql.js";

export type JoinSide = "a" | "b";

/** A column of a table. Type undefined: no type that is known. */
export type JoinColumn = Pick<SourceColumn, "name" | "type">;

/**
 * Two tables of files in a DuckDB, which spills what does not fit in memory. A key column that is NULL equals
 * another one that is NULL.
 */
export interface RowJoin {
  readonly connection: DuckDBConnection;
  /** The columns of the tables that were loaded. */
  readonly columns: Record<JoinSide, readonly JoinColumn[]>;
}

/** The number of repeated keys that are named. */
const shownKeys = 5;

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

/** Counts the rows of both tables by their keys. */
export async function matchRows(join: RowJoin, key: readonly string[]): Promise<MatchedRows> {
  const names = key.map(quoteName).join(", ");
  const side = (table: JoinSide): string =>
    `SELECT ${names}, ${table === "a" ? 1 : 0} AS "in a", ${table === "b" ? 1 : 0} AS "in b" FROM ${table}`;
  await join.connection.run(
    `CREATE TEMP TABLE keys AS SELECT ${names}, sum("in a")::BIGINT AS "in a", sum("in b")::BIGINT AS "in b"
     FROM (${side("a")} UNION ALL ${side("b")}) GROUP BY ${names}`,
  );
  const isRepeated = `("in a" > 1 OR "in b" > 1)`;
  const [counts = []] = await rowsOf(
    join,
    `SELECT sum("in a"), sum("in b"),
       sum("in a") FILTER (WHERE "in b" = 0), sum("in b") FILTER (WHERE "in a" = 0),
       count(*) FILTER (WHERE "in a" = 1 AND "in b" = 1), count(*) FILTER (WHERE ${isRepeated}),
       count(*) FILTER (WHERE ${isRepeated} AND "in a" <> "in b") FROM keys`,
  );
  const [rowsA = 0, rowsB = 0, onlyA = 0, onlyB = 0, matched = 0, repeated = 0, uneven = 0] = counts.map(Number);
  const examples = await rowsOf(
    join,
    `SELECT ${shownKey(key)}, "in a"::DOUBLE, "in b"::DOUBLE FROM keys WHERE ${isRepeated}
     ORDER BY abs("in a" - "in b") DESC, 1 LIMIT ${shownKeys}`,
  );
  return {
    rowsA,
    rowsB,
    onlyA,
    onlyB,
    matched,
    repeated,
    uneven,
    examples: examples.map(([text, a, b]) => ({ key: String(text), a: Number(a), b: Number(b) })),
  };
}

/** Joins the rows of the keys that are once in each table. Returns how many differ in one of the columns. */
export async function joinRows(join: RowJoin, { key, columns, tolerance }: JoinRequest): Promise<number> {
  const equal = (one: string, other: string): string =>
    key.map((name) => `${one}.${quoteName(name)} IS NOT DISTINCT FROM ${other}.${quoteName(name)}`).join(" AND ");
  const values = columns.flatMap((name, index) => [
    `a.${quoteName(name)} AS a${index}`,
    `b.${quoteName(name)} AS b${index}`,
  ]);
  const keys = key.map((name, index) => `a.${quoteName(name)} AS k${index}`);
  await join.connection.run(
    `CREATE TEMP TABLE joined AS SELECT ${[...keys, ...values].join(", ")} FROM a JOIN b ON ${equal("a", "b")}
     JOIN keys ON ${equal("a", "keys")} WHERE "in a" = 1 AND "in b" = 1`,
  );
  const isFloat = (name: string): boolean => {
    const type = typeOf(join, "a", name);
    return type === "float32" || type === "float64";
  };
  const differs = columns.map((name, index) =>
    isFloat(name) && tolerance > 0
      ? `(a${index} IS DISTINCT FROM b${index} AND coalesce(abs(a${index}::DOUBLE - b${index}::DOUBLE) > ${tolerance}, true))`
      : `a${index} IS DISTINCT FROM b${index}`,
  );
  const [[changed] = []] = await rowsOf(
    join,
    `SELECT count(*)::DOUBLE FROM joined WHERE ${differs.length === 0 ? "false" : differs.join(" OR ")}`,
  );
  return Number(changed);
}

/** Yields the joined rows with these columns of both tables. @throws Error unless `expected` rows come */
export async function* readJoined(
  join: RowJoin,
  columns: readonly string[],
  expected: number,
): AsyncGenerator<ComparedRows> {
  const values = columns.flatMap((_, index) => [`a${index}`, `b${index}`]);
  const result = await join.connection.stream(`SELECT ${["rowid", ...values].join(", ")} FROM joined`);
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
    throw new Error(`${rows} joined rows came, expected ${expected}`); // streams of DuckDB end silently on an error
  }
}

/** Reads the keys of joined rows, by number. */
export async function readKeys(
  join: RowJoin,
  key: readonly string[],
  rows: readonly number[],
): Promise<Map<number, Readonly<Record<string, string | null>>>> {
  const casts = key.map((_, index) => `k${index}::VARCHAR`);
  const found =
    rows.length === 0
      ? []
      : await rowsOf(
          join,
          `SELECT ${["rowid::DOUBLE", ...casts].join(", ")} FROM joined WHERE rowid IN (${rows.join(", ")})`,
        );
  return new Map(
    found.map(([row, ...values]) => {
      const texts = values.map((value) => (typeof value === "string" ? value : null));
      return [Number(row), Object.fromEntries(key.map((name, index) => [name, texts[index] ?? null]))];
    }),
  );
}

function typeOf({ columns }: RowJoin, side: JoinSide, name: string): SourceColumn["type"] {
  return columns[side].find((column) => column.name === name)?.type;
}

async function rowsOf({ connection }: RowJoin, sql: string): Promise<unknown[][]> {
  return (await connection.runAndReadAll(sql)).getRows();
}

function shownKey(key: readonly string[]): string {
  return `concat_ws(', ', ${key.map((name) => `coalesce(left(${quoteName(name)}::VARCHAR, 60), 'NULL')`).join(", ")})`;
}
