import duckdb from "@duckdb/node-bindings";
import { DuckDBDataChunk } from "@duckdb/node-api";
import type { BytesColumn, Column, FixedColumn, ListColumn, OutputRows } from "../columnar/types.js";
import type { DuckDBConnection } from "./instance.js";
import { quoteName, sqlTypeOf } from "./sql.js";
import { duckDbTypeOf } from "./types.js";

type Vector = ReturnType<typeof duckdb.data_chunk_get_vector>;

interface Range {
  readonly from: number;
  readonly to: number;
}

/** Writes rows [from, to) of a column into column `index` of a chunk, which has the same type. */
export function writeColumn(chunk: DuckDBDataChunk, index: number, column: Column, range: Range): void {
  writeVector(duckdb.data_chunk_get_vector(chunk.chunk, index), column, range);
}

function writeVector(vector: Vector, column: Column, range: Range): void {
  writeValidity(vector, column.valid, range);
  switch (column.kind) {
    case "fixed":
      writeFixed(vector, column, range);
      break;
    case "bytes":
      writeBytes(vector, column, range);
      break;
    case "list":
      writeList(vector, column, range);
      break;
    case "struct":
      for (const [index, child] of column.children.entries()) {
        writeVector(duckdb.struct_vector_get_child(vector, index), child, range);
      }
      break;
  }
}

function writeValidity(vector: Vector, valid: Uint8Array | undefined, { from, to }: Range): void {
  if (valid === undefined) {
    return;
  }
  const words = new Uint8Array(Math.ceil((to - from) / 64) * 8);
  for (let row = from; row < to; row += 1) {
    const bit = row - from;
    words[bit >> 3] = (words[bit >> 3] ?? 0) | ((valid[row] ?? 0) << (bit & 7));
  }
  duckdb.vector_ensure_validity_writable(vector);
  duckdb.copy_data_to_vector_validity(vector, 0, words.buffer, 0, words.byteLength);
}

function writeFixed(vector: Vector, { data, elementsPerValue }: FixedColumn, { from, to }: Range): void {
  const size = data.BYTES_PER_ELEMENT * elementsPerValue;
  duckdb.copy_data_to_vector(vector, 0, data.buffer, data.byteOffset + from * size, (to - from) * size);
}

const stringBytes = 16;
const inlineBytes = 12;

/** Writes short texts into their slots, as DuckDB stores them, and passes longer ones to DuckDB one by one. */
function writeBytes(vector: Vector, { offsets, bytes, valid }: BytesColumn, { from, to }: Range): void {
  const slots = new Uint8Array((to - from) * stringBytes);
  const lengths = new Uint32Array(slots.buffer);
  const long: number[] = [];
  for (let row = from; row < to; row += 1) {
    const start = offsets[row] ?? 0;
    const length = (offsets[row + 1] ?? 0) - start;
    if (valid?.[row] === 0) {
      continue;
    }
    if (length > inlineBytes) {
      long.push(row);
      continue;
    }
    const slot = (row - from) * stringBytes;
    lengths[slot >> 2] = length;
    for (let index = 0; index < length; index += 1) {
      slots[slot + 4 + index] = bytes[start + index] as number;
    }
  }
  duckdb.copy_data_to_vector(vector, 0, slots.buffer, 0, slots.byteLength);
  for (const row of long) {
    duckdb.vector_assign_string_element_len(vector, row - from, bytes.subarray(offsets[row], offsets[row + 1]));
  }
}

function writeList(vector: Vector, { offsets, child }: ListColumn, { from, to }: Range): void {
  const first = offsets[from] ?? 0;
  const length = (offsets[to] ?? 0) - first;
  const entries = new BigUint64Array((to - from) * 2);
  for (let row = from; row < to; row += 1) {
    const start = offsets[row] ?? 0;
    entries[(row - from) * 2] = BigInt(start - first);
    entries[(row - from) * 2 + 1] = BigInt((offsets[row + 1] ?? 0) - start);
  }
  duckdb.copy_data_to_vector(vector, 0, entries.buffer, 0, entries.byteLength);
  duckdb.list_vector_reserve(vector, length);
  duckdb.list_vector_set_size(vector, length);
  writeVector(duckdb.list_vector_get_child(vector), child, { from: first, to: first + length });
}

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
