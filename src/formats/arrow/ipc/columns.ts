import { createColumnBuilder } from "../../../columnar/column-builder.js";
import { takeRows } from "../../../columnar/column-take.js";
import type { BytesColumn, Column, ColumnType, ListColumn } from "../../../columnar/types.js";
import { elementsOf, unpackBits } from "../../../columnar/values.js";
import { assertNever } from "../../../util/errors.js";
import { checkTexts } from "../../utf8.js";
import type { Body } from "./body.js";
import type { ArrowField, ArrowNode, BufferPlace } from "./metadata.js";
import { columnTypeOf } from "./types.js";
import { fixedColumn, type FixedType, widthOf } from "./values.js";

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
    : { ...column, valid };
}

async function readEncoded(
  reader: BatchReader,
  node: ArrowNode,
  { from, to, valid }: Rows,
  { id, index: { bits, signed } }: NonNullable<ArrowField["dictionary"]>,
): Promise<Column> {
  const bytes = await reader.body.read(place(node, 1), (from * bits) / 8, (to * bits) / 8);
  const indices = elementsOf(`${signed ? "int" : "uint"}${bits}`, bytes);
  return takeRows(requiredType(node.field), reader.dictionary(id), { indices, valid, limit: valuesLimit });
}

/** @throws TypeError for a type that is refused when a job is planned */
export function requiredType(field: ArrowField): ColumnType {
  const type = columnTypeOf(field);
  if (type === undefined) {
    throw new TypeError(`${field.name} is refused when a job is planned`);
  }
  return type;
}
