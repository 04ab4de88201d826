import { createColumnBuilder, gatherColumn, rowCountOf } from "../../columns/columns.js";
import type { Column, ColumnType, DecodedInput, FixedColumn, Matrix } from "../../columns/types.js";
import { allocate, copyValues, elementOf } from "../../columns/values.js";
import { assertNever } from "../../base/errors.js";
import { type ColumnProfile, profileColumn } from "./column.js";
import { mixHash } from "./histogram.js";

/** A column that the model reads, and where a record batch has its values: as the model is given them. */
export interface FeatureColumn {
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
  readonly bins: number;
}

/** Rows that a sample has at least, if as many are scored; fewer than twice as many. */
const sampledRows = 8192;

/** Of how many rows one is sampled, if so many are scored. */
export function sampleEvery(rows: number): number {
  return Math.max(1, Math.floor(rows / sampledRows));
}

/** Rows [from, to) of a record batch. Their numbers in the run begin with `firstRow` at row 0 of what was read. */
export interface MeasuredRows {
  readonly from: number;
  readonly to: number;
  readonly firstRow: number;
  /** For each row of the batch, its index among the rows that were read, ascending; undefined: all are here. */
  readonly indices?: Uint32Array | undefined;
}

/** About one in `every` rows, by a hash of its number: the same whichever worker, attempt or batch reads a row. */
function sampleRows(rows: MeasuredRows, every: number): Uint32Array {
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

function hashOfRow(number: number): number {
  const upper = Math.floor(number / 0x1_0000_0000);
  return mixHash((number >>> 0) ^ (upper === 0 ? 0x9e3779b9 : mixHash(upper)));
}

/** Kept until the span is complete. It can be sent to another thread. */
export interface FeaturePart {
  /** Rows of the batch that it was made from: [from, to). */
  readonly from: number;
  readonly to: number;
  /** The sampled rows of the inputs that the plan has columns of, in their order. */
  readonly inputs: readonly DecodedInput[];
  readonly bytes: number;
}

/** Takes the sampled rows of a record batch, all of one span. `inputs` stay as they are. */
export function measureFeatures(
  { every, columns }: FeaturePlan,
  inputs: readonly DecodedInput[],
  rows: MeasuredRows,
): FeaturePart {
  const sampled = sampleRows(rows, every);
  const taken = plannedInputs(columns).map(({ input, type, width }): DecodedInput => {
    const decoded = inputs[input] as DecodedInput;
    return decoded.kind === "matrix"
      ? rowsOfMatrix(decoded, sampled, width ?? decoded.width)
      : (gatherColumn(type, decoded, sampled) as typeof decoded);
  });
  const bytes = buffersOf(taken).reduce((sum, { byteLength }) => sum + byteLength, 0);
  return { from: rows.from, to: rows.to, inputs: taken, bytes };
}

interface PlannedInput {
  readonly input: number;
  readonly type: ColumnType;
  /** How many elements of each row the columns take; undefined: all. */
  readonly width: number | undefined;
}

/** In the plan's order. All columns of an input are of one kind. */
function plannedInputs(columns: readonly FeatureColumn[]): PlannedInput[] {
  const inputs = new Map<number, PlannedInput>();
  for (const { input, type, kind, place } of columns) {
    const width = kind === "vector" ? undefined : Math.max(inputs.get(input)?.width ?? 0, place + 1);
    inputs.set(input, { input, type, width });
  }
  return [...inputs.values()];
}

function rowsOfMatrix({ data, valid, width: rowWidth }: Matrix, rows: Uint32Array, width: number): Matrix {
  const taken = allocate(elementOf(data), rows.length * width);
  const areThere = valid && new Uint8Array(taken.length);
  for (let index = 0; index < rows.length; index += 1) {
    const from = (rows[index] as number) * rowWidth;
    copyValues(taken, index * width, data, from, from + width);
    areThere?.set(valid?.subarray(from, from + width) ?? [], index * width);
  }
  return { kind: "matrix", width, data: taken, valid: areThere };
}

function stacked(matrices: readonly Matrix[]): Matrix {
  const [{ data: first, width }] = matrices as readonly [Matrix];
  const data = allocate(
    elementOf(first),
    matrices.reduce((sum, matrix) => sum + matrix.data.length, 0),
  );
  const valid = matrices.some((matrix) => matrix.valid !== undefined) ? new Uint8Array(data.length).fill(1) : undefined;
  let to = 0;
  for (const matrix of matrices) {
    copyValues(data, to, matrix.data, 0, matrix.data.length);
    if (matrix.valid !== undefined) {
      valid?.set(matrix.valid, to);
    }
    to += matrix.data.length;
  }
  return { kind: "matrix", width, data, valid };
}

/** @param place of the element in the row */
function elementsOf({ data, valid, width }: Matrix, place: number): FixedColumn {
  const rows = data.length / width;
  const elements = allocate(elementOf(data), rows);
  const isThere = valid && new Uint8Array(rows);
  for (let row = 0, at = place; row < rows; row += 1, at += width) {
    elements[row] = data[at] as number;
    if (isThere !== undefined) {
      isThere[row] = valid?.[at] as number;
    }
  }
  return { kind: "fixed", elementsPerValue: 1, data: elements, valid: isThere };
}

/** The rows of the matrix are lists of equal lengths; one without any value is NULL. */
function listsOf({ data, valid, width }: Matrix): Column {
  const rows = data.length / width;
  const offsets = Uint32Array.from({ length: rows + 1 }, (_, row) => row * width);
  const isThere =
    valid && Uint8Array.from({ length: rows }, (_, row) => +valid.subarray(row * width, (row + 1) * width).includes(1));
  return { kind: "list", offsets, child: { kind: "fixed", elementsPerValue: 1, data, valid }, valid: isThere };
}

/** The buffers of a part, which are no one else's. */
export function partBuffers({ inputs }: Pick<FeaturePart, "inputs">): ArrayBuffer[] {
  return [...new Set(buffersOf(inputs))];
}

function buffersOf(inputs: FeaturePart["inputs"]): ArrayBuffer[] {
  return inputs.flatMap(arraysOf).map(({ buffer }) => buffer as ArrayBuffer);
}

function arraysOf(column: Column | Matrix): ArrayBufferView[] {
  const valid = column.valid === undefined ? [] : [column.valid];
  switch (column.kind) {
    case "fixed":
    case "matrix":
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
  finish(): ReadonlyMap<string, ColumnProfile>;
}

export function createFeatureRows({ columns, bins }: FeaturePlan): FeatureRows {
  const parts: FeaturePart[] = [];
  let bytes = 0;

  /** The sampled rows of an input. */
  const sampleOf = (
    { input, type }: PlannedInput,
    index: number,
  ): readonly [input: number, sample: Matrix | Column] => {
    const pieces = parts.map((part) => part.inputs[index] as DecodedInput);
    const matrices = pieces.filter(isMatrix);
    if (matrices.length > 0) {
      return [input, stacked(matrices)];
    }
    const builder = createColumnBuilder(type, 0);
    for (const piece of pieces.filter((each) => !isMatrix(each))) {
      builder.append(piece, 0, rowCountOf(piece));
    }
    return [input, builder.finish()];
  };
  const finish = (): ReadonlyMap<string, ColumnProfile> => {
    const samples = new Map(plannedInputs(columns).map(sampleOf));
    const columnOf = ({ kind, input, place }: FeatureColumn): Column => {
      const sample = samples.get(input) as Matrix | Column;
      return sample.kind !== "matrix" ? sample : kind === "number" ? elementsOf(sample, place) : listsOf(sample);
    };
    return new Map(columns.map((column) => [column.name, profileColumn(column, columnOf(column), bins)]));
  };

  return {
    add(part) {
      bytes += part.bytes;
      parts.push(part);
    },
    get bytes() {
      return bytes;
    },
    finish,
  };
}

function isMatrix(input: DecodedInput): input is Matrix {
  return input.kind === "matrix";
}
