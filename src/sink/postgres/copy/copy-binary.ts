import { asFixed } from "../../../columnar/json-text.js";
import { assertNever } from "../../../util/errors.js";
import type { BytesColumn, Column, ColumnType, NamedColumn } from "../../../columnar/types.js";
import { arrayField } from "./array-field.js";
import {
  boolPut,
  datePut,
  fixedField,
  type FieldWriter,
  float32Put,
  float64Put,
  int16Put,
  int32Put,
  int64Put,
  intervalPut,
  type Out,
  timePut,
  timestampPut,
  timetzPut,
  uuidPut,
} from "./fields.js";
import { jsonTexts } from "./json-text.js";
import { numericBytes } from "./numeric.js";
import { oidOf, type PgType } from "../types.js";
import { vectorField } from "./vector-field.js";

/** Before and behind all rows: `PGCOPY\n\377\r\n\0`, no flags, no header extension. */
const header = Buffer.from("5047434f50590aff0d0a000000000000000000", "hex");
const trailer = Buffer.from([0xff, 0xff]);

/** Rows of one chunk, fewer where they are long. */
const blockRows = 4096;
const blockBytes = 4 * 1024 * 1024;

/** Joins rows, as `encodeRows` yields them, to a whole `COPY … (FORMAT binary)`, which can be iterated again if they can. */
export function copyStream(...parts: readonly Iterable<Uint8Array>[]): Iterable<Uint8Array> {
  return {
    *[Symbol.iterator]() {
      yield header;
      for (const rows of parts) {
        yield* rows;
      }
      yield trailer;
    },
  };
}

/**
 * Encodes rows for `COPY … FROM STDIN (FORMAT binary)`, without header and trailer, a chunk at a time. `types`: those of
 * the table's columns, in order.
 */
export function* encodeRows(
  columns: readonly Pick<NamedColumn, "type" | "column">[],
  types: readonly PgType[],
  rowCount: number,
): Generator<Buffer> {
  const fields = columns.map(({ type, column }, index) => {
    const target = types[index];
    if (target === undefined) {
      throw new RangeError(`${columns.length} columns, ${types.length} types`);
    }
    return fieldOf(type, column, target, rowCount);
  });
  const scratch = { sizes: new Int32Array(blockRows), positions: new Int32Array(blockRows) };
  for (let from = 0; from < rowCount; ) {
    const { chunk, count } = encodeBlock(fields, { from, to: Math.min(from + blockRows, rowCount) }, scratch);
    yield chunk;
    from += count;
  }
}

interface Scratch {
  readonly sizes: Int32Array;
  readonly positions: Int32Array;
}

/** Encodes a chunk of rows from `from` on; returns it with its number of rows. */
function encodeBlock(
  fields: readonly FieldWriter[],
  { from, to }: { from: number; to: number },
  { sizes, positions }: Scratch,
): { chunk: Buffer; count: number } {
  const rows = to - from;
  const fixed = 2 + 4 * fields.length + fields.reduce((sum, { width = 0 }) => sum + width, 0);
  sizes.fill(fixed, 0, rows);
  for (const field of fields) {
    if (field.width === undefined) {
      field.measure(from, to, sizes);
    }
  }
  let total = 0;
  let count = 0;
  while (count < rows && (count === 0 || total + (sizes[count] as number) <= blockBytes)) {
    positions[count] = total + 2;
    total += sizes[count] as number;
    count += 1;
  }
  const chunk = Buffer.allocUnsafe(total);
  const out: Out = { bytes: chunk, view: new DataView(chunk.buffer, chunk.byteOffset, total) };
  for (let row = 0; row < count; row += 1) {
    out.view.setInt16((positions[row] as number) - 2, fields.length);
  }
  for (const field of fields) {
    field.write(from, from + count, out, positions);
  }
  return { chunk, count };
}

function fieldOf(type: ColumnType, column: Column, target: PgType, rowCount: number): FieldWriter {
  if (target.array) {
    return elementsField(type, column, { ...target, array: false });
  }
  switch (target.name) {
    case "vector":
      return vectorField(column);
    case "json":
      return bytesField(column.kind === "bytes" ? column : jsonTexts(type, column, rowCount));
    case "jsonb":
      return bytesField(column.kind === "bytes" ? column : jsonTexts(type, column, rowCount), jsonbVersion);
    case "text":
    case "varchar":
    case "bpchar":
    case "bytea":
      return bytesField(asBytes(column));
    case "numeric": {
      const scale = typeof type === "object" && type.kind === "decimal" ? type.scale : 0;
      return bytesField(numericBytes(asFixed(column), scale, type !== "uint64"));
    }
    case "bool":
    case "int2":
    case "int4":
    case "int8":
    case "float4":
    case "float8":
    case "uuid":
    case "date":
    case "time":
    case "timetz":
    case "timestamp":
    case "timestamptz":
    case "interval":
      return fixedFieldOf(type, column, target.name);
    default:
      return assertNever(target.name);
  }
}

function elementsField(type: ColumnType, column: Column, element: PgType): FieldWriter {
  if (column.kind !== "list" || typeof type !== "object" || type.kind !== "list") {
    throw new TypeError(`expected a list column, found a ${column.kind} column`);
  }
  if (element.name === "vector") {
    throw new TypeError("arrays of vectors are not written");
  }
  const elements = fieldOf(type.element, column.child, element, column.offsets.at(-1) ?? 0);
  return arrayField(column, elements, oidOf[element.name]);
}

type FixedName = Exclude<
  PgType["name"],
  "vector" | "json" | "jsonb" | "text" | "varchar" | "bpchar" | "bytea" | "numeric"
>;

function fixedFieldOf(type: ColumnType, column: Column, name: FixedName): FieldWriter {
  const { data, valid } = asFixed(column);
  switch (name) {
    case "bool":
      return fixedField(valid, 1, boolPut(data));
    case "int2":
      return fixedField(valid, 2, int16Put(data));
    case "int4":
      return fixedField(valid, 4, int32Put(data));
    case "int8":
      return fixedField(valid, 8, int64Put(data));
    case "float4":
      return fixedField(valid, 4, float32Put(data));
    case "float8":
      return fixedField(valid, 8, float64Put(data));
    case "uuid":
      return fixedField(valid, 16, uuidPut(data));
    case "date":
      return fixedField(valid, 4, datePut(data));
    case "time":
      return fixedField(valid, 8, timePut(data, type === "time64[ns]"));
    case "timetz":
      return fixedField(valid, 12, timetzPut(data));
    case "timestamp":
    case "timestamptz":
      return fixedField(valid, 8, timestampPut(data, type === "timestamp[ns]"));
    case "interval":
      return fixedField(valid, 16, intervalPut(data));
    default:
      return assertNever(name);
  }
}

function asBytes(column: Column): BytesColumn {
  if (column.kind !== "bytes") {
    throw new TypeError(`expected a column of bytes, found a ${column.kind} column`);
  }
  return column;
}

const jsonbVersion = 1;

/** Writes values that are bytes already. `prefix`: a byte before each. */
function bytesField({ offsets, bytes, valid }: BytesColumn, prefix?: number): FieldWriter {
  const extra = prefix === undefined ? 0 : 1;
  return {
    width: undefined,
    measure(from, to, sizes) {
      for (let row = from; row < to; row += 1) {
        if (valid?.[row] !== 0) {
          const length = (offsets[row + 1] as number) - (offsets[row] as number);
          sizes[row - from] = (sizes[row - from] as number) + length + extra;
        }
      }
    },
    write(from, to, out, positions) {
      for (let row = from; row < to; row += 1) {
        let at = positions[row - from] as number;
        if (valid?.[row] === 0) {
          out.view.setInt32(at, -1);
          positions[row - from] = at + 4;
          continue;
        }
        const start = offsets[row] as number;
        const end = offsets[row + 1] as number;
        out.view.setInt32(at, end - start + extra);
        at += 4;
        if (prefix !== undefined) {
          out.bytes[at] = prefix;
          at += 1;
        }
        copyBytes(out.bytes, at, bytes, start, end);
        positions[row - from] = at + (end - start);
      }
    },
  };
}

/** A native copy costs more than a short loop. */
const shortBytes = 24;

function copyBytes(target: Uint8Array, at: number, source: Uint8Array, start: number, end: number): void {
  if (end - start > shortBytes) {
    target.set(source.subarray(start, end), at);
    return;
  }
  for (let index = start, to = at; index < end; index += 1, to += 1) {
    target[to] = source[index] as number;
  }
}
