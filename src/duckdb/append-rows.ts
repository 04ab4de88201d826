import { DuckDBDataChunk } from "@duckdb/node-api";
import type { OutputRows } from "../columnar/types.js";
import type { DuckDBConnection } from "./instance.js";
import { quoteName, sqlTypeOf } from "./sql.js";
import { duckDbTypeOf } from "./types.js";
import { writeColumn } from "./write-vector.js";

/** The number of rows of one DuckDB vector. */
const chunkRows = 2048;

/** Creates a temporary table with these rows in a connection. @param table a name that needs no quotes */
export async function createTable(connection: DuckDBConnection, table: string, rows: OutputRows): Promise<void> {
  const definitions = rows.columns.map(({ name, type }) => `${quoteName(name)} ${sqlTypeOf(type)}`);
  await connection.run(`CREATE TEMP TABLE ${table} (${definitions.join(", ")})`);
  await appendRows(connection, table, rows);
}

/** Adds rows to a table of the same columns. @param table a name that needs no quotes */
export async function appendRows(connection: DuckDBConnection, table: string, rows: OutputRows): Promise<void> {
  const appender = await connection.createAppender(table);
  const chunk = DuckDBDataChunk.create(rows.columns.map(({ type }) => duckDbTypeOf(type)));
  for (let from = 0; from < rows.rowCount; from += chunkRows) {
    const to = Math.min(from + chunkRows, rows.rowCount);
    chunk.reset();
    for (const [index, { column }] of rows.columns.entries()) {
      writeColumn(chunk, index, column, { from, to });
    }
    chunk.rowCount = to - from;
    appender.appendDataChunk(chunk);
  }
  appender.closeSync();
}
