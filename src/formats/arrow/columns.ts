import { fromFloat16Bits } from "../../columns/tensor.js";
import type { ByteRange } from "../format.js";
import type { ShardBytes } from "./shards.js";
import {
  type ArrowNode,
  type BatchHeader,
  type Block,
  type BufferPlace,
  buffersOf,
  type ArrowField,
  type ArrowType,
  typeOfField,
} from "./metadata.js";
import { unpackLz4, unpackZstd } from "../codecs.js";
import type { Column, FixedColumn, BytesColumn, ColumnType, ListColumn } from "../../columns/types.js";
import { allocate, elementsOf, type Values, unpackBits } from "../../columns/values.js";
import { assertNever } from "../../base/errors.js";
import { createColumnBuilder, repeatRows } from "../../columns/columns.js";
import { checkTexts } from "../read-fully.js";

interface Body {
  /** Bytes [start, end) of a buffer. @throws RangeError when it has fewer */
  read(buffer: BufferPlace, start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** Memory for so many bytes or more, until what was read last is done with. */
export type Lend = (bytes: number) => Uint8Array<ArrayBuffer>;

interface BodyOptions {
  readonly compression: BatchHeader["compression"];
  /** Columns whose buffers are read at once, in as few reads as possible. */
  readonly hold?: readonly ArrowNode[] | undefined;
  /** Not used for compressed buffers, of which more than the last read stays in use. */
  readonly lend?: Lend | undefined;
  /** Called before a buffer is read, and before it is unpacked, with the bytes that it then takes; may throw. */
  readonly onWhole?: ((buffer: BufferPlace, bytes: number) => void) | undefined;
}

export async function openBody(
  bytes: ShardBytes,
  block: Block,
  { compression, hold = [], lend, onWhole }: BodyOptions,
): Promise<Body> {
  const bodyStart = block.offset + block.metadataBytes;
  const lent = compression === "none" ? lend : undefined;
  const held = await holdRanges(bytes, nearRanges(bodyStart, buffersOf(hold)), lent);
  const raw = async ({ offset }: BufferPlace, start: number, end: number): Promise<Uint8Array<ArrayBuffer>> => {
    const from = bodyStart + offset + start;
    const to = bodyStart + offset + end;
    return held(from, to) ?? (await bytes.read(from, to, lent?.(to - from)));
  };
  const unpacked = new Map<BufferPlace, Promise<Uint8Array<ArrayBuffer>>>();
  const whole = async (buffer: BufferPlace, codec: "lz4" | "zstd"): Promise<Uint8Array<ArrayBuffer>> => {
    if (buffer.bytes === 0) {
      return new Uint8Array(0);
    }
    onWhole?.(buffer, buffer.bytes);
    const packed = await raw(buffer, 0, buffer.bytes);
    onWhole?.(buffer, unpackedBytes(packed));
    return unpack(packed, codec);
  };
  return {
    async read(buffer, start, end) {
      let all: Uint8Array<ArrayBuffer> | undefined;
      if (compression !== "none") {
        const reading = unpacked.get(buffer) ?? whole(buffer, compression);
        unpacked.set(buffer, reading);
        all = await reading;
      }
      const size = all?.length ?? buffer.bytes;
      if (start < 0 || end < start || end > size) {
        throw new RangeError(`a buffer of ${size} bytes, ${end} are due`);
      }
      return all?.subarray(start, end) ?? (start === end ? new Uint8Array(0) : await raw(buffer, start, end));
    },
  };
}

/** The size limit of one buffer, uncompressed. */
const bufferLimit = 2 ** 30;
const lengthBytes = 8;
/** LZ4 gives at most 255 bytes for one. */
const lz4Ratio = 255;

/** How long a compressed buffer says that it is; -1: it is not compressed after all. @throws RangeError */
export function unpackedBytes(packed: Uint8Array): number {
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const length = Number(view.getBigInt64(0, true));
  if (length < -1 || length > bufferLimit) {
    throw new RangeError(`a buffer of ${length} bytes when unpacked, at most ${bufferLimit} are read`);
  }
  return length;
}

function unpack(packed: Uint8Array<ArrayBuffer>, codec: "lz4" | "zstd"): Uint8Array<ArrayBuffer> {
  const length = unpackedBytes(packed);
  const data = packed.subarray(lengthBytes);
  if (length === -1) {
    return data;
  }
  if (length === 0) {
    return new Uint8Array(0);
  }
  if (codec === "zstd") {
    return unpackZstd(data, length);
  }
  if (length > data.length * lz4Ratio) {
    throw new RangeError(`${data.length} bytes of LZ4 cannot be ${length}`);
  }
  const target = new Uint8Array(length);
  unpackLz4(data, target);
  return target;
}

/** Buffers that are as near as this are fetched by one read, with the bytes between them. */
const nearBytes = 32 * 1024;

function nearRanges(bodyStart: number, buffers: readonly BufferPlace[]): ByteRange[] {
  const ranges: { start: number; end: number }[] = [];
  for (const { offset, bytes: length } of buffers.toSorted((one, other) => one.offset - other.offset)) {
    const start = bodyStart + offset;
    const last = ranges.at(-1);
    if (last !== undefined && start <= last.end + nearBytes) {
      last.end = Math.max(last.end, start + length);
    } else if (length > 0) {
      ranges.push({ start, end: start + length });
    }
  }
  return ranges;
}

async function holdRanges(
  bytes: ShardBytes,
  ranges: readonly ByteRange[],
  lend: Lend | undefined,
): Promise<(start: number, end: number) => Uint8Array<ArrayBuffer> | undefined> {
  const held = await Promise.all(
    ranges.map(async ({ start, end }) => ({ start, end, data: await bytes.read(start, end, lend?.(end - start)) })),
  );
  return (start, end) => {
    const range = held.find((candidate) => start >= candidate.start && end <= candidate.end);
    return range?.data.subarray(start - range.start, end - range.start);
  };
}

/** Types whose values are as many bytes each, bits aside. */
type FixedType = Extract<
  ArrowType,
  { kind: "int" | "float" | "decimal" | "date" | "time" | "timestamp" | "duration" | "fixedBytes" }
>;

function widthOf(type: FixedType): number {
  switch (type.kind) {
    case "int":
    case "float":
    case "decimal":
    case "time":
      return type.bits / 8;
    case "date":
      return type.unit === "day" ? 4 : 8;
    case "timestamp":
    case "duration":
      return 8;
    case "fixedBytes":
      return type.width;
    default:
      return assertNever(type);
  }
}

type Fixed = Pick<FixedColumn, "elementsPerValue" | "data">;

const one = (data: Values): Fixed => ({ elementsPerValue: 1, data });

/**
 * Converts values of a field of fixed width to the form in which columns store them.
 * @throws RangeError where one that is not NULL cannot be kept
 * @public so that tests see it
 */
export function fixedColumn(
  field: ArrowField & { readonly type: FixedType },
  bytes: Uint8Array<ArrayBuffer>,
  rows: number,
  valid: Uint8Array | undefined,
): Column {
  const { type } = field;
  if (type.kind !== "fixedBytes") {
    return { kind: "fixed", ...fixedValues(type, bytes, (row) => valid?.[row] === 0), valid };
  }
  if (typeOfField(field) === "uuid") {
    return { kind: "fixed", ...uuids(bytes), valid };
  }
  const offsets = new Uint32Array(rows + 1);
  for (let row = 0; row <= rows; row += 1) {
    offsets[row] = row * type.width;
  }
  return { kind: "bytes", offsets, bytes, valid };
}

/** `isNull`: values without a meaning. */
function fixedValues(
  type: Exclude<FixedType, { kind: "fixedBytes" }>,
  bytes: Uint8Array<ArrayBuffer>,
  isNull: (index: number) => boolean,
): Fixed {
  switch (type.kind) {
    case "int":
      return one(elementsOf(`${type.signed ? "int" : "uint"}${type.bits}`, bytes));
    case "float":
      return one(
        type.bits === 16
          ? fromHalves(elementsOf("uint16", bytes) as Uint16Array)
          : elementsOf(type.bits === 32 ? "float32" : "float64", bytes),
      );
    case "decimal":
      return decimals(type, bytes, isNull);
    case "date":
      return one(
        type.unit === "day"
          ? elementsOf("int32", bytes)
          : Int32Array.from(longs(bytes), (ms, index) => (isNull(index) ? 0 : daysOf(ms))),
      );
    case "time":
      return one(scaled(type.bits === 32 ? fromInts(bytes) : longs(bytes), unitSteps[type.unit], isNull));
    case "timestamp":
      return one(scaled(longs(bytes), unitSteps[type.unit], isNull));
    case "duration":
      return one(longs(bytes));
    default:
      return assertNever(type);
  }
}

function fromHalves(halves: Uint16Array): Float32Array<ArrayBuffer> {
  return Float32Array.from(halves, fromFloat16Bits);
}

const unitSteps = { s: 1_000_000n, ms: 1000n, us: 1n, ns: 1n };

function longs(bytes: Uint8Array<ArrayBuffer>): BigInt64Array<ArrayBuffer> {
  return elementsOf("int64", bytes) as BigInt64Array<ArrayBuffer>;
}

function fromInts(bytes: Uint8Array<ArrayBuffer>): BigInt64Array<ArrayBuffer> {
  return BigInt64Array.from(elementsOf("int32", bytes) as Int32Array, BigInt);
}

const dayMs = 86_400_000n;
const daysEnd = 2 ** 31 - 1; // DuckDB's infinity

function daysOf(ms: bigint): number {
  const days = Number((ms - (((ms % dayMs) + dayMs) % dayMs)) / dayMs);
  if (Math.abs(days) >= daysEnd) {
    throw new RangeError(`the date ${ms}, which is no day that 32 bits hold`);
  }
  return days;
}

const longMax = 2n ** 63n - 1n;

function scaled(
  values: BigInt64Array<ArrayBuffer>,
  step: bigint,
  isNull: (index: number) => boolean,
): BigInt64Array<ArrayBuffer> {
  if (step === 1n) {
    return values;
  }
  const most = longMax / step;
  return values.map((value, index) => {
    if (isNull(index)) {
      return 0n;
    }
    if (value > most || value < -most) {
      throw new RangeError(`the time ${value}, which has no microseconds`);
    }
    return value * step;
  });
}

/** Returns decimals as the smallest integers that hold the precision. DuckDB stores 128 bits in the order of Arrow. */
function decimals(
  { precision, bits }: ArrowType & { kind: "decimal" },
  bytes: Uint8Array<ArrayBuffer>,
  isNull: (index: number) => boolean,
): Fixed {
  const isWide = precision > 18;
  if (bits === 128 && isWide) {
    const data = elementsOf("uint64", bytes) as BigUint64Array<ArrayBuffer>;
    refuseLong(data, precision, isNull);
    return { elementsPerValue: 2, data };
  }
  const words = Math.max(1, bits / 64);
  const signed = bits === 32 ? fromInts(bytes) : longs(bytes);
  const rows = signed.length / words;
  const limit = 10n ** BigInt(precision);
  const data = isWide
    ? new BigUint64Array(rows * 2)
    : allocate(precision > 9 ? "int64" : precision > 4 ? "int32" : "int16", rows);
  for (let row = 0; row < rows; row += 1) {
    const value = isNull(row) ? 0n : wholeNumber(signed, row * words, words);
    if (value >= limit || value <= -limit) {
      throw tooLong(precision);
    }
    if (isWide) {
      data[row * 2] = BigInt.asUintN(64, value);
      data[row * 2 + 1] = BigInt.asUintN(64, value >> 64n);
    } else {
      data[row] = data instanceof BigInt64Array ? value : Number(value);
    }
  }
  return { elementsPerValue: isWide ? 2 : 1, data };
}

/** The number that words hold, the lowest first; most numbers fit into the lowest. */
function wholeNumber(signed: BigInt64Array, at: number, words: number): bigint {
  let value = signed[at] as bigint;
  for (let word = 1; word < words; word += 1) {
    const higher = signed[at + word] as bigint;
    if (higher !== (value < 0n ? -1n : 0n)) {
      value = BigInt.asUintN(64 * word, value) | (higher << BigInt(64 * word));
    }
  }
  return value;
}

function tooLong(precision: number): RangeError {
  return new RangeError(`a decimal of more than ${precision} digits`);
}

/**
 * A value's double is exact to 2^45, and the margin of the comparison is at least 2^53, so only values near the limit
 * are computed exactly.
 */
function refuseLong(words: BigUint64Array<ArrayBuffer>, precision: number, isNull: (index: number) => boolean): void {
  const limit = 10n ** BigInt(precision);
  const surely = Number(limit) * 0.999;
  const parts = new Uint32Array(words.buffer, words.byteOffset, words.length * 2);
  for (let row = 0, at = 0; at < parts.length; row += 1, at += 4) {
    const high = ((parts[at + 3] as number) | 0) * 2 ** 96 + (parts[at + 2] as number) * 2 ** 64;
    const about = high + (parts[at + 1] as number) * 2 ** 32 + (parts[at] as number);
    if ((about < surely && about > -surely) || isNull(row)) {
      continue;
    }
    const value = (BigInt.asIntN(64, words[row * 2 + 1] as bigint) << 64n) | (words[row * 2] as bigint);
    if (value >= limit || value <= -limit) {
      throw tooLong(precision);
    }
  }
}

/** DuckDB's form: two words, the higher one last and its highest bit flipped, so that they sort as signed numbers. */
function uuids(bytes: Uint8Array): Fixed {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const data = new BigUint64Array(bytes.length / 8);
  for (let word = 0; word < data.length; word += 2) {
    data[word] = view.getBigUint64((word + 1) * 8);
    data[word + 1] = view.getBigUint64(word * 8) ^ (1n << 63n);
  }
  return { elementsPerValue: 2, data };
}

/** What the columns of a batch are read from. */
export interface BatchReader {
  readonly body: Body;
  /** The values of a dictionary, as the batch has it. @throws RangeError when there is none */
  dictionary(id: number): Column;
}

/** Rows [from, to) of a node. `valid`: one byte a row; undefined: none is NULL. */
interface Rows {
  readonly from: number;
  readonly to: number;
  readonly valid: Uint8Array | undefined;
}

/** Values that a batch of rows may be of: views and dictionaries make many of few bytes. */
const valuesLimit = 2 ** 28;

/** Rows [from, to) of a column. @throws RangeError where it is damaged */
export async function readArrowColumn(reader: BatchReader, node: ArrowNode, from: number, to: number): Promise<Column> {
  if (to > node.length) {
    throw new RangeError(`column ${node.field.name} has ${node.length} values, ${to} are due`);
  }
  try {
    const rows = { from, to, valid: await readValidity(reader, node, from, to) };
    const { dictionary } = node.field;
    return dictionary === undefined
      ? await readPlain(reader, node, rows)
      : await readEncoded(reader, node, rows, dictionary);
  } catch (error) {
    throw error instanceof RangeError && !error.message.startsWith("column ")
      ? new RangeError(`column ${node.field.name}: ${error.message}`, { cause: error })
      : error;
  }
}

async function readPlain(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<Column> {
  const { type } = node.field;
  switch (type.kind) {
    case "int":
    case "float":
    case "decimal":
    case "date":
    case "time":
    case "timestamp":
    case "duration":
    case "fixedBytes": {
      const width = widthOf(type);
      const bytes = await reader.body.read(place(node, 1), rows.from * width, rows.to * width);
      const field = node.field as ArrowField & { readonly type: FixedType }; // which the case says
      return fixedColumn(field, bytes, rows.to - rows.from, rows.valid);
    }
    case "bool":
      return await readBools(reader, node, rows);
    case "bytes":
      return checkedText(type.text, await readBytes(reader, node, rows, type.large));
    case "view":
      return checkedText(type.text, await readViews(reader, node, rows));
    case "list":
      return await readList(reader, node, rows, type.large);
    case "listView":
      return await readListViews(reader, node, rows, type.large);
    case "fixedList":
      return await readFixedList(reader, node, rows, type.width);
    case "struct":
      return await readStruct(reader, node, rows);
    case "null":
    case "interval":
    case "union":
    case "map":
    case "runs":
      throw new TypeError(`${type.kind} is refused when a job is planned`);
    default:
      return assertNever(type);
  }
}

async function readValidity(
  { body }: BatchReader,
  { nulls, buffers }: ArrowNode,
  from: number,
  to: number,
): Promise<Uint8Array | undefined> {
  const [bits] = buffers;
  if (nulls === 0 || bits === undefined || from === to || (nulls < 0 && bits.bytes === 0)) {
    return undefined;
  }
  const bytes = await body.read(bits, from >>> 3, (to + 7) >>> 3);
  const valid = unpackBits(bytes, from & 7, to - from);
  return valid.includes(0) ? valid : undefined;
}

function place({ buffers }: ArrowNode, index: number): BufferPlace {
  const buffer = buffers[index];
  if (buffer === undefined) {
    throw new RangeError("a buffer is missing");
  }
  return buffer;
}

async function readBools(reader: BatchReader, node: ArrowNode, { from, to, valid }: Rows): Promise<Column> {
  const buffer = place(node, 1);
  if (buffer.bytes === 0 && node.nulls === node.length) {
    // Arrow's JavaScript library writes no values where all of them are NULL.
    return { kind: "fixed", elementsPerValue: 1, data: new Uint8Array(to - from), valid };
  }
  const bits = await reader.body.read(buffer, from >>> 3, (to + 7) >>> 3);
  return { kind: "fixed", elementsPerValue: 1, data: unpackBits(bits, from & 7, to - from), valid };
}

/** Offsets of rows, and of the row after, from 0 on; and where in the values they begin. */
interface Offsets {
  readonly base: number;
  readonly offsets: Uint32Array;
  readonly end: number;
}

/** @throws RangeError unless they ascend */
async function readOffsets(
  { body }: BatchReader,
  node: ArrowNode,
  { from, to }: Rows,
  large: boolean,
): Promise<Offsets> {
  if (from === to) {
    return { base: 0, offsets: new Uint32Array(1), end: 0 }; // there need not be any where there are no rows
  }
  const width = large ? 8 : 4;
  const bytes = await body.read(place(node, 1), from * width, (to + 1) * width);
  const found = large ? elementsOf("int64", bytes) : elementsOf("int32", bytes);
  const base = Number(found[0]);
  const end = Number(found[to - from]);
  if (base < 0 || !(end - base <= valuesLimit)) {
    throw new RangeError(`values ${base} to ${end} of ${to - from} rows; at most ${valuesLimit} are read at once`);
  }
  const offsets =
    found instanceof Int32Array && base === 0
      ? new Uint32Array(found.buffer, found.byteOffset, found.length)
      : Uint32Array.from(found as ArrayLike<number | bigint> & Iterable<number | bigint>, (offset) => {
          const value = Number(offset) - base;
          return value < 0 || value > end - base ? badOffset : value;
        });
  for (let row = 1, last = 0; row < offsets.length; row += 1) {
    const offset = offsets[row] as number;
    if (offset < last) {
      throw new RangeError("its offsets do not ascend");
    }
    last = offset;
  }
  return { base, offsets, end };
}

/** An invalid offset: it is larger than every valid one, so the check of the next offset, or of the last one, fails. */
const badOffset = 0xffff_ffff;

async function readBytes(reader: BatchReader, node: ArrowNode, rows: Rows, large: boolean): Promise<BytesColumn> {
  const { base, offsets, end } = await readOffsets(reader, node, rows, large);
  const bytes = base === end ? new Uint8Array(0) : await reader.body.read(place(node, 2), base, end);
  return { kind: "bytes", offsets, bytes, valid: rows.valid };
}

function checkedText(isText: boolean, column: BytesColumn): BytesColumn {
  if (isText) {
    checkTexts(column);
  }
  return column;
}

const viewBytes = 16;
const inlineBytes = 12;

/** A view has its bytes with it, up to 12; else it names a buffer and a place in it. */
async function readViews({ body }: BatchReader, node: ArrowNode, { from, to, valid }: Rows): Promise<BytesColumn> {
  const count = to - from;
  const views = await body.read(place(node, 1), from * viewBytes, to * viewBytes);
  const words = elementsOf("int32", views) as Int32Array;
  const offsets = new Uint32Array(count + 1);
  const used = new Map<number, { start: number; end: number }>();
  let total = 0;
  for (let row = 0; row < count; row += 1) {
    const length = valid?.[row] === 0 ? 0 : (words[row * 4] as number);
    total += length;
    if (length < 0 || total > valuesLimit) {
      throw new RangeError(`a view of ${length} bytes, ${total} with those before it`);
    }
    offsets[row + 1] = total;
    if (length > inlineBytes) {
      const [buffer, start] = [words[row * 4 + 2] as number, words[row * 4 + 3] as number];
      const range = used.get(buffer) ?? { start, end: start };
      used.set(buffer, { start: Math.min(range.start, start), end: Math.max(range.end, start + length) });
    }
  }
  const data = new Map<number, { start: number; bytes: Uint8Array }>();
  for (const [buffer, { start, end }] of used) {
    data.set(buffer, { start, bytes: await body.read(place(node, buffer < 0 ? -1 : buffer + 2), start, end) });
  }
  const bytes = new Uint8Array(total);
  for (let row = 0; row < count; row += 1) {
    const at = offsets[row] as number;
    const length = (offsets[row + 1] as number) - at;
    if (length > inlineBytes) {
      const buffer = data.get(words[row * 4 + 2] as number);
      const start = (words[row * 4 + 3] as number) - (buffer?.start ?? 0);
      bytes.set(buffer?.bytes.subarray(start, start + length) ?? [], at);
    } else {
      for (let index = 0; index < length; index += 1) {
        bytes[at + index] = views[row * viewBytes + 4 + index] as number;
      }
    }
  }
  return { kind: "bytes", offsets, bytes, valid };
}

function onlyChild({ children }: ArrowNode): ArrowNode {
  const [child] = children;
  if (child === undefined) {
    throw new RangeError("a list without elements");
  }
  return child;
}

async function readList(reader: BatchReader, node: ArrowNode, rows: Rows, large: boolean): Promise<ListColumn> {
  const { base, offsets, end } = await readOffsets(reader, node, rows, large);
  const child = await readArrowColumn(reader, onlyChild(node), base, end);
  return { kind: "list", offsets, child, valid: rows.valid };
}

async function readFixedList(
  reader: BatchReader,
  node: ArrowNode,
  { from, to, valid }: Rows,
  width: number,
): Promise<ListColumn> {
  if ((to - from) * width > valuesLimit) {
    throw new RangeError(`${to - from} lists of ${width}; at most ${valuesLimit} values are read at once`);
  }
  const child = await readArrowColumn(reader, onlyChild(node), from * width, to * width);
  const offsets = new Uint32Array(to - from + 1);
  for (let row = 0; row < offsets.length; row += 1) {
    offsets[row] = row * width;
  }
  return { kind: "list", offsets, child, valid };
}

/** Reads lists whose values may be in any order and overlap: gathers them. */
async function readListViews(
  reader: BatchReader,
  node: ArrowNode,
  { from, to, valid }: Rows,
  large: boolean,
): Promise<ListColumn> {
  const width = large ? 8 : 4;
  const [starts, sizes] = await Promise.all(
    [1, 2].map(async (index) =>
      elementsOf(large ? "int64" : "int32", await reader.body.read(place(node, index), from * width, to * width)),
    ),
  );
  const offsets = new Uint32Array(to - from + 1);
  let [low, high, total] = [Number.POSITIVE_INFINITY, 0, 0];
  for (let row = 0; row < to - from; row += 1) {
    const size = valid?.[row] === 0 ? 0 : Number(sizes?.[row]);
    total += size;
    if (size < 0 || total > valuesLimit) {
      throw new RangeError(`a list of ${size} elements, ${total} with those before it`);
    }
    offsets[row + 1] = total;
    if (size > 0) {
      low = Math.min(low, Number(starts?.[row]));
      high = Math.max(high, Number(starts?.[row]) + size);
    }
  }
  const childNode = onlyChild(node);
  const gathered = createColumnBuilder(requiredType(childNode.field), total);
  if (total > 0) {
    if (low < 0) {
      throw new RangeError(`a list begins at element ${low}`);
    }
    const child = await readArrowColumn(reader, childNode, low, high);
    for (let row = 0; row < to - from; row += 1) {
      const size = (offsets[row + 1] as number) - (offsets[row] as number);
      const start = Number(starts?.[row]) - low;
      if (size > 0) {
        gathered.append(child, start, start + size);
      }
    }
  }
  return { kind: "list", offsets, child: gathered.finish(), valid };
}

async function readStruct(reader: BatchReader, node: ArrowNode, { from, to, valid }: Rows): Promise<Column> {
  const children: Column[] = [];
  for (const child of node.children) {
    children.push(withNulls(await readArrowColumn(reader, child, from, to), valid));
  }
  return { kind: "struct", rowCount: to - from, children, valid };
}

/** DuckDB takes a field of a struct that is NULL for NULL only when the field itself is. */
function withNulls(column: Column, outer: Uint8Array | undefined): Column {
  if (outer === undefined) {
    return column;
  }
  const valid = column.valid?.map((flag, row) => flag & (outer[row] as number)) ?? outer;
  return column.kind === "struct"
    ? { ...column, valid, children: column.children.map((child) => withNulls(child, outer)) }
    : { ...column, valid, ...(column.kind === "bytes" ? { codes: undefined } : {}) };
}

async function readEncoded(
  reader: BatchReader,
  node: ArrowNode,
  { from, to, valid }: Rows,
  { id, index: { bits, signed } }: NonNullable<ArrowField["dictionary"]>,
): Promise<Column> {
  const bytes = await reader.body.read(place(node, 1), (from * bits) / 8, (to * bits) / 8);
  const indices = elementsOf(`${signed ? "int" : "uint"}${bits}`, bytes);
  return repeatRows(requiredType(node.field), reader.dictionary(id), { indices, valid, limit: valuesLimit });
}

/** @throws TypeError for a type that is refused when a job is planned */
export function requiredType(field: ArrowField): ColumnType {
  const type = typeOfField(field);
  if (type === undefined) {
    throw new TypeError(`${field.name} is refused when a job is planned`);
  }
  return type;
}
