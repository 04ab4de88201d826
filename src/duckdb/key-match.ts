import { quoteName } from "../base/sql.js";
import { createColumnBuilder } from "../columns/columns.js";
import type { BytesColumn, Column, ColumnType, OutputRows } from "../columns/types.js";
import { createTable } from "./vectors.js";
import type { DuckDBConnection } from "./instance.js";
import { quotePath, sqlTypeOf } from "./sql.js";
import { readRows } from "./stored-rows.js";

/** A column by which rows are found. */
export interface KeyColumn {
  readonly name: string;
  readonly type: ColumnType;
}

/** A table of keys in a DuckDB, with the types of the columns that they are values of. */
export interface KeyTable {
  readonly connection: DuckDBConnection;
  readonly columns: readonly KeyColumn[];
}

/** Loads keys into a table. Returns the index of the first that is no value of its column's type; undefined: none. */
export async function loadKeys(
  { connection, columns }: KeyTable,
  keys: readonly (readonly string[])[],
): Promise<number | undefined> {
  await createTable(connection, "key_texts", {
    rowCount: keys.length,
    columns: [
      { name: "n", type: "int32", column: numbered(keys.length) },
      ...columns.map((_, index) => ({
        name: `k${index}`,
        type: "utf8" as const,
        column: textColumn(keys.map((key) => key[index] ?? null)),
      })),
    ],
  });
  const casts = columns.map(
    ({ type }, index) =>
      `CASE WHEN ${isExactSql(type, `k${index}`)} THEN try_cast(k${index} AS ${sqlTypeOf(type)}) END AS k${index}`,
  );
  await connection.run(`CREATE TEMP TABLE keys AS SELECT n, ${casts.join(", ")} FROM key_texts`);
  await connection.run("DROP TABLE key_texts");
  const isWrong = columns.map((_, index) => `k${index} IS NULL`).join(" OR ");
  const [[wrong] = []] = (await connection.runAndReadAll(`SELECT min(n) FROM keys WHERE ${isWrong}`)).getRows();
  return wrong === null || wrong === undefined ? undefined : Number(wrong);
}

/** Whether a text is a value of the type as it is: casts round numbers, and cut times off dates. */
function isExactSql(type: ColumnType, text: string): string {
  const matches = (pattern: string): string => `regexp_full_match(trim(${text}), '${pattern}')`;
  if (typeof type === "object") {
    return type.kind === "decimal" ? matches(`[+-]?[0-9]*([.][0-9]{0,${type.scale}}0*)?`) : "true";
  }
  return /^u?int/.test(type) ? matches("[+-]?[0-9]+") : type === "date32" ? matches("[0-9+-]+") : "true";
}

/** Finds the rows of a Parquet file that have one of the keys: their numbers, ascending, and the keys' indexes. */
export async function keyedRows(
  table: KeyTable,
  path: string,
): Promise<{ readonly rows: readonly number[]; readonly keys: readonly number[] }> {
  const file = `read_parquet(${quotePath(path)}, hive_partitioning = false, file_row_number = true)`;
  const names = table.columns.map(({ name }) => quoteName(name));
  return await matched(table, { names, number: "file_row_number", rows: file });
}

/** Finds the rejected rows that have one of the keys. @param texts the key columns of each, as text */
export async function keyedTexts(
  table: KeyTable,
  texts: readonly Readonly<Record<string, string | null>>[],
): Promise<{ readonly rows: readonly number[]; readonly keys: readonly number[] }> {
  const { connection, columns } = table;
  if (texts.length === 0) {
    return { rows: [], keys: [] };
  }
  await createTable(connection, "rejected", {
    rowCount: texts.length,
    columns: [
      { name: "row", type: "int32", column: numbered(texts.length) },
      ...columns.map(({ name }, index) => ({
        name: `c${index}`,
        type: "utf8" as const,
        column: textColumn(texts.map((row) => row[name] ?? null)),
      })),
    ],
  });
  const casts = columns.map(({ type }, index) => `try_cast(c${index} AS ${sqlTypeOf(type)}) AS c${index}`);
  const names = columns.map((_, index) => `c${index}`);
  try {
    return await matched(table, { names, number: "row", rows: `(SELECT "row", ${casts.join(", ")} FROM rejected)` });
  } finally {
    await connection.run("DROP TABLE rejected");
  }
}

/** Finds the rows of a table that have one of the keys. @param names of the key's columns there */
async function matched(
  { connection }: KeyTable,
  { names, number, rows }: { readonly names: readonly string[]; readonly number: string; readonly rows: string },
): Promise<{ readonly rows: readonly number[]; readonly keys: readonly number[] }> {
  const isKey = names.map((name, index) => `r.${name} = keys.k${index}`).join(" AND ");
  const sql = `SELECT r."${number}"::DOUBLE, keys.n FROM ${rows} AS r JOIN keys ON ${isKey}`;
  const found = (await connection.runAndReadAll(sql)).getRows();
  return {
    rows: [...new Set(found.map(([row]) => Number(row)))].toSorted((one, other) => one - other),
    keys: [...new Set(found.map(([, key]) => Number(key)))],
  };
}

/** As many rows as DuckDB writes into a row group, and at most about so many bytes. */
const pieceRows = 122_880;
const pieceBytes = 64 * 1024 ** 2;

/**
 * Yields the rows of a Parquet file in order, without some of them; at least once, with no rows if none is left.
 * @param without numbers of rows, ascending
 * @throws Error when fewer rows come than the file has
 */
export async function* rowsWithout(
  connection: DuckDBConnection,
  path: string,
  { columns, without }: { readonly columns: readonly KeyColumn[]; readonly without: readonly number[] },
): AsyncGenerator<OutputRows> {
  const file = quotePath(path);
  const [[due] = []] = (
    await connection.runAndReadAll(`SELECT num_rows::DOUBLE FROM parquet_file_metadata(${file})`)
  ).getRows();
  let piece = createPiece(columns);
  let from = 0;
  let next = 0;
  for await (const chunk of readRows(connection, columns, `read_parquet(${file}, hive_partitioning = false)`)) {
    const read = chunk.columns.map(({ column }) => column);
    let start = 0;
    for (; next < without.length && (without[next] as number) < from + chunk.rowCount; next += 1) {
      const row = (without[next] as number) - from;
      piece.append(read, start, row);
      start = row + 1;
    }
    piece.append(read, start, chunk.rowCount);
    from += chunk.rowCount;
    if (piece.isFull()) {
      yield piece.finish();
      piece = createPiece(columns);
    }
  }
  if (from !== due) {
    throw new Error(`${from} rows of ${path} came, expected ${String(due)}`); // streams of DuckDB end silently on an error
  }
  yield piece.finish();
}

function createPiece(columns: readonly KeyColumn[]): {
  append(read: readonly Column[], from: number, to: number): void;
  isFull(): boolean;
  finish(): OutputRows;
} {
  const builders = columns.map(({ type }) => createColumnBuilder(type, 0));
  const rowCount = (): number => builders[0]?.rowCount ?? 0;
  return {
    append(read, from, to) {
      for (const [index, builder] of builders.entries()) {
        const column = read[index];
        if (column !== undefined && from < to) {
          builder.append(column, from, to);
        }
      }
    },
    isFull: () => rowCount() >= pieceRows || builders.reduce((sum, { bytes }) => sum + bytes, 0) >= pieceBytes,
    finish() {
      const rows = rowCount();
      return {
        rowCount: rows,
        columns: columns.map((column, index) => {
          const builder = builders[index];
          if (builder === undefined) {
            throw new RangeError(`column ${column.name} has no builder`);
          }
          return { ...column, column: builder.finish() };
        }),
      };
    },
  };
}

function numbered(rows: number): {
  kind: "fixed";
  elementsPerValue: 1;
  data: Int32Array<ArrayBuffer>;
  valid: undefined;
} {
  return {
    kind: "fixed",
    elementsPerValue: 1,
    data: Int32Array.from({ length: rows }, (_, row) => row),
    valid: undefined,
  };
}

function textColumn(texts: readonly (string | null)[]): BytesColumn {
  const parts = texts.map((text) => Buffer.from(text ?? "", "utf8"));
  const offsets = new Uint32Array(texts.length + 1);
  for (const [index, part] of parts.entries()) {
    offsets[index + 1] = (offsets[index] ?? 0) + part.length;
  }
  const valid = texts.includes(null) ? Uint8Array.from(texts, (text) => (text === null ? 0 : 1)) : undefined;
  return { kind: "bytes", offsets, bytes: new Uint8Array(Buffer.concat(parts)), valid };
}
