import { createColumnBuilder, gatherColumn, rowsOf } from "../../columns/columns.js";
import type { Column, ColumnType, DecodedInput, FixedColumn, Matrix } from "../../columns/types.js";
import { allocate, copyValues, elementOf } from "../../columns/values.js";
import { assertNever } from "../../base/errors.js";
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
export interface MeasuredRows {
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

/** A hash of 32 bits of the number of a row, or of a group of rows. */
function hashOfRow(number: number): number {
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
  /** The sampled rows of the inputs that the plan has columns of, in their order. */
  readonly inputs: readonly DecodedInput[];
  /** Of the values. */
  readonly bytes: number;
}

/** Takes the sampled rows of a record batch, all of one span. `inputs` stay as they are. */
export function measureFeatures(
  { every, columns }: FeaturePlan,
  inputs: readonly DecodedInput[],
  rows: MeasuredRows,
): FeaturePart {
  const sampled = sampleRows(rows, every);
  const taken = plannedInputs(columns).map(({ input, type, kind }): DecodedInput => {
    const decoded = inputs[input] as DecodedInput;
    if (decoded.kind !== "matrix") {
      return gatherColumn(type, decoded, sampled) as typeof decoded;
    }
    const lastPlace = Math.max(...columns.filter((column) => column.input === input).map(({ place }) => place));
    return rowsOfMatrix(decoded, sampled, kind === "vector" ? decoded.width : lastPlace + 1);
  });
  const bytes = buffersOf(taken).reduce((sum, { byteLength }) => sum + byteLength, 0);
  return { from: rows.from, to: rows.to, inputs: taken, bytes };
}

/** A column of each input that the plan has columns of, in the order of the plan. */
function plannedInputs(columns: readonly FeatureColumn[]): FeatureColumn[] {
  return columns.filter(({ input }, index) => columns.findIndex((column) => column.input === input) === index);
}

/** Copies the first elements of some rows, so many each. */
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

/** Elements of matrices, one after the other, as a column. @param place of the element in each row; undefined: all of them */
function elementsOf(matrices: readonly Matrix[], place: number | undefined): FixedColumn {
  const perRow = ({ data, width }: Matrix): number => (place === undefined ? data.length : data.length / width);
  const length = matrices.reduce((sum, matrix) => sum + perRow(matrix), 0);
  const elements = allocate(elementOf((matrices[0] as Matrix).data), length);
  const valid = matrices.some((matrix) => matrix.valid !== undefined) ? new Uint8Array(length).fill(1) : undefined;
  let to = 0;
  for (const { data, valid: areThere, width } of matrices) {
    const step = place === undefined ? 1 : width;
    for (let at = place ?? 0; at < data.length; at += step) {
      elements[to] = data[at] as number;
      if (valid !== undefined && areThere !== undefined) {
        valid[to] = areThere[at] as number;
      }
      to += 1;
    }
  }
  return { kind: "fixed", elementsPerValue: 1, data: elements, valid };
}

/** Matrices as a column: their rows are lists of equal lengths; one without any value is NULL. */
function listsOf(matrices: readonly Matrix[]): Column {
  const child = elementsOf(matrices, undefined);
  const { width } = matrices[0] as Matrix;
  const rows = child.data.length / width;
  const offsets = Uint32Array.from({ length: rows + 1 }, (_, row) => row * width);
  const { valid } = child;
  const isThere =
    valid && Uint8Array.from({ length: rows }, (_, row) => +valid.subarray(row * width, (row + 1) * width).includes(1));
  return { kind: "list", offsets, child, valid: isThere };
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
  /** The profiles of the sampled rows, in the order of the plan. */
  finish(): ReadonlyMap<string, ColumnProfile>;
}

export function createFeatureRows({ columns, bins }: FeaturePlan): FeatureRows {
  const inputs = plannedInputs(columns).map(({ input }) => input);
  const parts: FeaturePart[] = [];
  let bytes = 0;

  const columnOf = ({ kind, type, input, place }: FeatureColumn): Column => {
    const sampled = parts.map((part) => part.inputs[inputs.indexOf(input)] as DecodedInput);
    const [matrices, pieces] = [sampled.filter(isMatrix), sampled.filter((piece) => !isMatrix(piece))];
    if (matrices.length > 0) {
      return kind === "number" ? elementsOf(matrices, place) : listsOf(matrices);
    }
    const builder = createColumnBuilder(type, 0);
    for (const piece of pieces) {
      builder.append(piece, 0, rowsOf(piece));
    }
    return builder.finish();
  };

  return {
    add(part) {
      bytes += part.bytes;
      parts.push(part);
    },
    get bytes() {
      return bytes;
    },
    finish: () => new Map(columns.map((column) => [column.name, profileColumn(column, columnOf(column), bins)])),
  };
}

function isMatrix(input: DecodedInput): input is Matrix {
  return input.kind === "matrix";
}
