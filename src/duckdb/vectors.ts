import { quoteName } from "../base/sql.js";
import {
  BIGINT,
  BLOB,
  BOOLEAN,
  DATE,
  DECIMAL,
  DOUBLE,
  DuckDBDataChunk,
  DuckDBDecimalType,
  DuckDBListType,
  DuckDBStructType,
  type DuckDBType,
  FLOAT,
  INTEGER,
  INTERVAL,
  LIST,
  SMALLINT,
  TIME,
  TIME_NS,
  TIMESTAMP,
  TIMESTAMP_NS,
  TIMESTAMPTZ,
  TIMETZ,
  TINYINT,
  UBIGINT,
  UINTEGER,
  USMALLINT,
  UTINYINT,
  UUID,
  VARCHAR,
} from "@duckdb/node-api";
import duckdb from "@duckdb/node-bindings";
import { createColumnBuilder } from "../columns/columns.js";
import {
  type BytesColumn,
  type Column,
  type ColumnType,
  type FixedColumn,
  layoutOfType,
  type ListColumn,
  type Matrix,
  type OutputRows,
  scalarTypes,
  type StructField,
} from "../columns/types.js";
import { allocate, bytesPerElement, copyValues, type ElementType, type Values, viewOf } from "../columns/values.js";
import { assertNever } from "../base/errors.js";
import type { DuckDBConnection } from "./instance.js";
import { sqlTypeOf } from "./sql.js";

type Vector = ReturnType<typeof duckdb.data_chunk_get_vector>;

/** Reads column `index` of a chunk. The binding copies its data, so the column outlives the chunk. */
export function readColumn(chunk: DuckDBDataChunk, index: number, type: ColumnType): Column {
  return readVector(duckdb.data_chunk_get_vector(chunk.chunk, index), type, chunk.rowCount);
}

/** Texts or bytes of a chunk, of which some rows can be read. */
export interface ChunkTexts {
  /** Where each row's bytes begin and end were all of them one behind the other: [rows + 1]. */
  readonly ends: Float64Array;
  /** Rows [from, to). */
  read(from: number, to: number): BytesColumn;
}

/** Column `index` of a chunk. Rows may share their bytes in DuckDB: read together they can take any memory. */
export function openTexts(chunk: DuckDBDataChunk, index: number): ChunkTexts {
  const vector = duckdb.data_chunk_get_vector(chunk.chunk, index);
  const texts = openBytes(vector, chunk.rowCount);
  const ends = new Float64Array(chunk.rowCount + 1);
  for (let row = 0; row < chunk.rowCount; row += 1) {
    ends[row + 1] = (ends[row] ?? 0) + texts.lengthAt(row);
  }
  return { ends, read: texts.read };
}

/** Whether column `index` of a chunk has this type. Reading a column as a wider type may read past its end. */
export function hasIntegerType(chunk: DuckDBDataChunk, index: number, type: "int64" | "uint64"): boolean {
  const vector = duckdb.data_chunk_get_vector(chunk.chunk, index);
  const wanted = type === "int64" ? duckdb.Type.BIGINT : duckdb.Type.UBIGINT;
  return duckdb.get_type_id(duckdb.vector_get_column_type(vector)) === wanted;
}

/** Reads column `index` of a chunk of scalars as a matrix of width 1. */
export function readScalars(chunk: DuckDBDataChunk, index: number, element: ElementType): Matrix {
  return {
    kind: "matrix",
    width: 1,
    ...view(duckdb.data_chunk_get_vector(chunk.chunk, index), element, chunk.rowCount),
  };
}

/**
 * Reads a LIST column, whose rows all have `width` elements, as a matrix. Rows whose elements do not follow each other in
 * the child vector are gathered; those that DuckDB itself packs do.
 * @throws Error when a row has another number of elements
 */
export function readMatrix(chunk: DuckDBDataChunk, index: number, element: ElementType, width: number): Matrix {
  const vector = duckdb.data_chunk_get_vector(chunk.chunk, index);
  const rows = chunk.rowCount;
  const words = listWords(vector, rows);
  const child = view(duckdb.list_vector_get_child(vector), element, duckdb.list_vector_get_size(vector));
  let inOrder = true;
  for (let row = 0; row < rows; row += 1) {
    const offset = words[row * 4] as number;
    if (words[row * 4 + 2] !== width || offset + width > child.data.length) {
      throw new Error(`DuckDB packed ${words[row * 4 + 2]} values into a row of ${width}`);
    }
    inOrder &&= offset === row * width;
  }
  if (inOrder) {
    const valid = child.valid?.subarray(0, rows * width);
    return { kind: "matrix", width, data: child.data.subarray(0, rows * width), valid };
  }
  const data = allocate(element, rows * width);
  const valid = child.valid === undefined ? undefined : new Uint8Array(rows * width);
  for (let row = 0; row < rows; row += 1) {
    const offset = words[row * 4] as number;
    copyValues(data, row * width, child.data, offset, offset + width);
    valid?.set(child.valid?.subarray(offset, offset + width) ?? [], row * width);
  }
  return { kind: "matrix", width, data, valid };
}

/** Four words for each row: a list entry is an offset and a length, of 64 bits each, of which the low 32 are enough. */
function listWords(vector: Vector, rows: number): Uint32Array {
  const bytes = duckdb.vector_get_data(vector, rows * 16);
  return new Uint32Array(bytes.buffer as ArrayBuffer, bytes.byteOffset, rows * 4);
}

function readVector(vector: Vector, type: ColumnType, rows: number): Column {
  const layout = layoutOfType(type);
  switch (layout.kind) {
    case "fixed":
      return {
        kind: "fixed",
        elementsPerValue: layout.elementsPerValue,
        ...view(vector, layout.element, rows * layout.elementsPerValue, layout.elementsPerValue),
      };
    case "bytes":
      return readBytes(vector, rows);
    case "list":
      return readList(vector, layout.element, rows);
    case "struct":
      return {
        kind: "struct",
        rowCount: rows,
        children: layout.fields.map((field, index) =>
          readVector(duckdb.struct_vector_get_child(vector, index), field.type, rows),
        ),
        valid: validBytes(vector, rows),
      };
    default:
      return assertNever(layout);
  }
}

function view(
  vector: Vector,
  element: ElementType,
  length: number,
  elementsPerValue = 1,
): { data: Values; valid: Uint8Array | undefined } {
  const bytes = duckdb.vector_get_data(vector, length * bytesPerElement(element));
  return {
    data: viewOf(element, bytes.buffer as ArrayBuffer, bytes.byteOffset, length),
    valid: validBytes(vector, length / elementsPerValue),
  };
}

/** A DuckDB string: 4 bytes of length, then the text itself if it has at most 12 bytes, else a pointer to it. */
const stringBytes = 16;
const inlineBytes = 12;
const pointerOffset = 8;

function readBytes(vector: Vector, rows: number): BytesColumn {
  return openBytes(vector, rows).read(0, rows);
}

interface VectorBytes extends Pick<ChunkTexts, "read"> {
  readonly lengthAt: (row: number) => number;
}

function openBytes(vector: Vector, rows: number): VectorBytes {
  const slots = duckdb.vector_get_data(vector, rows * stringBytes);
  const lengths = new Uint32Array(slots.buffer as ArrayBuffer, slots.byteOffset, rows * 4);
  const valid = validBytes(vector, rows);
  const lengthAt = (row: number): number => (valid?.[row] === 0 ? 0 : (lengths[row * 4] ?? 0));
  return {
    lengthAt,
    read(from, to) {
      const offsets = new Uint32Array(to - from + 1);
      for (let row = from; row < to; row += 1) {
        offsets[row - from + 1] = (offsets[row - from] ?? 0) + lengthAt(row);
      }
      return { kind: "bytes", offsets, bytes: bytesOf(slots, offsets, from), valid: valid?.subarray(from, to) };
    },
  };
}

/** The bytes that slots from slot `first` on hold, or point to. */
function bytesOf(slots: Uint8Array, offsets: Uint32Array, first: number): Uint8Array {
  const rows = offsets.length - 1;
  const bytes = new Uint8Array(offsets[rows] ?? 0);
  for (let row = 0; row < rows; row += 1) {
    const at = offsets[row] ?? 0;
    const length = (offsets[row + 1] ?? 0) - at;
    const slot = (first + row) * stringBytes;
    if (length > inlineBytes) {
      bytes.set(
        duckdb.get_data_from_pointer(slots.buffer as ArrayBuffer, slots.byteOffset + slot + pointerOffset, length),
        at,
      );
    } else {
      for (let index = 0; index < length; index += 1) {
        bytes[at + index] = slots[slot + 4 + index] as number;
      }
    }
  }
  return bytes;
}

/** Reads a LIST column; its rows need not follow each other in the child vector. */
function readList(vector: Vector, element: ColumnType, rows: number): ListColumn {
  const words = listWords(vector, rows);
  const child = readVector(duckdb.list_vector_get_child(vector), element, duckdb.list_vector_get_size(vector));
  const valid = validBytes(vector, rows);
  const offsets = new Uint32Array(rows + 1);
  let inOrder = true;
  for (let row = 0; row < rows; row += 1) {
    const length = valid?.[row] === 0 ? 0 : (words[row * 4 + 2] ?? 0);
    inOrder &&= length === 0 || words[row * 4] === offsets[row];
    offsets[row + 1] = (offsets[row] ?? 0) + length;
  }
  if (inOrder) {
    return { kind: "list", offsets, child, valid };
  }
  const gathered = createColumnBuilder(element, offsets[rows] ?? 0);
  for (let row = 0; row < rows; row += 1) {
    const length = (offsets[row + 1] ?? 0) - (offsets[row] ?? 0);
    if (length > 0) {
      const from = words[row * 4] ?? 0;
      gathered.append(child, from, from + length);
    }
  }
  return { kind: "list", offsets, child: gathered.finish(), valid };
}

/** DuckDB's validity mask has one bit for each value, in 64-bit words, lowest first; without a mask there is no NULL. */
function validBytes(vector: Vector, length: number): Uint8Array | undefined {
  const mask: Uint8Array | null = duckdb.vector_get_validity(vector, Math.ceil(length / 64) * 8);
  if (mask === null || allSet(mask, length)) {
    return undefined;
  }
  const valid = new Uint8Array(length);
  for (let index = 0; index < length; index += 1) {
    valid[index] = ((mask[index >> 3] ?? 0) >> (index & 7)) & 1;
  }
  return valid;
}

function allSet(mask: Uint8Array, length: number): boolean {
  const whole = length >> 3;
  for (let index = 0; index < whole; index += 1) {
    if (mask[index] !== 0xff) {
      return false;
    }
  }
  const rest = (1 << (length & 7)) - 1;
  return ((mask[whole] ?? 0) & rest) === rest;
}

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

const scalars = new Map<string, DuckDBType>(
  // biome-ignore format: one list
  [
    BOOLEAN, TINYINT, SMALLINT, INTEGER, BIGINT, UTINYINT, USMALLINT, UINTEGER, UBIGINT, FLOAT, DOUBLE, VARCHAR,
    BLOB, UUID, DATE, TIME, TIME_NS, TIMETZ, TIMESTAMP, TIMESTAMP_NS, TIMESTAMPTZ, INTERVAL,
  ].map((type) => [String(type), type]),
);

const scalarOf = new Map(scalarTypes.map((type) => [duckDbTypeOf(type).typeId, type]));

/** The DuckDB type of a column type. */
export function duckDbTypeOf(type: ColumnType): DuckDBType {
  if (typeof type === "string") {
    return scalars.get(sqlTypeOf(type)) as DuckDBType;
  }
  switch (type.kind) {
    case "decimal":
      return DECIMAL(type.precision, type.scale);
    case "list":
      return LIST(duckDbTypeOf(type.element));
    case "struct":
      // Not STRUCT({…}): objects order keys that look like numbers first.
      return new DuckDBStructType(
        type.fields.map(({ name }) => name),
        type.fields.map((field) => duckDbTypeOf(field.type)),
      );
    default:
      return assertNever(type);
  }
}

/** The column type of a DuckDB type; undefined for maps, unions, variants and others without one. */
export function columnTypeOf(type: DuckDBType): ColumnType | undefined {
  if (type instanceof DuckDBDecimalType) {
    return { kind: "decimal", precision: type.width, scale: type.scale };
  }
  if (type instanceof DuckDBListType) {
    const element = columnTypeOf(type.valueType);
    return element === undefined ? undefined : { kind: "list", element };
  }
  if (type instanceof DuckDBStructType) {
    const fields = type.entryNames.map((name, index) => structField(name, type.entryTypes[index]));
    return fields.every((field) => field !== undefined) ? { kind: "struct", fields } : undefined;
  }
  return scalarOf.get(type.typeId);
}

function structField(name: string, type: DuckDBType | undefined): StructField | undefined {
  const fieldType = type === undefined ? undefined : columnTypeOf(type);
  return fieldType === undefined ? undefined : { name, type: fieldType };
}
