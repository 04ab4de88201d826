import { quoteName } from "../../base/sql.js";
import { DuckDBDataChunk } from "@duckdb/node-api";
import type { Column, ColumnType, Piece, RecordBatch } from "../../columns/types.js";
import type { DuckDBConnection } from "../../duckdb/instance.js";
import { duckDbTypeOf, writeColumn } from "../../duckdb/vectors.js";
import { sqlTypeOf } from "../../duckdb/sql.js";
import type { MemoryBudget } from "../../base/memory-budget.js";
import type { SliceRequest } from "../format.js";
import { checkRowNumbers, recordBatches, streamChunks } from "./chunks.js";
import { fileRowNumber, sliceSql } from "./slice-sql.js";

/* Rows that are in memory, as a table of DuckDB: what takes more than copying is computed there. */

/** Rows of one DuckDB vector. */
const vectorRows = 2048;

/** A temporary table; each connection has one at most, so that its name is free. */
export const rowsTableName = "held_rows";

export type TableColumns = ReadonlyMap<string, ColumnType>;

export async function createRowsTable(connection: DuckDBConnection, columns: TableColumns): Promise<void> {
  const definitions = Array.from(columns, ([name, type]) => `${quoteName(name)} ${sqlTypeOf(type)}`);
  await connection.run(
    `CREATE OR REPLACE TEMP TABLE ${rowsTableName} (${[`${fileRowNumber} BIGINT`, ...definitions].join(", ")})`,
  );
}

/** Adds rows of a piece, with their numbers. */
export async function appendPiece(connection: DuckDBConnection, columns: TableColumns, piece: Piece): Promise<void> {
  const appender = await connection.createAppender(rowsTableName);
  const chunk = DuckDBDataChunk.create([duckDbTypeOf("int64"), ...Array.from(columns.values(), duckDbTypeOf)]);
  const rows = piece.rowEnd - piece.rowStart;
  const numbers = new BigInt64Array(rows);
  for (let row = 0; row < rows; row += 1) {
    numbers[row] = BigInt(piece.rowStart + row);
  }
  const values: Column[] = [{ kind: "fixed", elementsPerValue: 1, data: numbers, valid: undefined }];
  for (const name of columns.keys()) {
    const column = piece.columns.get(name);
    if (column === undefined) {
      throw new RangeError(`column ${name} was not read`);
    }
    values.push(column);
  }
  for (let from = 0; from < rows; from += vectorRows) {
    const to = Math.min(from + vectorRows, rows);
    chunk.reset();
    for (const [index, column] of values.entries()) {
      writeColumn(chunk, index, column, { from, to });
    }
    chunk.rowCount = to - from;
    appender.appendDataChunk(chunk);
  }
  appender.closeSync();
}

/** What a projection makes of the rows of a piece. Their expressions were checked before. */
export async function* readByTable(
  connection: DuckDBConnection,
  { piece, columns, memory }: { readonly piece: Piece; readonly columns: TableColumns; readonly memory: MemoryBudget },
  slice: SliceRequest,
): AsyncGenerator<RecordBatch> {
  await createRowsTable(connection, columns);
  await appendPiece(connection, columns, piece);
  const { rowStart, rowEnd } = piece;
  let next = rowStart;
  for await (const chunk of streamChunks(connection, sliceSql({ ...slice, rowStart, rowEnd }, rowsTableName))) {
    checkRowNumbers(chunk, next, slice);
    next += chunk.rowCount;
    for (const { batch } of recordBatches(chunk, slice.projection, memory)) {
      yield batch;
    }
  }
}
