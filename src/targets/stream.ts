import { type Column, type ColumnType, type FixedColumn, type ScalarType, showType } from "../columns/types.js";
import { assertNever, JobError } from "../base/errors.js";
import type { RowWriter } from "./target.js";
import { Builder } from "flatbuffers";

/** Writes an Arrow IPC stream. `write` takes chunks in order, and resolves when more can be written. */
export function openArrowStream(write: (chunks: readonly Uint8Array[]) => Promise<void>): RowWriter {
  return {
    begin: (columns) => write(framed(schemaMessage(columns))),
    async write(rows) {
      const body = createBody();
      for (const { type, column } of rows.columns) {
        addColumn(body, type, { column, rows: rows.rowCount });
      }
      const { nodes, buffers, chunks, bodyBytes } = body;
      await write([...framed(batchMessage(rows.rowCount, { nodes, buffers, bodyBytes })), ...chunks]);
    },
    end: () => write([prefix(0)]),
  };
}

/** Buffers begin at multiples of this many bytes, as in Arrow's own writers. */
const alignment = 64;
const metadataAlignment = 8;
const padding = new Uint8Array(alignment);

function prefix(length: number): Uint8Array {
  const bytes = new Uint8Array(8);
  const view = new DataView(bytes.buffer);
  view.setUint32(0, 0xffff_ffff, true);
  view.setInt32(4, length, true);
  return bytes;
}

function framed(metadata: Uint8Array): Uint8Array[] {
  const length = Math.ceil(metadata.length / metadataAlignment) * metadataAlignment;
  return [prefix(length), metadata, padding.subarray(0, length - metadata.length)];
}

interface Body {
  readonly nodes: NodeFacts[];
  readonly buffers: BufferFacts[];
  readonly chunks: Uint8Array[];
  readonly bodyBytes: number;
  put(bytes: Uint8Array): void;
}

function createBody(): Body {
  const buffers: BufferFacts[] = [];
  const chunks: Uint8Array[] = [];
  let bodyBytes = 0;
  return {
    nodes: [],
    buffers,
    chunks,
    get bodyBytes() {
      return bodyBytes;
    },
    put(bytes) {
      const padded = Math.ceil(bytes.length / alignment) * alignment;
      buffers.push({ offset: bodyBytes, bytes: bytes.length });
      chunks.push(...[bytes, padding.subarray(0, padded - bytes.length)].filter(({ length }) => length > 0));
      bodyBytes += padded;
    },
  };
}

function addColumn(body: Body, type: ColumnType, { column, rows }: { column: Column; rows: number }): void {
  const nulls = column.valid === undefined ? 0 : countNulls(column.valid, rows);
  body.nodes.push({ length: rows, nulls });
  body.put(nulls === 0 || column.valid === undefined ? new Uint8Array(0) : packBits(column.valid, rows));
  switch (column.kind) {
    case "fixed":
      body.put(fixedBytes(type, column, rows));
      break;
    case "bytes":
      body.put(asBytes(offsetsFrom0(column.offsets, rows)));
      body.put(column.bytes.subarray(0, column.offsets[rows] ?? 0));
      break;
    case "list":
      body.put(asBytes(offsetsFrom0(column.offsets, rows)));
      addColumn(body, elementType(type), { column: column.child, rows: column.offsets[rows] ?? 0 });
      break;
    case "struct":
      for (const [index, child] of column.children.entries()) {
        addColumn(body, fieldType(type, index), { column: child, rows });
      }
      break;
    default:
      assertNever(column);
  }
}

function elementType(type: ColumnType): ColumnType {
  if (typeof type === "object" && type.kind === "list") {
    return type.element;
  }
  throw new TypeError("a list of no list type");
}

function fieldType(type: ColumnType, index: number): ColumnType {
  const field = typeof type === "object" && type.kind === "struct" ? type.fields[index] : undefined;
  if (field === undefined) {
    throw new TypeError("a struct of no struct type");
  }
  return field.type;
}

function countNulls(valid: Uint8Array, rows: number): number {
  let nulls = 0;
  for (let row = 0; row < rows; row += 1) {
    nulls += 1 - (valid[row] as number);
  }
  return nulls;
}

/** Packs flags of a byte each into bits, the least significant first. */
function packBits(flags: ArrayLike<number>, rows: number): Uint8Array {
  const bits = new Uint8Array(Math.ceil(rows / 8));
  for (let row = 0; row < rows; row += 1) {
    bits[row >> 3] = (bits[row >> 3] as number) | (((flags[row] as number) & 1) << (row & 7));
  }
  return bits;
}

/** Arrow's offsets are signed. */
const offsetLimit = 2 ** 31 - 1;

function offsetsFrom0(offsets: Uint32Array, rows: number): Uint32Array {
  const end = offsets[rows] ?? 0;
  if (end > offsetLimit || offsets[0] !== 0) {
    throw new JobError("OUTPUT_REFUSED", `writing a record batch: a column of it holds ${end} bytes or elements`, {
      hint: `at most ${offsetLimit} fit; send smaller record batches`,
    });
  }
  return offsets.subarray(0, rows + 1);
}

function asBytes({ buffer, byteOffset, byteLength }: ArrayBufferView): Uint8Array {
  return new Uint8Array(buffer, byteOffset, byteLength);
}

function fixedBytes(type: ColumnType, { data, elementsPerValue }: FixedColumn, rows: number): Uint8Array {
  if (type === "bool") {
    return packBits(data as Uint8Array, rows);
  }
  if (type === "uuid") {
    return uuidBytes(data as BigUint64Array, rows);
  }
  const values = data.subarray(0, rows * elementsPerValue);
  const isShort = typeof type === "object" && type.kind === "decimal" && elementsPerValue === 1;
  return isShort ? asBytes(widened(values as BigInt64Array | Int32Array | Int16Array)) : asBytes(values);
}

/** Decimals of few digits are kept as shorter integers than Arrow's. */
function widened(values: BigInt64Array | Int32Array | Int16Array): BigInt64Array {
  const words = new BigInt64Array(values.length * 2);
  for (let row = 0; row < values.length; row += 1) {
    const value = BigInt(values[row] as bigint | number);
    words[row * 2] = value;
    words[row * 2 + 1] = value < 0n ? -1n : 0n;
  }
  return words;
}

/** Converts UUIDs from DuckDB's form: two words, the higher one last and its highest bit flipped. */
function uuidBytes(words: BigUint64Array, rows: number): Uint8Array {
  const bytes = new Uint8Array(rows * 16);
  const view = new DataView(bytes.buffer);
  for (let row = 0; row < rows; row += 1) {
    view.setBigUint64(row * 16, (words[row * 2 + 1] as bigint) ^ (1n << 63n));
    view.setBigUint64(row * 16 + 8, words[row * 2] as bigint);
  }
  return bytes;
}

/** Numbers are those of Message.fbs and Schema.fbs: https://arrow.apache.org/docs/format/Columnar.html */
const metadataVersion = 4;
const headers = { schema: 1, batch: 3 } as const;
const microseconds = 2;
const nanoseconds = 3;

export interface ArrowColumn {
  readonly name: string;
  readonly type: ColumnType;
}

function schemaMessage(columns: readonly ArrowColumn[]): Uint8Array {
  const builder = new Builder(1024);
  const fields = vectorOf(
    builder,
    columns.map(({ name, type }) => putField(builder, name, { type, column: name })),
  );
  builder.startObject(4);
  builder.addFieldOffset(1, fields, 0);
  return message(builder, headers.schema, { header: builder.endObject(), bodyBytes: 0 });
}

/** Rows and NULLs of a column, or of a child of one. */
export interface NodeFacts {
  readonly length: number;
  readonly nulls: number;
}

/** Position of a buffer in the body. */
export interface BufferFacts {
  readonly offset: number;
  readonly bytes: number;
}

function batchMessage(
  rows: number,
  {
    nodes,
    buffers,
    bodyBytes,
  }: { readonly nodes: readonly NodeFacts[]; readonly buffers: readonly BufferFacts[]; readonly bodyBytes: number },
): Uint8Array {
  const builder = new Builder(256 + 16 * (nodes.length + buffers.length));
  const nodesAt = pairs(
    builder,
    nodes.map(({ length, nulls }) => [length, nulls]),
  );
  const buffersAt = pairs(
    builder,
    buffers.map(({ offset, bytes }) => [offset, bytes]),
  );
  builder.startObject(5);
  builder.addFieldInt64(0, BigInt(rows), 0n);
  builder.addFieldOffset(1, nodesAt, 0);
  builder.addFieldOffset(2, buffersAt, 0);
  return message(builder, headers.batch, { header: builder.endObject(), bodyBytes });
}

function message(
  builder: Builder,
  kind: number,
  { header, bodyBytes }: { header: number; bodyBytes: number },
): Uint8Array {
  builder.startObject(5);
  builder.addFieldInt16(0, metadataVersion, 0);
  builder.addFieldInt8(1, kind, 0);
  builder.addFieldOffset(2, header, 0);
  builder.addFieldInt64(3, BigInt(bodyBytes), 0n);
  builder.finish(builder.endObject());
  return builder.asUint8Array();
}

function vectorOf(builder: Builder, offsets: readonly number[]): number {
  builder.startVector(4, offsets.length, 4);
  for (const offset of offsets.toReversed()) {
    builder.addOffset(offset);
  }
  return builder.endVector();
}

function pairs(builder: Builder, values: readonly (readonly [number, number])[]): number {
  builder.startVector(16, values.length, 8);
  for (const [one, other] of values.toReversed()) {
    builder.writeInt64(BigInt(other));
    builder.writeInt64(BigInt(one));
  }
  return builder.endVector();
}

function putField(builder: Builder, name: string, { type, column }: { type: ColumnType; column: string }): number {
  const children = childrenOf(type).map((child) => putField(builder, child.name, { type: child.type, column }));
  const childrenAt = vectorOf(builder, children);
  const nameAt = builder.createString(name);
  const typed = tableOf(type, column);
  const table = typed.put(builder);
  const metadata = type === "uuid" ? extension(builder, "arrow.uuid") : 0;
  builder.startObject(7);
  builder.addFieldOffset(0, nameAt, 0);
  builder.addFieldInt8(1, 1, 0); // nullable
  builder.addFieldInt8(2, typed.number, 0);
  builder.addFieldOffset(3, table, 0);
  builder.addFieldOffset(5, childrenAt, 0);
  builder.addFieldOffset(6, metadata, 0);
  return builder.endObject();
}

function childrenOf(type: ColumnType): readonly ArrowColumn[] {
  if (typeof type === "string" || type.kind === "decimal") {
    return [];
  }
  return type.kind === "list" ? [{ name: "item", type: type.element }] : type.fields;
}

function extension(builder: Builder, name: string): number {
  const pair = [
    ["ARROW:extension:name", name],
    ["ARROW:extension:metadata", ""],
  ].map(([key = "", value = ""]) => {
    const [keyAt, valueAt] = [builder.createString(key), builder.createString(value)];
    builder.startObject(2);
    builder.addFieldOffset(0, keyAt, 0);
    builder.addFieldOffset(1, valueAt, 0);
    return builder.endObject();
  });
  return vectorOf(builder, pair);
}

/** A type's number in the union of types, and what puts its table. */
interface TypeTable {
  readonly number: number;
  readonly put: (builder: Builder) => number;
}

function of(number: number, fields = 0, add?: (builder: Builder) => void): TypeTable {
  return {
    number,
    put(builder) {
      builder.startObject(fields);
      add?.(builder);
      return builder.endObject();
    },
  };
}

const integer = (bits: number, signed: 0 | 1): TypeTable =>
  of(2, 2, (builder) => {
    builder.addFieldInt32(0, bits, 0);
    builder.addFieldInt8(1, signed, 0);
  });
const float = (precision: number): TypeTable => of(3, 1, (builder) => builder.addFieldInt16(0, precision, 0));
const time = (unit: number): TypeTable =>
  of(9, 2, (builder) => {
    builder.addFieldInt16(0, unit, 1);
    builder.addFieldInt32(1, 64, 32);
  });
const timestamp = (unit: number): TypeTable => of(10, 2, (builder) => builder.addFieldInt16(0, unit, 0));
const inUtc: TypeTable = {
  number: 10,
  put(builder) {
    const zone = builder.createString("UTC");
    builder.startObject(2);
    builder.addFieldInt16(0, microseconds, 0);
    builder.addFieldOffset(1, zone, 0);
    return builder.endObject();
  },
};

const scalars: Readonly<Partial<Record<ScalarType, TypeTable>>> = {
  int8: integer(8, 1),
  int16: integer(16, 1),
  int32: integer(32, 1),
  int64: integer(64, 1),
  uint8: integer(8, 0),
  uint16: integer(16, 0),
  uint32: integer(32, 0),
  uint64: integer(64, 0),
  float32: float(1),
  float64: float(2),
  binary: of(4),
  utf8: of(5),
  bool: of(6),
  date32: of(8, 1, (builder) => builder.addFieldInt16(0, 0, 1)),
  "time64[us]": time(microseconds),
  "time64[ns]": time(nanoseconds),
  "timestamp[us]": timestamp(microseconds),
  "timestamp[ns]": timestamp(nanoseconds),
  "timestamp[us, UTC]": inUtc,
  uuid: of(15, 1, (builder) => builder.addFieldInt32(0, 16, 0)),
};

function tableOf(type: ColumnType, column: string): TypeTable {
  const found =
    typeof type === "string"
      ? scalars[type]
      : type.kind === "decimal"
        ? of(7, 2, (builder) => {
            builder.addFieldInt32(0, type.precision, 0);
            builder.addFieldInt32(1, type.scale, 0);
          })
        : of(type.kind === "list" ? 12 : 13);
  if (found === undefined) {
    const shown = `output column \`${column}\` is ${showType(type)}, which has no place there`;
    throw new JobError("CONTRACT", `writing the schema: ${shown}`, {
      hint: "cast it under input.columns, such as (…)::VARCHAR, or leave it out",
    });
  }
  return found;
}
