import { closeSync, openSync, readSync } from "node:fs";
import { open, unlink } from "node:fs/promises";
import { assertNever } from "../../base/errors.js";
import { type Spool, withSpoolErrors } from "../../base/spool.js";
import type { BytesColumn, Column, ColumnType, FixedColumn, ListColumn, NamedColumn } from "../../columns/types.js";
import { type PgType, typeOids } from "./table.js";
import type { Values } from "../../columns/values.js";
import type { Span } from "../../run/plan/plan.js";
import {
  asFixed,
  floorThousands,
  infiniteDay,
  infiniteMicros,
  isInfinite,
  jsonOf,
  splitZoned,
  unscaled,
} from "../../columns/value-text.js";

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
  const fixed = (width: number, putOf: (data: Values) => Put): FieldWriter => {
    const { data, valid } = asFixed(column);
    return fixedField(valid, width, putOf(data));
  };
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
      return fixed(1, boolPut);
    case "int2":
      return fixed(2, int16Put);
    case "int4":
      return fixed(4, int32Put);
    case "int8":
      return fixed(8, int64Put);
    case "float4":
      return fixed(4, float32Put);
    case "float8":
      return fixed(8, float64Put);
    case "uuid":
      return fixed(16, uuidPut);
    case "date":
      return fixed(4, datePut);
    case "time":
      return fixed(8, (data) => timePut(data, type === "time64[ns]"));
    case "timetz":
      return fixed(12, timetzPut);
    case "timestamp":
    case "timestamptz":
      return fixed(8, (data) => timestampPut(data, type === "timestamp[ns]"));
    case "interval":
      return fixed(16, intervalPut);
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
  return arrayField(column, elements, typeOids[element.name]);
}

function asBytes(column: Column): BytesColumn {
  if (column.kind !== "bytes") {
    throw new TypeError(`expected a column of bytes, found a ${column.kind} column`);
  }
  return column;
}

const jsonbVersion = 1;

/** `prefix`: a byte before each. */
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

/** COPY's binary format: a 32-bit length, then the value; a NULL is a length of -1. Everything is big-endian. */
interface FieldWriter {
  /** Bytes of every value, without its length word; undefined where they differ or some are NULL. */
  readonly width: number | undefined;
  /** Adds the bytes of the values of rows [from, to) to sizes[0 …]. */
  measure(from: number, to: number, sizes: Int32Array): void;
  /** Writes rows [from, to) at positions[0 …], and moves these behind them. */
  write(from: number, to: number, out: Out, positions: Int32Array): void;
}

interface Out {
  readonly view: DataView;
  readonly bytes: Uint8Array;
}

type Put = (view: DataView, at: number, row: number) => void;

/** `put` is called for values that are not NULL. */
function fixedField(valid: Uint8Array | undefined, width: number, put: Put): FieldWriter {
  return {
    width: valid === undefined ? width : undefined,
    measure(from, to, sizes) {
      for (let row = from; row < to; row += 1) {
        sizes[row - from] = (sizes[row - from] as number) + (valid?.[row] === 0 ? 0 : width);
      }
    },
    write(from, to, { view }, positions) {
      for (let row = from; row < to; row += 1) {
        const at = positions[row - from] as number;
        if (valid?.[row] === 0) {
          view.setInt32(at, -1);
          positions[row - from] = at + 4;
          continue;
        }
        view.setInt32(at, width);
        put(view, at + 4, row);
        positions[row - from] = at + 4 + width;
      }
    },
  };
}

/** Elements that JavaScript reads as numbers. */
export function withoutBigInts(data: Values): Exclude<Values, BigInt64Array | BigUint64Array> {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    throw new TypeError("expected numbers of less than 64 bits, found 64-bit integers");
  }
  return data;
}

function bigintsOf(data: Values): BigInt64Array | BigUint64Array {
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    return data;
  }
  throw new TypeError("expected 64-bit integers, found smaller numbers");
}

/** 32-bit words, the least significant first. */
function wordsOf({ buffer, byteOffset, byteLength }: Values): Uint32Array {
  return new Uint32Array(buffer, byteOffset, byteLength / 4);
}

function int16Put(data: Values): Put {
  const values = withoutBigInts(data);
  return (view, at, row) => {
    view.setInt16(at, values[row] as number);
  };
}

function int32Put(data: Values): Put {
  const values = withoutBigInts(data);
  return (view, at, row) => {
    view.setInt32(at, values[row] as number);
  };
}

const wordSpan = 2 ** 32;

function int64Put(data: Values): Put {
  if (data instanceof BigInt64Array) {
    const words = wordsOf(data);
    return (view, at, row) => {
      view.setUint32(at, words[row * 2 + 1] as number);
      view.setUint32(at + 4, words[row * 2] as number);
    };
  }
  const values = withoutBigInts(data);
  return (view, at, row) => {
    const value = values[row] as number;
    view.setInt32(at, Math.floor(value / wordSpan));
    view.setUint32(at + 4, value >>> 0);
  };
}

function float32Put(data: Values): Put {
  const values = withoutBigInts(data);
  return (view, at, row) => {
    view.setFloat32(at, values[row] as number);
  };
}

function float64Put(data: Values): Put {
  const values = withoutBigInts(data);
  return (view, at, row) => {
    view.setFloat64(at, values[row] as number);
  };
}

function boolPut(data: Values): Put {
  const values = withoutBigInts(data);
  return (view, at, row) => {
    view.setUint8(at, values[row] === 0 ? 0 : 1);
  };
}

/** DuckDB flips the first bit of a UUID, so that they sort as signed integers. */
function uuidPut(data: Values): Put {
  const words = wordsOf(data);
  return (view, at, row) => {
    view.setUint32(at, ((words[row * 4 + 3] as number) ^ 0x8000_0000) >>> 0);
    view.setUint32(at + 4, words[row * 4 + 2] as number);
    view.setUint32(at + 8, words[row * 4 + 1] as number);
    view.setUint32(at + 12, words[row * 4] as number);
  };
}

function datePut(data: Values): Put {
  const values = withoutBigInts(data);
  return (view, at, row) => {
    const day = values[row] as number;
    view.setInt32(at, day === infiniteDay ? day : day === -infiniteDay ? -infiniteDay - 1 : day - daysTo2000);
  };
}

/** `nanos`: values count nanoseconds, of which Postgres keeps microseconds, rounded down. None of them is infinite. */
function timestampPut(data: Values, nanos: boolean): Put {
  const values = bigintsOf(data);
  return (view, at, row) => {
    const value = values[row] as bigint;
    if (!nanos && isInfinite(value)) {
      view.setBigInt64(at, value > 0n ? value : -infiniteMicros - 1n);
      return;
    }
    view.setBigInt64(at, (nanos ? floorThousands(value) : value) - microsTo2000);
  };
}

function timePut(data: Values, nanos: boolean): Put {
  const values = bigintsOf(data);
  return (view, at, row) => {
    const value = values[row] as bigint;
    view.setBigInt64(at, nanos ? value / 1000n : value);
  };
}

/** Postgres counts zones westwards. */
function timetzPut(data: Values): Put {
  const values = bigintsOf(data);
  return (view, at, row) => {
    const { micros, offsetSeconds } = splitZoned(values[row] as bigint);
    view.setBigInt64(at, micros);
    view.setInt32(at + 8, -offsetSeconds);
  };
}

/** DuckDB: int32 months, int32 days, int64 microseconds; Postgres has them the other way round. */
function intervalPut(data: Values): Put {
  const words = wordsOf(data);
  return (view, at, row) => {
    view.setUint32(at, words[row * 4 + 3] as number);
    view.setUint32(at + 4, words[row * 4 + 2] as number);
    view.setUint32(at + 8, words[row * 4 + 1] as number);
    view.setUint32(at + 12, words[row * 4] as number);
  };
}

/** int32 dimensions, int32 "has NULLs", int32 element OID; then int32 length and int32 lower bound of each dimension. */
const arrayHeaderBytes = 12;
const dimensionBytes = 8;

/** `elements` writes the rows of the list's child. */
function arrayField({ offsets, child, valid }: ListColumn, elements: FieldWriter, oid: number): FieldWriter {
  const { sizeRow, writeElements } = elementTools(elements);
  const hasNulls = child.valid === undefined ? 0 : 1;
  const boundsOf = (row: number): [number, number] => [offsets[row] as number, offsets[row + 1] as number];
  const writeRow = (out: Out, at: number, row: number): number => {
    const [start, end] = boundsOf(row);
    out.view.setInt32(at, headOf(end - start) + sizeRow(start, end));
    out.view.setInt32(at + 4, end === start ? 0 : 1);
    out.view.setInt32(at + 8, hasNulls);
    out.view.setUint32(at + 12, oid);
    if (end === start) {
      return at + 4 + arrayHeaderBytes;
    }
    out.view.setInt32(at + 16, end - start);
    out.view.setInt32(at + 20, 1);
    return writeElements(out, at + 4 + arrayHeaderBytes + dimensionBytes, start, end);
  };
  return rowsField(
    valid,
    (row) => {
      const [start, end] = boundsOf(row);
      return headOf(end - start) + sizeRow(start, end);
    },
    writeRow,
  );
}

/** `write` writes one with its length word, and returns where it ends. */
function rowsField(
  valid: Uint8Array | undefined,
  bytesOf: (row: number) => number,
  write: (out: Out, at: number, row: number) => number,
): FieldWriter {
  return {
    width: undefined,
    measure(from, to, sizes) {
      for (let row = from; row < to; row += 1) {
        sizes[row - from] = (sizes[row - from] as number) + (valid?.[row] === 0 ? 0 : bytesOf(row));
      }
    },
    write(from, to, out, positions) {
      for (let row = from; row < to; row += 1) {
        const at = positions[row - from] as number;
        if (valid?.[row] === 0) {
          out.view.setInt32(at, -1);
          positions[row - from] = at + 4;
        } else {
          positions[row - from] = write(out, at, row);
        }
      }
    },
  };
}

function headOf(length: number): number {
  return arrayHeaderBytes + (length === 0 ? 0 : dimensionBytes);
}

function elementTools(elements: FieldWriter): {
  /** Bytes of elements [start, end), including their length words. */
  sizeRow: (start: number, end: number) => number;
  /** Writes the elements that were sized last; returns where they end. */
  writeElements: (out: Out, at: number, start: number, end: number) => number;
} {
  const { width } = elements;
  let sizes = new Int32Array(1024);
  let positions = new Int32Array(1024);
  return {
    sizeRow(start, end) {
      const length = end - start;
      if (width !== undefined) {
        return length * (4 + width);
      }
      if (length > sizes.length) {
        sizes = new Int32Array(length * 2);
      }
      sizes.fill(4, 0, length);
      elements.measure(start, end, sizes);
      let bytes = 0;
      for (let index = 0; index < length; index += 1) {
        bytes += sizes[index] as number;
      }
      return bytes;
    },
    writeElements(out, at, start, end) {
      const length = end - start;
      if (length > positions.length) {
        positions = new Int32Array(length * 2);
      }
      let next = at;
      for (let index = 0; index < length; index += 1) {
        positions[index] = next;
        next += width === undefined ? (sizes[index] as number) : 4 + width;
      }
      elements.write(start, end, out, positions);
      return next;
    },
  };
}

/** The binary form of pgvector's `vector`: int16 dimensions, int16 zero, then a float32 each. */
const vectorHeaderBytes = 4;
/** The most dimensions that pgvector stores. */
export const mostDimensions = 16_000;

/** Writes lists of float32, without NULLs among their elements, as pgvector's `vector`. */
function vectorField(column: Column): FieldWriter {
  const { offsets, valid, numbers } = vectorsOf(column);
  const bytesOf = (row: number): number =>
    vectorHeaderBytes + 4 * ((offsets[row + 1] as number) - (offsets[row] as number));
  const writeRow = ({ view }: Out, at: number, row: number): number => {
    const [start, end] = [offsets[row] as number, offsets[row + 1] as number];
    view.setInt32(at, bytesOf(row));
    view.setInt16(at + 4, end - start);
    view.setInt16(at + 6, 0);
    let next = at + 4 + vectorHeaderBytes;
    for (let index = start; index < end; index += 1, next += 4) {
      view.setFloat32(next, numbers[index] as number);
    }
    return next;
  };
  return rowsField(valid, bytesOf, writeRow);
}

/** The lists of a column, and their elements. */
export function vectorsOf(column: Column): Pick<ListColumn, "offsets" | "valid" | "child"> & {
  readonly numbers: Float32Array;
} {
  if (column.kind !== "list" || column.child.kind !== "fixed" || !(column.child.data instanceof Float32Array)) {
    throw new TypeError(`a ${column.kind} column came where lists of float32 are due`);
  }
  const { offsets, valid, child } = column;
  return { offsets, valid, child, numbers: column.child.data };
}

/** Lists and structs as JSON, a text a row, in the shape that Postgres's own `to_json` gives. */
function jsonTexts(type: ColumnType, column: Column, rowCount: number): BytesColumn {
  const encoder = new TextEncoder();
  const offsets = new Uint32Array(rowCount + 1);
  let bytes = new Uint8Array(rowCount * 64);
  let at = 0;
  for (let row = 0; row < rowCount; row += 1) {
    if (column.valid?.[row] !== 0) {
      const text = jsonOf(type, column, row);
      const textLimit = text.length * 3; // UTF-8 takes at most 3 bytes a UTF-16 unit
      if (at + textLimit > bytes.length) {
        const larger = new Uint8Array(Math.max(at + textLimit, bytes.length * 2));
        larger.set(bytes.subarray(0, at));
        bytes = larger;
      }
      at += encoder.encodeInto(text, bytes.subarray(at)).written;
    }
    offsets[row + 1] = at;
  }
  return { kind: "bytes", offsets, bytes: bytes.subarray(0, at), valid: column.valid };
}

/**
 * Integers scaled by 10^scale as Postgres sends `numeric`: int16 digit count, int16 weight of the first digit,
 * uint16 sign (0x4000: negative), int16 decimal places, then the digits to base 10,000. See numeric_send in
 * src/backend/utils/adt/numeric.c.
 */
function numericBytes(column: FixedColumn, scale: number, signed: boolean): BytesColumn {
  const rows = column.data.length / column.elementsPerValue;
  const offsets = new Uint32Array(rows + 1);
  const fieldLimit = 8 + 2 * 12; // 38 digits on either side of the point take at most 11 words
  const bytes = new Uint8Array(rows * fieldLimit);
  const view = new DataView(bytes.buffer);
  let at = 0;
  for (let row = 0; row < rows; row += 1) {
    if (column.valid?.[row] !== 0) {
      at = putNumeric(view, at, unscaled(column, row, signed), scale);
    }
    offsets[row + 1] = at;
  }
  return { kind: "bytes", offsets, bytes: bytes.subarray(0, at), valid: column.valid };
}

const negativeSign = 0x4000;

function putNumeric(view: DataView, at: number, text: string, scale: number): number {
  const negative = text.startsWith("-");
  const digits = (negative ? text.slice(1) : text).padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  const fraction = digits.slice(digits.length - scale);
  const left = whole.padStart(Math.ceil(whole.length / 4) * 4, "0");
  const words = left + fraction.padEnd(Math.ceil(fraction.length / 4) * 4, "0");
  let first = 0;
  let end = words.length;
  while (first < end && words.startsWith("0000", first)) {
    first += 4;
  }
  while (end > first && words.startsWith("0000", end - 4)) {
    end -= 4;
  }
  const count = (end - first) / 4;
  view.setInt16(at, count);
  view.setInt16(at + 2, count === 0 ? 0 : (left.length - first) / 4 - 1);
  view.setUint16(at + 4, negative && count > 0 ? negativeSign : 0);
  view.setInt16(at + 6, scale);
  let next = at + 8;
  for (let word = first; word < end; word += 4) {
    view.setInt16(next, Number(words.slice(word, word + 4)));
    next += 2;
  }
  return next;
}

/** DuckDB counts days and microseconds from 1970, Postgres from 2000. */
const daysTo2000 = 10_957;
const microsTo2000 = 946_684_800_000_000n;

/** 4713-11-24 BC, the first day that Postgres has, and the days after its last, 5874897-12-31, from 2000. */
const firstDay = -2_451_545;
const endDay = 2_145_031_949;
/** The same for timestamps, which end with the year 294276. */
const firstMicros = -211_813_488_000_000_000n;
const endMicros = 9_223_371_331_200_000_000n;

/** Whether Postgres has the day that is this many after 1970-01-01. */
export function hasDay(day: number): boolean {
  return Math.abs(day) === infiniteDay || (day - daysTo2000 >= firstDay && day - daysTo2000 < endDay);
}

/** Whether Postgres has the moment that is this many microseconds after 1970-01-01. */
export function hasMoment(micros: bigint): boolean {
  const since2000 = micros - microsTo2000;
  return isInfinite(micros) || (since2000 >= firstMicros && since2000 < endMicros);
}

/** Rows of incomplete spans, encoded for COPY, in one file a span. */
export interface SpilledCopy {
  /** Appends rows to those of the span that were added before. `chunks`: as `encodeRows` yields them. */
  add(span: Span, rows: { readonly rowCount: number; readonly chunks: Iterable<Uint8Array> }): Promise<void>;
  /** Returns how many rows of the span were added. */
  rowsOf(span: Span): number;
  /** Returns the span's encoded rows. They can be iterated more than once, until `drop`. */
  chunksOf(span: Span): Iterable<Uint8Array>;
  drop(span: Span): Promise<void>;
}

const readBytes = 1024 * 1024;

/** Keeps the rows of incomplete spans in files of a spool. */
export function openSpilledCopy(spool: Spool): SpilledCopy {
  const files = new Map<number, { readonly path: string; rows: number }>();
  return {
    async add(span, { rowCount, chunks }) {
      await spool.prepare();
      const file = files.get(span.index) ?? { path: spool.newPath(), rows: 0 };
      files.set(span.index, file);
      await withSpoolErrors(spool, () => append(file.path, chunks));
      file.rows += rowCount;
    },
    rowsOf: ({ index }) => files.get(index)?.rows ?? 0,
    chunksOf: ({ index }) => chunksIn(files.get(index)?.path),
    async drop({ index }) {
      const file = files.get(index);
      files.delete(index);
      await (file && unlink(file.path).catch(() => undefined)); // the spool's folder is removed when the sink closes
    },
  };
}

function chunksIn(path: string | undefined): Iterable<Uint8Array> {
  return {
    *[Symbol.iterator]() {
      if (path === undefined) {
        return;
      }
      const file = openSync(path, "r");
      try {
        for (;;) {
          const chunk = Buffer.allocUnsafe(readBytes); // a new one: the chunk before it may not be sent yet
          const length = readSync(file, chunk);
          if (length === 0) {
            return;
          }
          yield chunk.subarray(0, length);
        }
      } finally {
        closeSync(file);
      }
    },
  };
}

async function append(path: string, chunks: Iterable<Uint8Array>): Promise<void> {
  await using handle = await open(path, "a", 0o600);
  for (const chunk of chunks) {
    await handle.appendFile(chunk);
  }
}
