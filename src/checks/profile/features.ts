import { type ColumnBuilder, createColumnBuilder, gatherColumn } from "../../columnar/column-builder.js";
import { rowsOf } from "../../columnar/column-rows.js";
import type { Column, ColumnType, DecodedInput, FixedColumn, Matrix } from "../../columnar/types.js";
import { assertNever } from "../../util/errors.js";
import { type ColumnProfile, profileColumn } from "./column.js";
import { mixHash } from "./histogram.js";

/** A column that the model reads, and where a record batch has its values: as the model is given them. */
export interface FeatureColumn {
  /** The column's name in the spec: `age`, or `user.age`. */
  readonly name: string;
  /** `number`: an element of each row of a matrix. `vector`: a list of numbers. `text`: a text. */
  readonly kind: "number" | "vector" | "text";
  readonly type: ColumnType;
  /** The index among the inputs of a record batch. */
  readonly input: number;
  /** The place in a row of the matrix; 0 unless `kind` is `number`. */
  readonly place: number;
  /** Only its rows and its NULLs are counted: its values name rows, or are texts for a tokenizer. */
  readonly isKey?: true;
}

/** Which columns of which rows are profiled. Plain JSON: it is sent to the threads that have the rows. */
export interface FeaturePlan {
  readonly columns: readonly FeatureColumn[];
  /** Further columns that the model reads, which are not profiled. */
  readonly left: readonly string[];
  /** Rows of a span: profiles are made span by span. */
  readonly spanRows: number;
  /** One row of this many is sampled. */
  readonly every: number;
  /** The most bins of a column's histogram. */
  readonly bins: number;
}

/** Rows that a sample has at least, if as many are scored; fewer than twice as many. */
const sampledRows = 8192;

/** Of how many rows one is sampled, if so many are scored. */
export function sampleEvery(rows: number): number {
  return Math.max(1, Math.floor(rows / sampledRows));
}

/** Rows [from, to) of a record batch. Their numbers in the run begin with `firstRow` at row 0 of what was read. */
export interface BatchRows {
  readonly from: number;
  readonly to: number;
  readonly firstRow: number;
  /** For each row of the batch, its index among the rows that were read, ascending; undefined: all are here. */
  readonly indices?: Uint32Array | undefined;
}

/**
 * The rows of a batch that are in the sample: about one in `every` rows of the run, chosen by a hash of its number. So
 * the sample does not depend on the worker, the attempt or the batch that reads a row.
 */
function sampleRows(rows: BatchRows, every: number): Uint32Array {
  const { from, to, firstRow, indices } = rows;
  if (from >= to) {
    return new Uint32Array(0);
  }
  const [first = from, last = to - 1] = indices === undefined ? [] : [indices[from], indices[to - 1]];
  const lastGroup = Math.floor((firstRow + last) / every);
  const sampled: number[] = [];
  let row = from;
  for (let group = Math.floor((firstRow + first) / every); group <= lastGroup; group += 1) {
    const wanted = group * every + (hashOfRow(group) % every);
    row = indices === undefined ? wanted - firstRow : rowFrom(wanted - firstRow, indices, row, to);
    if (row >= from && row < to && (indices === undefined || firstRow + (indices[row] as number) === wanted)) {
      sampled.push(row);
    }
  }
  return Uint32Array.from(sampled);
}

/** The first of rows [from, to) of the batch whose index is `wanted` or more; `to`: there is none. */
function rowFrom(wanted: number, indices: Uint32Array, from: number, to: number): number {
  let row = from;
  while (row < to && (indices[row] as number) < wanted) {
    row += 1;
  }
  return row;
}

/** A hash of 32 bits of the number of a row, or of a group of rows. */
export function hashOfRow(number: number): number {
  const upper = Math.floor(number / 0x1_0000_0000);
  return mixHash((number >>> 0) ^ (upper === 0 ? 0x9e3779b9 : mixHash(upper)));
}

/**
 * The sampled features of neighbouring rows of a span, which are kept until the span is complete. It can be sent to another
 * thread.
 */
export interface FeaturePart {
  /** Rows of the batch that it was made from: [from, to). */
  readonly from: number;
  readonly to: number;
  /** Their values, in the order of the plan. */
  readonly columns: readonly Column[];
  /** Of the values. */
  readonly bytes: number;
}

/** Takes the sampled rows of a record batch, all of one span. `inputs` stay as they are. */
export function measureFeatures(
  { every, columns: planned }: FeaturePlan,
  inputs: readonly DecodedInput[],
  rows: BatchRows,
): FeaturePart {
  const sampled = sampleRows(rows, every);
  const columns = planned.map(({ input, type, kind, place }) => {
    const decoded = inputs[input] as DecodedInput;
    return kind === "number" && decoded.kind === "matrix"
      ? gatherColumn(
          type,
          elementsOf(decoded),
          sampled.map((row) => row * decoded.width + place),
        )
      : gatherColumn(type, columnOf(decoded), sampled);
  });
  const bytes = buffersOf(columns).reduce((sum, { byteLength }) => sum + byteLength, 0);
  return { from: rows.from, to: rows.to, columns, bytes };
}

function elementsOf({ data, valid }: Matrix): FixedColumn {
  return { kind: "fixed", elementsPerValue: 1, data, valid };
}

/** An input as a column: the rows of a matrix are lists of equal lengths; one without any value is NULL. */
function columnOf(input: DecodedInput): Column {
  if (input.kind !== "matrix") {
    return input;
  }
  const { data, valid, width } = input;
  const rows = data.length / width;
  const offsets = Uint32Array.from({ length: rows + 1 }, (_, row) => row * width);
  const isThere =
    valid && Uint8Array.from({ length: rows }, (_, row) => +valid.subarray(row * width, (row + 1) * width).includes(1));
  return { kind: "list", offsets, child: elementsOf(input), valid: isThere };
}

/** The buffers of a part, which are no one else's. */
export function partBuffers({ columns }: Pick<FeaturePart, "columns">): ArrayBuffer[] {
  return [...new Set(buffersOf(columns))];
}

function buffersOf(columns: FeaturePart["columns"]): ArrayBuffer[] {
  return columns.flatMap(arraysOf).map(({ buffer }) => buffer as ArrayBuffer);
}

function arraysOf(column: Column): ArrayBufferView[] {
  const valid = column.valid === undefined ? [] : [column.valid];
  switch (column.kind) {
    case "fixed":
      return [column.data, ...valid];
    case "bytes":
      return [column.offsets, column.bytes, ...valid];
    case "list":
      return [column.offsets, ...arraysOf(column.child), ...valid];
    case "struct":
      return [...column.children.flatMap(arraysOf), ...valid];
    default:
      return assertNever(column);
  }
}

/** Collects the features of a span, or of a piece of one, while its rows come. */
export interface FeatureRows {
  add(part: FeaturePart): void;
  /** The bytes of the sampled values. */
  readonly bytes: number;
  /** The profiles of the sampled rows, in the order of the plan. */
  finish(): ReadonlyMap<string, ColumnProfile>;
}

export function createFeatureRows({ columns, bins }: FeaturePlan): FeatureRows {
  const sampled = columns.map(({ type }) => createColumnBuilder(type, 0));
  let bytes = 0;
  return {
    add(part) {
      bytes += part.bytes;
      for (const [index, column] of part.columns.entries()) {
        sampled[index]?.append(column, 0, rowsOf(column));
      }
    },
    get bytes() {
      return bytes;
    },
    finish: () =>
      new Map(
        columns.map((column, index) => [
          column.name,
          profileColumn(column, (sampled[index] as ColumnBuilder).finish(), bins),
        ]),
      ),
  };
}
