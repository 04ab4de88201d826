import type { NumericTensorType, CastRules } from "../../binding/contract.js";
import { tensorElement } from "../../columnar/tensor.js";
import type { FixedColumn, Matrix } from "../../columnar/types.js";
import { allocate, type ElementType, elementOf, type Values } from "../../columnar/values.js";
import { packedRows, packFour } from "../../columnar/memory/vectors.js";
import { type Cast, exactBits } from "./cast.js";

/** What a matrix is filled from. */
export interface MatrixColumn {
  readonly column: FixedColumn;
  readonly cast: Cast;
}

interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Returns memory for `length` elements, which is not cleared. */
export type TakeValues = (element: ElementType, length: number) => Values;

/** Makes arrays one after the other: each holds until the next one is made. */
export function reusing(): TakeValues {
  let last: Values | undefined;
  return (element, length) => {
    last = last?.length === length && elementOf(last) === element ? last : allocate(element, length);
    return last;
  };
}

/** Rows [from, to) of some columns side by side. */
export function packMatrix(
  dtype: NumericTensorType,
  columns: readonly MatrixColumn[],
  { from, to }: Rows,
  { missing, take = allocate }: Pick<CastRules, "missing"> & { readonly take?: TakeValues },
): Matrix {
  const width = columns.length;
  const [only] = columns;
  const nan = missing === "nan" && exactBits[dtype] !== undefined;
  if (
    only !== undefined &&
    width === 1 &&
    only.cast === "copy" &&
    elementOf(only.column.data) === tensorElement(dtype)
  ) {
    const valid = only.column.valid?.subarray(from, to);
    if (valid === undefined || !nan) {
      return { kind: "matrix", width, data: only.column.data.subarray(from, to), valid };
    }
  }
  const target: Target = {
    data: take(tensorElement(dtype), (to - from) * width),
    width,
    valid: undefined,
    isFinite: true,
  };
  // As many rows of a column follow each other, which the processor reads ahead, and what is filled of their rows stays
  // in its first cache.
  const groups = groupsOf(columns);
  for (let start = from; start < to; start += packedRows) {
    const rows = { from: start, to: Math.min(to, start + packedRows), nan };
    for (const { index, some } of groups) {
      const at = (start - from) * width + index;
      if (!packSome(target, at, some, rows)) {
        target.isFinite = false; // the rows are checked one by one
        for (const [place, source] of some.entries()) {
          convert(target, at + place, source, rows);
        }
      }
      for (const [place, { column }] of some.entries()) {
        markNulls(target, at + place, column.valid, rows);
      }
    }
  }
  return { kind: "matrix", width, data: target.data, valid: target.valid, isFinite: target.isFinite || undefined };
}

interface Group {
  /** The index of the group's first column. */
  readonly index: number;
  readonly some: readonly MatrixColumn[];
}

/** Columns by fours. Where they do not come out even, the last four are among those before, too. */
function groupsOf(columns: readonly MatrixColumn[]): Group[] {
  return Array.from({ length: Math.ceil(columns.length / 4) }, (_, group) => {
    const index = Math.max(0, Math.min(group * 4, columns.length - 4));
    return { index, some: columns.slice(index, index + 4) };
  });
}

/**
 * Packs four columns at once, where loops reach them and all of their values fit, or are checked later. False: the target's
 * content is undefined.
 */
function packSome(target: Target, at: number, columns: readonly MatrixColumn[], { from, to }: Rows): boolean {
  const [a, b, c, d] = columns.map(({ column }) => column.data);
  if (a === undefined || b === undefined || c === undefined || d === undefined) {
    return false;
  }
  const isPacked = packFour(target.data, at, target.width, { a, b, c, d, from, to });
  target.isFinite &&= isPacked === true;
  return isPacked === true || (isPacked === false && columns.every(({ cast }) => cast === "copy"));
}

interface Target {
  readonly data: Values;
  readonly width: number;
  /** Made once a value does not fit, or is NULL. */
  valid: Uint8Array | undefined;
  /** Whether all numbers so far are known to be finite. */
  isFinite: boolean;
}

function unfit(target: Target, at: number): void {
  target.valid ??= new Uint8Array(target.data.length).fill(1);
  target.valid[at] = 0;
}

function markNulls(
  target: Target,
  at: number,
  valid: Uint8Array | undefined,
  { from, to, nan }: Rows & { nan: boolean },
): void {
  if (valid === undefined) {
    return;
  }
  for (let row = from, place = at; row < to; row += 1, place += target.width) {
    if (valid[row] === 0) {
      if (nan) {
        (target.data as Float64Array)[place] = Number.NaN;
        target.valid?.fill(1, place, place + 1);
      } else {
        unfit(target, place);
      }
    }
  }
}

function convert(target: Target, at: number, { column: { data }, cast }: MatrixColumn, rows: Rows): void {
  switch (cast) {
    case "copy":
      copyStrided(target.data as Float64Array, at, target.width, data as Float64Array, rows);
      break;
    case "round":
    case "exact":
      copyChecked(target, at, data as Float64Array, { ...rows, isExact: cast === "exact" });
      break;
    case "long":
      copyLongs(target, at, data as BigInt64Array, rows);
      break;
    case "widen":
      copyWidened(target, at, data as Int32Array, rows);
      break;
  }
}

function copyStrided(target: Float64Array, at: number, width: number, source: Float64Array, { from, to }: Rows): void {
  for (let row = from, place = at; row < to; row += 1, place += width) {
    target[place] = source[row] as number;
  }
}

function copyChecked(
  target: Target,
  at: number,
  source: Float64Array,
  { from, to, isExact }: Rows & { isExact: boolean },
): void {
  const data = target.data as Float64Array;
  for (let row = from, place = at; row < to; row += 1, place += target.width) {
    const value = source[row] as number;
    data[place] = value;
    const made = data[place];
    if (isExact ? made !== value : !Number.isFinite(made) && Number.isFinite(value)) {
      unfit(target, place);
    }
  }
}

/** Whole numbers up to this are doubles. */
const wholeLimit = 2 ** 53;

/** Copies int64 values as two halves: a BigInt for each value would cost ten times as much. */
function copyLongs(target: Target, at: number, source: BigInt64Array | BigUint64Array, { from, to }: Rows): void {
  const data = target.data as Float64Array;
  const low = new Uint32Array(source.buffer, source.byteOffset, source.length * 2);
  const high = source instanceof BigInt64Array ? new Int32Array(low.buffer, low.byteOffset, low.length) : low;
  for (let row = from, place = at; row < to; row += 1, place += target.width) {
    const value = (high[row * 2 + 1] as number) * 2 ** 32 + (low[row * 2] as number);
    data[place] = value;
    const fits =
      value < wholeLimit && value > -wholeLimit ? data[place] === value : BigInt(data[place] as number) === source[row];
    if (!fits) {
      unfit(target, place);
    }
  }
}

/** Widens int32 values to int64 as two halves: the upper one repeats the sign. */
function copyWidened({ data, width }: Target, at: number, source: Int32Array, { from, to }: Rows): void {
  const halves = new Int32Array(data.buffer, data.byteOffset, data.length * 2);
  for (let row = from, place = at * 2; row < to; row += 1, place += width * 2) {
    const value = source[row] as number;
    halves[place] = value;
    halves[place + 1] = value < 0 ? -1 : 0;
  }
}
