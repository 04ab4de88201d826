import { gatherColumn } from "../../columnar/column-builder.js";
import { sliceColumn } from "../../columnar/column-rows.js";
import type { Column, DecodedInput, FixedColumn, ListColumn, Matrix } from "../../columnar/types.js";
import { assertNever } from "../../util/errors.js";
import type { FeatureColumn, FeaturePlan } from "./feature-plan.js";
import { type MatrixCounts, measureMatrix } from "./measure-matrix.js";
import { type BatchRows, sampleRows } from "./row-sample.js";

/**
 * What is kept of the features of neighbouring rows of a span until the span is complete: counts and sums of all rows,
 * and the values of those that are sampled. It can be sent to another thread.
 */
export interface FeaturePart {
  /** Rows of the batch that it was made from: [from, to). */
  readonly from: number;
  readonly to: number;
  /** Counts and sums of all rows, by input with numbers, then by column in the order of the plan. */
  readonly counts: ReadonlyMap<number, MatrixCounts>;
  /** NULLs among all rows of texts and lists, by column of the plan. */
  readonly nulls: ReadonlyMap<number, number>;
  /** Sampled rows of each input with numbers, by input: the columns of the plan, in its order. */
  readonly numbers: ReadonlyMap<number, SampledNumbers>;
  /** Sampled values of texts and lists, by column of the plan. */
  readonly others: ReadonlyMap<number, Column>;
  /** Of the sampled values. */
  readonly bytes: number;
}

export interface SampledNumbers {
  readonly rows: number;
  /** [columns][rows]; NULLs are NaN. */
  readonly values: Float64Array;
  /** How many NULLs each column has. */
  readonly nulls: Float64Array;
}

/** The columns of a plan that an input of a record batch has. */
interface InputColumns {
  /** Their indexes in the plan. */
  readonly indexes: number[];
  /** Their places in a row of the input. */
  readonly places: number[];
  readonly areNumbers: boolean;
}

const inputsByPlan = new WeakMap<FeaturePlan, InputColumns[]>();

/** The columns of each input that has some, by input. */
function inputsOf(plan: FeaturePlan): InputColumns[] {
  const known = inputsByPlan.get(plan);
  if (known !== undefined) {
    return known;
  }
  const inputs: InputColumns[] = [];
  for (const [index, { input, place, kind }] of plan.columns.entries()) {
    const own = (inputs[input] ??= { indexes: [], places: [], areNumbers: kind === "number" });
    own.indexes.push(index);
    own.places.push(place);
  }
  inputsByPlan.set(plan, inputs);
  return inputs;
}

/** Measures rows of a record batch, all of one span. `inputs` stay as they are. */
export function measureFeatures(plan: FeaturePlan, inputs: readonly DecodedInput[], rows: BatchRows): FeaturePart {
  const { every, columns } = plan;
  const counts = new Map<number, MatrixCounts>();
  const numbers = new Map<number, SampledNumbers>();
  const nulls = new Map<number, number>();
  const others = new Map<number, Column>();
  const sampled = sampleRows(rows, every);
  for (const [input, decoded] of inputs.entries()) {
    const read = inputsOf(plan)[input];
    if (read !== undefined && decoded.kind === "matrix" && read.areNumbers) {
      counts.set(input, measureMatrix(decoded, read.places, rows));
      numbers.set(input, gatherRows(decoded, read.places, sampled));
      continue;
    }
    for (const index of read?.indexes ?? []) {
      const column = columnOf(decoded);
      nulls.set(index, nullsIn(column, rows));
      others.set(index, gatherColumn((columns[index] as FeatureColumn).type, column, sampled));
    }
  }
  const sampledArrays = [
    ...[...numbers.values()].map(({ values }) => values),
    ...[...others.values()].flatMap(arraysOf),
  ];
  const bytes = sampledArrays.reduce((sum, { byteLength }) => sum + byteLength, 0);
  return { from: rows.from, to: rows.to, counts, nulls, numbers, others, bytes };
}

/** Some columns of some rows of a matrix. */
function gatherRows({ data, valid, width }: Matrix, places: readonly number[], rows: Uint32Array): SampledNumbers {
  const nulls = new Float64Array(places.length);
  const values = new Float64Array(rows.length * places.length);
  const isBig = data instanceof BigInt64Array || data instanceof BigUint64Array;
  const numbers = isBig ? undefined : (data as Float64Array); // one loop for all types
  for (let row = 0; row < rows.length; row += 1) {
    const start = (rows[row] as number) * width;
    for (let column = 0, to = row; column < places.length; column += 1, to += rows.length) {
      const at = start + (places[column] as number);
      values[to] = numbers === undefined ? Number(data[at]) : (numbers[at] as number);
      if (valid !== undefined && valid[at] === 0) {
        values[to] = Number.NaN;
        nulls[column] = (nulls[column] as number) + 1;
      }
    }
  }
  return { rows: rows.length, values, nulls };
}

/** An input as a column: the rows of a matrix are lists of equal lengths. */
function columnOf(input: DecodedInput): Column {
  return input.kind === "matrix" ? listsOf(input) : input;
}

/** A row without any value is NULL: a list that was NULL, or had another length. */
function listsOf({ data, valid, width }: Matrix): ListColumn {
  const rows = data.length / width;
  const offsets = Uint32Array.from({ length: rows + 1 }, (_, row) => row * width);
  const child: FixedColumn = { kind: "fixed", elementsPerValue: 1, data, valid };
  const isThere =
    valid && Uint8Array.from({ length: rows }, (_, row) => +valid.subarray(row * width, (row + 1) * width).includes(1));
  return { kind: "list", offsets, child, valid: isThere };
}

function nullsIn(column: Column, { from, to }: BatchRows): number {
  const { valid } = sliceColumn(column, from, to);
  return valid === undefined ? 0 : valid.reduce((nulls, isThere) => nulls + (isThere === 0 ? 1 : 0), 0);
}

/** The buffers of a part, which are no one else's. */
export function partBuffers({ counts, numbers, others }: FeaturePart): ArrayBuffer[] {
  const arrays = [
    ...[...counts.values()].flatMap((of) => [of.counts, of.sums]),
    ...[...numbers.values()].flatMap(({ values, nulls }) => [values, nulls]),
    ...[...others.values()].flatMap(arraysOf),
  ];
  return [...new Set(arrays.map(({ buffer }) => buffer as ArrayBuffer))];
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
