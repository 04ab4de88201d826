import type { DuckDBDataChunk, DuckDBType } from "@duckdb/node-api";
import { exactText, jsonOf } from "../../columnar/json-text.js";
import type { ColumnType } from "../../columnar/types.js";
import { columnTypeOf, readColumn } from "../../duckdb/vectors.js";
import { columnSql } from "./cast-sql.js";
import type { ExpressionCheck } from "./expressions.js";
import { fromRows, rowNumberColumn, someRows } from "./slice-sql.js";
import type { Decoder } from "../port.js";
import type { ShardTables } from "./shard-tables.js";

/** Reads values of some rows as texts, from a shard of any format. */
export async function describeRows(
  tables: ShardTables,
  check: ExpressionCheck,
  request: Parameters<Decoder["describeRows"]>[0],
): ReturnType<Decoder["describeRows"]> {
  const { file, rows, columns, partitions, expressions } = request;
  await check.all(expressions);
  const values = columns.map((column) => columnSql(column, partitions));
  // NULL for what DuckDB cannot write as text; the values themselves come behind the texts.
  const texts = values.map((value) => `CASE WHEN NOT ${hasTimes(value)} THEN TRY(CAST(${value} AS VARCHAR)) END`);
  const folders = expressions?.folders.map(({ name }) => name) ?? [];
  const uses = expressions?.list.flatMap((expression) => expression.uses) ?? [];
  const wanted = new Map<string, ColumnType | undefined>();
  for (const { path, type, partition, computed } of columns) {
    if (partition !== true && computed !== true) {
      wanted.set(path[0] ?? "", path.length === 1 ? type : undefined);
    }
  }
  for (const name of uses) {
    if (!folders.includes(name) && !wanted.has(name)) {
      wanted.set(name, undefined);
    }
  }
  const read = Array.from(wanted, ([name, type]) => ({ name, type }));
  return await tables.use(file, { rows, columns: read }, async (connection, table) => {
    const selected = [rowNumberColumn, ...texts, ...values].join(", ");
    const result = await connection.run(
      `SELECT ${selected} ${fromRows({ table, expressions, partitions }, someRows(rows))}`,
    );
    const types = result.columnTypes();
    const described = new Map<number, (string | null)[]>();
    for (const chunk of await result.fetchAllChunks()) {
      for (let row = 0; row < chunk.rowCount; row += 1) {
        const shown = columns.map((_, index) => {
          const [text, value] = [index + 1, index + 1 + columns.length];
          const found = chunk.getColumnVector(text).getItem(row);
          const type = types[value];
          const isShown = typeof found === "string" && !(found.includes("infinity") && isOfNanos(type));
          return isShown ? found : ownText(chunk, value, { type, row });
        });
        described.set(Number(chunk.getColumnVector(0).getItem(row)), shown);
      }
    }
    return described;
  });
}

/** Whether a type has times of day in it: DuckDB ends the process where it writes one below 0 or above 24 hours. */
function hasTimes(value: string): string {
  return `regexp_matches(replace(typeof(${value}), 'WITH TIME ZONE', ''), '\\bTIME(_NS)?\\b')`;
}

/** DuckDB calls the first and the last nanosecond infinite. */
function isOfNanos(type: DuckDBType | undefined): boolean {
  return String(type).includes("TIMESTAMP_NS");
}

/** A value that DuckDB does not show; null for NULL. */
function ownText(
  chunk: DuckDBDataChunk,
  column: number,
  { type, row }: { readonly type: DuckDBType | undefined; readonly row: number },
): string | null {
  if (chunk.getColumnVector(column).getItem(row) === null) {
    return null;
  }
  const known = type === undefined ? undefined : columnTypeOf(type);
  if (known === undefined) {
    return `a ${String(type)}`;
  }
  const values = readColumn(chunk, column, known);
  return exactText(known, values, row) ?? jsonOf(known, values, row);
}
