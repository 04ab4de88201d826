import type { Column, ColumnType, FixedColumn } from "../../columnar/types.js";
import { assertNever, JobError } from "../../util/errors.js";
import { batchMessage, type BufferFacts, type NodeFacts, schemaMessage } from "./metadata.js";
import type { RowWriter } from "../row-writer.js";

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
  /** Adds a buffer. */
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

/** Adds a column and its children, in the order of Arrow's layouts. */
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

/** Returns offsets that begin at 0, as Arrow stores them. @throws JobError OUTPUT_REFUSED */
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
