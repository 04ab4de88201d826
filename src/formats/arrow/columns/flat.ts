import type { BytesColumn, Column } from "../../../columnar/types.js";
import type { Body } from "../ipc/body.js";
import type { ArrowNode } from "../ipc/layout.js";
import type { ArrowType } from "../ipc/schema.js";
import { columnTypeOf } from "./types.js";
import { checkTexts } from "../../utf8.js";
import { fixedBytes, fixedValues, isFixed, uuids, widthOf } from "./values.js";
import { elementsOf, unpackBits } from "../../../columnar/values.js";

/** What the columns of a batch are read from. */
export interface BatchReader {
  readonly body: Body;
  /** The values of a dictionary, as the batch has it. @throws RangeError when there is none */
  dictionary(id: number): Column;
}

export interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Values that a batch of rows may be of: views and dictionaries make many of few bytes. */
export const valuesLimit = 2 ** 28;

/** One byte a row; undefined: none is NULL. */
export async function readValidity(
  { body }: BatchReader,
  { nulls, buffers }: ArrowNode,
  { from, to }: Rows,
): Promise<Uint8Array | undefined> {
  const [bits] = buffers;
  if (nulls === 0 || bits === undefined || from === to || (nulls < 0 && bits.bytes === 0)) {
    return undefined;
  }
  const bytes = await body.read(bits, from >>> 3, (to + 7) >>> 3);
  const valid = unpackBits(bytes, from & 7, to - from);
  return valid.includes(0) ? valid : undefined;
}

export function place({ buffers }: ArrowNode, index: number): ArrowNode["buffers"][number] {
  const buffer = buffers[index];
  if (buffer === undefined) {
    throw new RangeError("a buffer is missing");
  }
  return buffer;
}

export async function readFixed(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<Column> {
  const { type } = node.field;
  if (!isFixed(type)) {
    throw new TypeError(`${type.kind} is refused when a job is planned`);
  }
  const width = widthOf(type);
  const valid = await readValidity(reader, node, rows);
  const bytes = await reader.body.read(place(node, 1), rows.from * width, rows.to * width);
  if (type.kind === "fixedBytes") {
    return columnTypeOf(node.field) === "uuid"
      ? { kind: "fixed", ...uuids(bytes), valid }
      : { kind: "bytes", ...fixedBytes(bytes, width, rows.to - rows.from), valid };
  }
  return { kind: "fixed", ...fixedValues(type, bytes, (index) => valid?.[index] === 0), valid };
}

export async function readBools(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<Column> {
  const valid = await readValidity(reader, node, rows);
  const buffer = place(node, 1);
  if (buffer.bytes === 0 && node.nulls === node.length) {
    // Arrow's JavaScript library writes no values where all of them are NULL.
    return { kind: "fixed", elementsPerValue: 1, data: new Uint8Array(rows.to - rows.from), valid };
  }
  const bits = await reader.body.read(buffer, rows.from >>> 3, (rows.to + 7) >>> 3);
  return { kind: "fixed", elementsPerValue: 1, data: unpackBits(bits, rows.from & 7, rows.to - rows.from), valid };
}

/** Offsets of rows, and of the row after, from 0 on; and where in the values they begin. */
interface Offsets {
  readonly base: number;
  readonly offsets: Uint32Array;
  readonly end: number;
}

/** @throws RangeError unless they ascend */
export async function readOffsets(
  { body }: BatchReader,
  node: ArrowNode,
  { from, to, large }: Rows & { large: boolean },
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

export async function readBytes(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<BytesColumn> {
  const { type } = node.field;
  const valid = await readValidity(reader, node, rows);
  const large = type.kind === "bytes" && type.large;
  const { base, offsets, end } = await readOffsets(reader, node, { ...rows, large });
  const bytes = base === end ? new Uint8Array(0) : await reader.body.read(place(node, 2), base, end);
  return checkedText(type, { kind: "bytes", offsets, bytes, valid });
}

function checkedText(type: ArrowType, column: BytesColumn): BytesColumn {
  if ((type.kind === "bytes" || type.kind === "view") && type.text) {
    checkTexts(column);
  }
  return column;
}

const viewBytes = 16;
const inlineBytes = 12;

/** A view has its bytes with it, up to 12; else it names a buffer and a place in it. */
export async function readViews(reader: BatchReader, node: ArrowNode, rows: Rows): Promise<BytesColumn> {
  const valid = await readValidity(reader, node, rows);
  const count = rows.to - rows.from;
  const views = await reader.body.read(place(node, 1), rows.from * viewBytes, rows.to * viewBytes);
  const words = elementsOf("int32", views) as Int32Array;
  const offsets = new Uint32Array(count + 1);
  /** The used range of each buffer. */
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
    data.set(buffer, { start, bytes: await reader.body.read(place(node, buffer < 0 ? -1 : buffer + 2), start, end) });
  }
  const bytes = new Uint8Array(total);
  for (let row = 0; row < count; row += 1) {
    const at = offsets[row] as number;
    const length = (offsets[row + 1] as number) - at;
    if (length > inlineBytes) {
      const from = data.get(words[row * 4 + 2] as number);
      const start = (words[row * 4 + 3] as number) - (from?.start ?? 0);
      bytes.set(from?.bytes.subarray(start, start + length) ?? [], at);
    } else {
      for (let index = 0; index < length; index += 1) {
        bytes[at + index] = views[row * viewBytes + 4 + index] as number;
      }
    }
  }
  return checkedText(node.field.type, { kind: "bytes", offsets, bytes, valid });
}
