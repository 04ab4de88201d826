import {
  BIGINT,
  type DuckDBDataChunk,
  type DuckDBType,
  DOUBLE,
  FLOAT,
  INTEGER,
  SMALLINT,
  TINYINT,
  UBIGINT,
  UINTEGER,
  USMALLINT,
  UTINYINT,
} from "@duckdb/node-api";
import duckdb from "@duckdb/node-bindings";
import { allocate, bytesPerElement, type ColumnType, columnTypes, type Values, viewOf } from "../batch/types.js";

type Vector = ReturnType<typeof duckdb.data_chunk_get_vector>;

const duckDbTypes: Readonly<Record<ColumnType, DuckDBType>> = {
  int8: TINYINT,
  int16: SMALLINT,
  int32: INTEGER,
  int64: BIGINT,
  uint8: UTINYINT,
  uint16: USMALLINT,
  uint32: UINTEGER,
  uint64: UBIGINT,
  float32: FLOAT,
  float64: DOUBLE,
};

const bySqlType = new Map(columnTypes.map((type) => [String(duckDbTypes[type]), type]));

export function duckDbTypeOf(type: ColumnType): DuckDBType {
  return duckDbTypes[type];
}

/** "BIGINT" for int64. */
export function sqlTypeOf(type: ColumnType): string {
  return String(duckDbTypes[type]);
}

/** The column type of a DuckDB type name, or undefined where none fits. */
export function columnTypeOf(sqlType: string): ColumnType | undefined {
  return bySqlType.get(sqlType);
}

/** Integers, floats and decimals. */
export function isNumericSqlType(sqlType: string): boolean {
  return bySqlType.has(sqlType) || sqlType.startsWith("DECIMAL(") || sqlType === "HUGEINT" || sqlType === "UHUGEINT";
}

export interface VectorView {
  /** DuckDB's own memory: gone with the chunk. */
  readonly data: Values;
  /** One byte an element, 0 = NULL; undefined when none is NULL. A copy. */
  readonly valid: Uint8Array | undefined;
}

/** Column `index` of a chunk: its values without a copy. */
export function flatView(chunk: DuckDBDataChunk, index: number, type: ColumnType): VectorView {
  return viewVector(duckdb.data_chunk_get_vector(chunk.chunk, index), type, chunk.rowCount);
}

/** The child of a LIST column whose every row holds `width` elements: rows * width values, row-major. */
export function listChildView(chunk: DuckDBDataChunk, index: number, type: ColumnType, width: number): VectorView {
  const list = duckdb.data_chunk_get_vector(chunk.chunk, index);
  const length = duckdb.list_vector_get_size(list);
  if (length !== chunk.rowCount * width) {
    throw new Error(`DuckDB packed ${length} values where ${chunk.rowCount} rows of ${width} were expected`);
  }
  return viewVector(duckdb.list_vector_get_child(list), type, length);
}

function viewVector(vector: Vector, type: ColumnType, length: number): VectorView {
  const bytes = duckdb.vector_get_data(vector, length * bytesPerElement(type));
  return {
    data: viewOf(type, bytes.buffer as ArrayBuffer, bytes.byteOffset, length),
    valid: validBytes(vector, length),
  };
}

/** DuckDB keeps one bit an element in 64-bit words, least significant first; no mask at all means no NULL. */
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

/** Fills column `index` of a chunk that is to be appended with `values[from, to)`. */
export function fillColumn(
  chunk: DuckDBDataChunk,
  index: number,
  values: Values,
  valid: Uint8Array | undefined,
  range: { from: number; to: number },
): void {
  const vector = duckdb.data_chunk_get_vector(chunk.chunk, index);
  const { from, to } = range;
  const size = values.BYTES_PER_ELEMENT;
  duckdb.copy_data_to_vector(vector, 0, values.buffer, values.byteOffset + from * size, (to - from) * size);
  if (valid !== undefined) {
    const words = allocate("uint8", Math.ceil((to - from) / 64) * 8) as Uint8Array<ArrayBuffer>;
    for (let row = from; row < to; row += 1) {
      const bit = row - from;
      words[bit >> 3] = (words[bit >> 3] ?? 0) | ((valid[row] ?? 0) << (bit & 7));
    }
    duckdb.vector_ensure_validity_writable(vector);
    duckdb.copy_data_to_vector_validity(vector, 0, words.buffer, 0, words.byteLength);
  }
}
