import { gatherColumn } from "../../columnar/column-builder.js";
import { nullColumn } from "../../columnar/column-rows.js";
import {
  type Column,
  type ColumnType,
  type DecodedInput,
  type FixedColumn,
  type ListColumn,
  type Matrix,
  showType,
} from "../../columnar/types.js";
import { assertNever } from "../../util/errors.js";
import { blockValues, type ColumnProfile, countNumbers, mergeColumns, profileColumn } from "./column.js";
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
  /** Of each input with numbers, by input: the columns of the plan, in its order. */
  readonly numbers: ReadonlyMap<number, SampledNumbers>;
  /** Values of texts and lists, by column of the plan. */
  readonly others: ReadonlyMap<number, Column>;
  /** Of the values. */
  readonly bytes: number;
}

interface SampledNumbers {
  readonly rows: number;
  /** [columns][rows]; NULLs are NaN. */
  readonly values: Float64Array;
  /** How many NULLs each column has. */
  readonly nulls: Float64Array;
}

/** Takes the sampled rows of a record batch, all of one span. `inputs` stay as they are. */
export function measureFeatures(
  { every, columns }: FeaturePlan,
  inputs: readonly DecodedInput[],
  rows: BatchRows,
): FeaturePart {
  const numbers = new Map<number, SampledNumbers>();
  const others = new Map<number, Column>();
  const sampled = sampleRows(rows, every);
  for (const [input, decoded] of inputs.entries()) {
    const own = [...columns.entries()].filter(([, column]) => column.input === input);
    if (decoded.kind === "matrix" && own.some(([, { kind }]) => kind === "number")) {
      numbers.set(
        input,
        gatherRows(
          decoded,
          own.map(([, { place }]) => place),
          sampled,
        ),
      );
      continue;
    }
    for (const [index, { type }] of own) {
      others.set(index, gatherColumn(type, columnOf(decoded), sampled));
    }
  }
  const bytes = buffersOf({ numbers, others }).reduce((sum, { byteLength }) => sum + byteLength, 0);
  return { from: rows.from, to: rows.to, numbers, others, bytes };
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

/** An input as a column: the rows of a matrix are lists of equal lengths; one without any value is NULL. */
function columnOf(input: DecodedInput): Column {
  if (input.kind !== "matrix") {
    return input;
  }
  const { data, valid, width } = input;
  const rows = data.length / width;
  const offsets = Uint32Array.from({ length: rows + 1 }, (_, row) => row * width);
  const child: FixedColumn = { kind: "fixed", elementsPerValue: 1, data, valid };
  const isThere =
    valid && Uint8Array.from({ length: rows }, (_, row) => +valid.subarray(row * width, (row + 1) * width).includes(1));
  return { kind: "list", offsets, child, valid: isThere } satisfies ListColumn;
}

/** The buffers of a part, which are no one else's. */
export function partBuffers(part: Pick<FeaturePart, "numbers" | "others">): ArrayBuffer[] {
  return [...new Set(buffersOf(part))];
}

function buffersOf({ numbers, others }: Pick<FeaturePart, "numbers" | "others">): ArrayBuffer[] {
  const arrays = [
    ...[...numbers.values()].flatMap(({ values, nulls }) => [values, nulls]),
    ...[...others.values()].flatMap(arraysOf),
  ];
  return arrays.map(({ buffer }) => buffer as ArrayBuffer);
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
  const parts: FeaturePart[] = [];
  let bytes = 0;
  return {
    add(part) {
      bytes += part.bytes;
      parts.push(part);
    },
    get bytes() {
      return bytes;
    },
    finish() {
      const profileOf = (column: FeatureColumn, index: number): ColumnProfile => {
        if (column.kind === "number") {
          const samples = parts.flatMap(({ numbers }) => numbers.get(column.input) ?? []);
          const place = columns.filter(({ input }) => input === column.input).indexOf(column);
          return profileNumbers(column, samples, { place, bins });
        }
        return parts
          .flatMap(({ others }) => others.get(index) ?? [])
          .concat(nullColumn(column.type, 0))
          .map((values) => profileColumn(column, values, bins))
          .reduce((first, second) => mergeColumns(first, second, bins));
      };
      return new Map(columns.map((column, index) => [column.name, profileOf(column, index)]));
    },
  };
}

function profileNumbers(
  { type, isKey }: FeatureColumn,
  samples: readonly SampledNumbers[],
  { place, bins }: { readonly place: number; readonly bins: number },
): ColumnProfile {
  const nulls = samples.reduce((sum, sample) => sum + (sample.nulls[place] as number), 0);
  let [next, row] = [0, 0];
  const profile = countNumbers((block) => {
    let filled = 0;
    while (filled < blockValues && next < samples.length) {
      const { rows, values } = samples[next] as SampledNumbers;
      const count = Math.min(rows - row, blockValues - filled);
      const from = place * rows + row;
      block.set(values.subarray(from, from + count), filled);
      filled += count;
      row += count;
      if (row === rows) {
        [next, row] = [next + 1, 0];
      }
    }
    return filled;
  }, bins);
  const counts = { type: showType(type), rows: profile.rows, nulls };
  return isKey === true ? { ...counts, kind: "rows" } : { ...profile, ...counts, nan: profile.nan - nulls };
}
