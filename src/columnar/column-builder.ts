import { assertNever } from "../util/errors.js";
import { type BytesColumn, type Column, type ColumnType, layoutOf, type StructField } from "./types.js";
import { allocate, copyValues, elementOf, type Values } from "./values.js";

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
  const layout = layoutOf(type);
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

/** What all builders share: they count rows, and keep which are NULL. */
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
  if (column.kind === "fixed" && column.elementsPerValue === 1) {
    const { data, valid } = column;
    return {
      ...column,
      data: gatherValues(data, rows),
      valid: valid && gatherFlags(valid, rows),
    };
  }
  const builder = createColumnBuilder(type, rows.length);
  for (let from = 0, to = 0; from < rows.length; from = to) {
    const first = rows[from] ?? 0;
    for (to = from + 1; to < rows.length && rows[to] === first + (to - from); ) {
      to += 1;
    }
    builder.append(column, first, first + (to - from));
  }
  return builder.finish();
}

function gatherFlags(flags: Uint8Array, rows: Uint32Array): Uint8Array {
  const gathered = new Uint8Array(rows.length);
  for (let index = 0; index < rows.length; index += 1) {
    gathered[index] = flags[rows[index] as number] as number;
  }
  return gathered;
}

function gatherValues(values: Values, rows: Uint32Array): Values {
  const gathered = allocate(elementOf(values), rows.length);
  // One loop for all types: TypeScript cannot see that the two arrays agree.
  const from = values as Float64Array;
  const to = gathered as Float64Array;
  for (let index = 0; index < rows.length; index += 1) {
    to[index] = from[rows[index] as number] as number;
  }
  return gathered;
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
