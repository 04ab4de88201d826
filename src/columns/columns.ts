import {
  type Column,
  type ColumnType,
  layoutOfType,
  type BytesColumn,
  type StructField,
  type FixedColumn,
} from "./types.js";
import { allocate, copyValues, elementOf, type Values } from "./values.js";
import { assertNever } from "../base/errors.js";
import { bytesOfCodes, codedTexts, takeTexts } from "./numbered-texts.js";

/** Makes a column that has only NULLs. */
export function nullColumn(type: ColumnType, rows: number): Column {
  const layout = layoutOfType(type);
  const valid = new Uint8Array(rows);
  switch (layout.kind) {
    case "fixed":
      return {
        kind: "fixed",
        elementsPerValue: layout.elementsPerValue,
        data: allocate(layout.element, rows * layout.elementsPerValue),
        valid,
      };
    case "bytes":
      return { kind: "bytes", offsets: new Uint32Array(rows + 1), bytes: new Uint8Array(0), valid };
    case "list":
      return { kind: "list", offsets: new Uint32Array(rows + 1), child: nullColumn(layout.element, 0), valid };
    case "struct":
      return {
        kind: "struct",
        rowCount: rows,
        children: layout.fields.map((field) => nullColumn(field.type, rows)),
        valid,
      };
    default:
      return assertNever(layout);
  }
}

/** Rows [from, to) of a column, in place. */
export function sliceColumn(column: Column, from: number, to: number): Column {
  const valid = column.valid?.subarray(from, to);
  switch (column.kind) {
    case "fixed":
      return {
        ...column,
        data: column.data.subarray(from * column.elementsPerValue, to * column.elementsPerValue),
        valid,
      };
    case "bytes":
      return column.codes === undefined
        ? { kind: "bytes", offsets: column.offsets.subarray(from, to + 1), bytes: column.bytes, valid }
        : codedTexts({ ...column.codes, indices: column.codes.indices.subarray(from, to) });
    case "list":
      return { ...column, offsets: column.offsets.subarray(from, to + 1), valid };
    case "struct":
      return {
        kind: "struct",
        rowCount: to - from,
        children: column.children.map((child) => sliceColumn(child, from, to)),
        valid,
      };
    default:
      return assertNever(column);
  }
}

/** Rows of a column. */
export function rowCountOf(column: Column): number {
  switch (column.kind) {
    case "fixed":
      return column.data.length / column.elementsPerValue;
    case "bytes":
      return column.codes?.indices.length ?? column.offsets.length - 1;
    case "list":
      return column.offsets.length - 1;
    case "struct":
      return column.rowCount;
    default:
      return assertNever(column);
  }
}

/** How many rows from `from` on have at most `limit` bytes in all columns together: at least one, none from `to` on. */
export function rowsWithin(
  columns: Iterable<Column>,
  { from, to, limit }: { readonly from: number; readonly to: number; readonly limit: number },
): number {
  const all = [...columns];
  const bytesTo = (end: number): number => all.reduce((sum, column) => sum + bytesIn(column, from, end), 0);
  if (to <= from || bytesTo(to) <= limit) {
    return to - from;
  }
  let low = from + 1;
  let high = to;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (bytesTo(middle) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low - from;
}

function bytesIn(column: Column, from: number, to: number): number {
  switch (column.kind) {
    case "fixed":
      return (to - from) * column.elementsPerValue * column.data.BYTES_PER_ELEMENT;
    case "bytes": {
      const texts =
        column.codes === undefined
          ? (column.offsets[to] ?? 0) - (column.offsets[from] ?? 0)
          : bytesOfCodes(column.codes, from, to);
      return texts + (to - from) * Uint32Array.BYTES_PER_ELEMENT;
    }
    case "list": {
      const elements = bytesIn(column.child, column.offsets[from] ?? 0, column.offsets[to] ?? 0);
      return elements + (to - from) * column.offsets.BYTES_PER_ELEMENT;
    }
    case "struct":
      return column.children.reduce((sum, child) => sum + bytesIn(child, from, to), 0);
    default:
      return assertNever(column);
  }
}

/** Returns the bytes of the longest value of a column of texts or bytes. */
export function longestText(offsets: Uint32Array): number {
  let longest = 0;
  for (let entry = 1; entry < offsets.length; entry += 1) {
    longest = Math.max(longest, (offsets[entry] as number) - (offsets[entry - 1] as number));
  }
  return longest;
}

/** Grows a column by copies of rows of others of the same type, in order. */
export interface ColumnBuilder {
  readonly rowCount: number;
  /** The size of the values so far, in bytes. */
  readonly bytes: number;
  /** Copies rows [from, to). */
  append(source: Column, from: number, to: number): void;
  /** The rows so far. The builder must not be used after it. */
  finish(): Column;
}

/** `rowCount`: about how many rows will come; memory is allocated for as many. */
export function createColumnBuilder(type: ColumnType, rowCount: number): ColumnBuilder {
  const layout = layoutOfType(type);
  switch (layout.kind) {
    case "fixed":
      return fixedBuilder(allocate(layout.element, rowCount * layout.elementsPerValue), layout.elementsPerValue);
    case "bytes":
      return bytesBuilder(rowCount);
    case "list":
      return listBuilder(layout.element, rowCount);
    case "struct":
      return structBuilder(layout.fields, rowCount);
    default:
      return assertNever(layout);
  }
}

function mismatch(expected: string, source: Column): TypeError {
  return new TypeError(`a ${source.kind} column came where ${expected} was due`);
}

/** One byte a row, made only once a NULL comes. */
function validity(): {
  append(source: Uint8Array | undefined, from: number, to: number): void;
  finish(): Uint8Array | undefined;
} {
  let valid: Uint8Array<ArrayBuffer> | undefined;
  let rows = 0;
  return {
    append(source, from, to) {
      const end = rows + (to - from);
      if (source !== undefined && valid === undefined) {
        valid = new Uint8Array(end).fill(1);
      }
      if (valid !== undefined) {
        valid = grown(valid, end, 1);
        if (source === undefined) {
          valid.fill(1, rows, end);
        } else {
          valid.set(source.subarray(from, to), rows);
        }
      }
      rows = end;
    },
    finish: () => valid?.subarray(0, rows),
  };
}

/** The same elements in an array of at least `length`, which doubles so that growing stays cheap. */
function grown<T extends Values>(values: T, length: number, fill = 0): T {
  if (values.length >= length) {
    return values;
  }
  const larger = new (values.constructor as new (size: number) => T)(Math.max(length, values.length * 2));
  if (fill !== 0) {
    (larger as Uint8Array<ArrayBuffer>).fill(fill);
  }
  copyValues(larger, 0, values, 0, values.length);
  return larger;
}

interface RowsOptions {
  /** Copies values after row `rows`. */
  readonly take: (source: Column, range: { from: number; to: number }, rows: number) => void;
  readonly bytes: (rows: number) => number;
  readonly finish: (rows: number, valid: Uint8Array | undefined) => Column;
}

function rowsBuilder({ take, bytes, finish }: RowsOptions): ColumnBuilder {
  const valid = validity();
  let rows = 0;
  return {
    get rowCount() {
      return rows;
    },
    get bytes() {
      return bytes(rows);
    },
    append(source, from, to) {
      take(source, { from, to }, rows);
      valid.append(source.valid, from, to);
      rows += to - from;
    },
    finish: () => finish(rows, valid.finish()),
  };
}

function fixedBuilder(initial: Values, elementsPerValue: 1 | 2): ColumnBuilder {
  let data = initial;
  return rowsBuilder({
    take(source, { from, to }, rows) {
      if (
        source.kind !== "fixed" ||
        source.data.BYTES_PER_ELEMENT !== data.BYTES_PER_ELEMENT ||
        source.elementsPerValue !== elementsPerValue
      ) {
        throw mismatch(`fixed values of ${data.BYTES_PER_ELEMENT * elementsPerValue} bytes`, source);
      }
      data = grown(data, (rows + to - from) * elementsPerValue);
      copyValues(data, rows * elementsPerValue, source.data, from * elementsPerValue, to * elementsPerValue);
    },
    bytes: (rows) => rows * elementsPerValue * data.BYTES_PER_ELEMENT,
    finish: (rows, valid) => ({
      kind: "fixed",
      elementsPerValue,
      data: data.subarray(0, rows * elementsPerValue),
      valid,
    }),
  });
}

function bytesBuilder(rowCount: number): ColumnBuilder {
  let offsets = new Uint32Array(rowCount + 1);
  let bytes = new Uint8Array(rowCount * 16);
  return rowsBuilder({
    take(source, { from, to }, rows) {
      if (source.kind !== "bytes") {
        throw mismatch("text or bytes", source);
      }
      offsets = appendOffsets(offsets, rows, source.offsets, { from, to });
      const start = source.offsets[from] ?? 0;
      const end = source.offsets[to] ?? 0;
      const at = offsets[rows] ?? 0;
      bytes = grown(bytes, at + end - start);
      bytes.set(source.bytes.subarray(start, end), at);
    },
    bytes: (rows) => (offsets[rows] ?? 0) + rows * offsets.BYTES_PER_ELEMENT,
    finish: (rows, valid) => ({ kind: "bytes", offsets: offsets.subarray(0, rows + 1), bytes, valid }),
  });
}

function listBuilder(element: ColumnType, rowCount: number): ColumnBuilder {
  let offsets = new Uint32Array(rowCount + 1);
  const child = createColumnBuilder(element, rowCount);
  return rowsBuilder({
    take(source, { from, to }, rows) {
      if (source.kind !== "list") {
        throw mismatch("a list", source);
      }
      offsets = appendOffsets(offsets, rows, source.offsets, { from, to });
      child.append(source.child, source.offsets[from] ?? 0, source.offsets[to] ?? 0);
    },
    bytes: (rows) => child.bytes + rows * offsets.BYTES_PER_ELEMENT,
    finish: (rows, valid) => ({ kind: "list", offsets: offsets.subarray(0, rows + 1), child: child.finish(), valid }),
  });
}

/** Continues `offsets` after row `rows` with the lengths of rows [from, to) of another column. */
function appendOffsets(
  offsets: Uint32Array<ArrayBuffer>,
  rows: number,
  source: Uint32Array,
  { from, to }: { from: number; to: number },
): Uint32Array<ArrayBuffer> {
  const larger = grown(offsets, rows + (to - from) + 1);
  const shift = (larger[rows] ?? 0) - (source[from] ?? 0);
  for (let row = from; row < to; row += 1) {
    larger[rows + (row - from) + 1] = (source[row + 1] ?? 0) + shift;
  }
  const end = (source[to] ?? 0) + shift;
  if (end > maxOffset) {
    throw new RangeError(`a span's column holds ${end} bytes or elements, more than ${maxOffset}; lower commit_rows`);
  }
  return larger;
}

const maxOffset = 0xffff_ffff;

function structBuilder(fields: readonly StructField[], rowCount: number): ColumnBuilder {
  const children = fields.map((field) => createColumnBuilder(field.type, rowCount));
  return rowsBuilder({
    take(source, { from, to }) {
      if (source.kind !== "struct" || source.children.length !== children.length) {
        throw mismatch(`a struct of ${children.length} fields`, source);
      }
      for (const [index, child] of source.children.entries()) {
        children[index]?.append(child, from, to);
      }
    },
    bytes: () => children.reduce((sum, child) => sum + child.bytes, 0),
    finish: (rows, valid) => ({
      kind: "struct",
      rowCount: rows,
      children: children.map((child) => child.finish()),
      valid,
    }),
  });
}

/** A column of so many empty texts. */
export function emptyTexts(rowCount: number): BytesColumn {
  return { kind: "bytes", offsets: new Uint32Array(rowCount + 1), bytes: new Uint8Array(0), valid: undefined };
}

/** The rows of `column` that `keep` marks with 1. */
export function filterColumn(type: ColumnType, column: Column, keep: Uint8Array): Column {
  const builder = createColumnBuilder(type, keep.length);
  for (const [from, to] of keptRuns(keep)) {
    builder.append(column, from, to);
  }
  return builder.finish();
}

/** Rows of a column by their numbers, which may repeat, in this order. */
export function gatherColumn(type: ColumnType, column: Column, rows: Uint32Array): Column {
  return takeRows(type, column, {
    indices: rows as Uint32Array<ArrayBuffer>,
    valid: undefined,
    limit: Number.POSITIVE_INFINITY,
  });
}

/** The runs [from, to) of neighbouring rows that are kept. `keep`: one byte a row. */
export function* keptRuns(keep: Uint8Array): Generator<readonly [from: number, to: number]> {
  for (let from = keep.indexOf(1); from >= 0; ) {
    const end = keep.indexOf(0, from);
    const to = end < 0 ? keep.length : end;
    yield [from, to];
    from = keep.indexOf(1, to);
  }
}

interface Taking {
  /** For each row, its position in the values. */
  readonly indices: Values;
  readonly valid: Uint8Array | undefined;
  /** Bytes or elements that may come of it. */
  readonly limit: number;
}

/** The values of a dictionary's indices. @throws RangeError for an index that it does not have */
export function takeRows(type: ColumnType, values: Column, taking: Taking): Column {
  const { positions, valid } = checkedPositions(values, taking);
  switch (values.kind) {
    case "fixed":
      return takeFixed(values, positions, valid);
    case "bytes":
      return { kind: "bytes", ...takeTexts(values, positions, { valid, limit: taking.limit }), valid };
    case "list":
    case "struct":
      return { ...takeNested(type, values, positions, taking.limit), valid };
    default:
      return assertNever(values);
  }
}

/** Entries of a dictionary whose codes are kept: each batch of the model looks through all of them. */
const codedEntries = 16 * 1024;

/**
 * As `takeRows`, but texts among which there is no NULL keep their codes. They hold as long as the dictionary and the
 * indices do.
 */
export function repeatRows(type: ColumnType, dictionary: Column, taking: Taking): Column {
  if (dictionary.kind === "bytes" && dictionary.offsets.length <= codedEntries) {
    const { positions, valid } = checkedPositions(dictionary, taking);
    if (valid === undefined) {
      return codedTexts({ entries: dictionary, indices: positions }, taking.limit);
    }
  }
  return takeRows(type, dictionary, taking);
}

/** @throws RangeError for more elements than `limit` */
function takeNested(type: ColumnType, values: Column, positions: Uint32Array, limit: number): Column {
  const size = rowCountOf(values);
  if (size === 0 && positions.length > 0) {
    throw new RangeError("a dictionary of lists or structs without values"); // a NULL without a value still takes a row
  }
  const builder = createColumnBuilder(type, positions.length);
  let elements = 0;
  for (let from = 0, to = 0; from < positions.length; from = to) {
    const first = positions[from] as number;
    for (to = from + 1; to < positions.length && positions[to] === first + (to - from); ) {
      to += 1;
    }
    const end = first + (to - from);
    elements += values.kind === "list" ? (values.offsets[end] as number) - (values.offsets[first] as number) : 0;
    if (elements > limit) {
      throw new RangeError(`${elements} elements of lists in ${positions.length} rows`);
    }
    builder.append(values, first, end);
  }
  return builder.finish();
}

/** Checked positions, 0 for NULLs, and which rows are NULL: by index or by value. */
function checkedPositions(
  values: Column,
  { indices, valid: given }: Taking,
): { positions: Uint32Array; valid: Uint8Array | undefined } {
  const size = rowCountOf(values);
  if (indices instanceof Uint32Array && given === undefined && values.valid === undefined) {
    checkPositions(indices, size);
    return { positions: indices, valid: undefined };
  }
  const positions = new Uint32Array(indices.length);
  const valid = given?.slice() ?? (values.valid === undefined ? undefined : new Uint8Array(indices.length).fill(1));
  for (let row = 0; row < indices.length; row += 1) {
    if (given?.[row] === 0) {
      continue;
    }
    const position = Number(indices[row]);
    if (position < 0 || position >= size) {
      throw new RangeError(`index ${position} into a dictionary of ${size} values`);
    }
    positions[row] = position;
    if (valid !== undefined && values.valid?.[position] === 0) {
      valid[row] = 0;
    }
  }
  return { positions, valid };
}

function checkPositions(positions: Uint32Array, size: number): void {
  for (let row = 0; row < positions.length; row += 1) {
    if ((positions[row] as number) >= size) {
      throw new RangeError(`index ${positions[row]} into a dictionary of ${size} values`);
    }
  }
}

function takeFixed(
  { data, elementsPerValue }: FixedColumn,
  positions: Uint32Array,
  valid: Uint8Array | undefined,
): Column {
  const taken = allocate(elementOf(data), positions.length * elementsPerValue);
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) {
    // By halves: a BigInt for each value would cost ten times as much.
    takeWords(wordsOf(taken), wordsOf(data), positions, elementsPerValue * 2);
  } else if (data instanceof Float32Array) {
    takeWords(wordsOf(taken), wordsOf(data), positions, elementsPerValue); // a number for each would change some NaNs
  } else if (data.length > 0) {
    for (let row = 0; row < positions.length; row += 1) {
      const position = positions[row] as number;
      for (let element = 0; element < elementsPerValue; element += 1) {
        taken[row * elementsPerValue + element] = data[position * elementsPerValue + element] as number;
      }
    }
  }
  return { kind: "fixed", elementsPerValue, data: taken, valid };
}

function wordsOf({ buffer, byteOffset, byteLength }: Values): Uint32Array {
  return new Uint32Array(buffer, byteOffset, byteLength / Uint32Array.BYTES_PER_ELEMENT);
}

function takeWords(target: Uint32Array, source: Uint32Array, positions: Uint32Array, words: number): void {
  for (let row = 0; source.length > 0 && row < positions.length; row += 1) {
    const position = (positions[row] as number) * words;
    for (let word = 0; word < words; word += 1) {
      target[row * words + word] = source[position + word] as number;
    }
  }
}
