import type { Matrix } from "../../columnar/types.js";
import type { Values } from "../../columnar/values.js";
import { blockValues, type NextNumbers, noCounts, type NumberCounts } from "../profiles/number-profile.js";
import { profileNumbers } from "../profiles/profile-numbers.js";
import { blockRows, type MeasuredBlocks, measureFloats } from "./feature-loops.js";

/** Numbers of columns of a matrix, counted and added up without rounding. Few objects: threads send it to each other. */
export interface MatrixCounts {
  /** The counts that `countOf` names, for each column. */
  readonly counts: Float64Array;
  /** [columns][2][sumsEach]: numbers whose exact sum is the column's, with `others`. */
  readonly sums: Float64Array;
  readonly sumsEach: number;
  /** Numbers that are not in `sums`. */
  readonly others: readonly OtherNumbers[];
}

/** Indexes into the counts of a column, of which there are `counted`. Minimum and maximum are those of finite numbers. */
export const countOf = {
  nulls: 0,
  nan: 1,
  positiveInfinite: 2,
  negativeInfinite: 3,
  finite: 4,
  min: 5,
  max: 6,
} as const;
export const counted = 7;

/** Finite numbers of a column: as they are, or added up, in units of 2^-1074. */
export interface OtherNumbers {
  readonly column: number;
  readonly values: Float64Array;
  readonly sum: bigint;
}

interface Rows {
  readonly from: number;
  readonly to: number;
}

/** Measures columns of some rows of a matrix, given by their places in a row. */
export function measureMatrix(matrix: Matrix, places: readonly number[], { from, to }: Rows): MatrixCounts {
  const { data, valid, width } = matrix;
  const isPlain = data instanceof Float32Array && valid === undefined && places.length > 0;
  if (isPlain && width >= 4 && to > from) {
    const lanes = places.map((place) => [place]);
    const found = measureBlocks(data, { width, places: lanes, from, to });
    if (found !== undefined) {
      return found;
    }
  }
  if (isPlain && width === 1 && to - from >= 4) {
    // One column as four side by side: neighbours are in one row.
    const even = Math.floor((to - from) / 4);
    const floats = data.subarray(from, to);
    const found = measureBlocks(floats, { width: 4, places: [[0, 1, 2, 3]], from: 0, to: even });
    if (found !== undefined) {
      addSlowly(found, matrix, { column: 0, place: 0, ranges: [{ from: from + even * 4, to }] });
      return found;
    }
  }
  const found = createCounts(places.length);
  for (const [column, place] of places.entries()) {
    addSlowly(found, matrix, { column, place, ranges: [{ from, to }] });
  }
  return found;
}

interface Counts extends MatrixCounts {
  readonly others: OtherNumbers[];
}

function createCounts(columns: number, sumsEach = 0): Counts {
  const counts = new Float64Array(columns * counted);
  for (let column = 0; column < columns; column += 1) {
    counts[column * counted + countOf.min] = Number.POSITIVE_INFINITY;
    counts[column * counted + countOf.max] = Number.NEGATIVE_INFINITY;
  }
  return { counts, sums: new Float64Array(columns * 2 * sumsEach), sumsEach, others: [] };
}

interface Floats extends Rows {
  readonly width: number;
  /** The places in a row that each column has. */
  readonly places: readonly (readonly number[])[];
}

/** undefined: there are no loops. */
function measureBlocks(data: Float32Array, floats: Floats): Counts | undefined {
  const { width, places } = floats;
  const last = Math.max(...places.flat());
  using measured = measureFloats(data, { ...floats, columns: Math.max(last + 1, 4) });
  if (measured === undefined) {
    return undefined;
  }
  const lanes = places[0]?.length ?? 1;
  const found = createCounts(places.length, lanes * measured.blocks);
  const matrix: Matrix = { kind: "matrix", width, data: data as Float32Array<ArrayBuffer>, valid: undefined };
  for (const [column, own] of places.entries()) {
    for (const [lane, place] of own.entries()) {
      const left = addBlocks(found, measured, { ...floats, column, place, firstSum: lane * measured.blocks });
      if (left.length > 0) {
        addSlowly(found, matrix, { column, place, ranges: left });
      }
    }
  }
  return found;
}

interface OnePlace extends Floats {
  readonly column: number;
  readonly place: number;
  /** The index of the first of these sums among those of the column. */
  readonly firstSum: number;
}

/** Adds what is known of blocks of a column. Returns the rows of those whose sums are not exact, which are left out. */
function addBlocks(found: Counts, measured: MeasuredBlocks, { from, to, column, place, firstSum }: OnePlace): Rows[] {
  const { counts, sums, sumsEach } = found;
  const { blocks, columns, extremes, counts: numbers, sums: measuredSums } = measured;
  const left: Rows[] = [];
  const at = column * counted;
  const toSum = column * 2 * sumsEach + firstSum;
  let [finite, nan] = [0, 0];
  let min = counts[at + countOf.min] as number;
  let max = counts[at + countOf.max] as number;
  for (let block = 0; block < blocks; block += 1) {
    const floats = block * 4 * columns + place;
    const start = from + block * blockRows;
    const end = start + blockRows < to ? start + blockRows : to;
    if (numbers[floats + 3 * columns] === 0) {
      left.push({ from: start, to: end });
      continue;
    }
    const count = -(numbers[floats + 2 * columns] as number);
    nan += end - start - count;
    if (count > 0) {
      finite += count;
      const [least, greatest] = [extremes[floats] as number, extremes[floats + columns] as number];
      min = least < min ? least : min;
      max = greatest > max ? greatest : max;
      const fromSum = block * 2 * columns + place;
      sums[toSum + block] = measuredSums[fromSum] as number;
      sums[toSum + sumsEach + block] = measuredSums[fromSum + columns] as number;
    }
  }
  counts[at + countOf.finite] = (counts[at + countOf.finite] as number) + finite;
  counts[at + countOf.nan] = (counts[at + countOf.nan] as number) + nan;
  counts[at + countOf.min] = min + 0; // of -0, too
  counts[at + countOf.max] = max + 0;
  return left;
}

/** Rows of a column. */
interface Part {
  readonly column: number;
  readonly place: number;
  readonly ranges: readonly Rows[];
}

/** The numbers of at most this many rows are kept as they are, which takes less time than adding them up. */
const keptRows = 2 * blockRows;
const noHistogram = { bins: 2, values: 0, nameBytes: 0 };
const noValues = new Float64Array(0);
const scratch = new Float64Array(blockValues);

/** Adds any numbers of one column. */
function addSlowly({ counts, others }: Counts, matrix: Matrix, { column, place, ranges }: Part): void {
  const rows = ranges.reduce((sum, { from, to }) => sum + to - from, 0);
  const at = column * counted;
  const add = (index: number, count: number): void => {
    counts[at + index] = (counts[at + index] as number) + count;
  };
  const take = (found: NumberCounts): void => {
    add(countOf.nulls, rows - found.nan - found.positiveInfinite - found.negativeInfinite - found.finite);
    add(countOf.nan, found.nan);
    add(countOf.positiveInfinite, found.positiveInfinite);
    add(countOf.negativeInfinite, found.negativeInfinite);
    add(countOf.finite, found.finite);
    counts[at + countOf.min] = Math.min(counts[at + countOf.min] as number, found.min);
    counts[at + countOf.max] = Math.max(counts[at + countOf.max] as number, found.max);
  };
  const next = numbersOf(matrix, place, ranges);
  if (rows <= keptRows) {
    const { values, found } = keepNumbers(next, rows);
    take(found);
    others.push({ column, values, sum: 0n });
  } else {
    const found = profileNumbers(next, noHistogram);
    take(found);
    others.push({ column, values: noValues, sum: found.sum });
  }
}

function keepNumbers(next: NextNumbers, rows: number): { readonly values: Float64Array; readonly found: NumberCounts } {
  const found = { ...noCounts };
  const values = new Float64Array(rows);
  for (let count = next(scratch); count > 0; count = next(scratch)) {
    for (let at = 0; at < count; at += 1) {
      const value = (scratch[at] as number) + 0;
      if (Number.isFinite(value)) {
        values[found.finite] = value;
        found.finite += 1;
        found.min = Math.min(found.min, value);
        found.max = Math.max(found.max, value);
      } else {
        const kind = Number.isNaN(value) ? "nan" : value > 0 ? "positiveInfinite" : "negativeInfinite";
        found[kind] += 1;
      }
    }
  }
  return { values: values.slice(0, found.finite), found };
}

/** The numbers of a column of a matrix that are not NULL, block by block. */
function numbersOf({ data, valid, width }: Matrix, place: number, ranges: readonly Rows[]): NextNumbers {
  const read = reader(data);
  let range = 0;
  let row = ranges[0]?.from ?? 0;
  return (target) => {
    let count = 0;
    while (count === 0 && range < ranges.length) {
      const end = Math.min(ranges[range]?.to ?? 0, row + blockValues);
      for (; row < end; row += 1) {
        const at = row * width + place;
        target[count] = read(at);
        count += valid === undefined || valid[at] !== 0 ? 1 : 0;
      }
      if (row === ranges[range]?.to) {
        range += 1;
        row = ranges[range]?.from ?? 0;
      }
    }
    return count;
  };
}

function reader(data: Values): (at: number) => number {
  return data instanceof BigInt64Array || data instanceof BigUint64Array
    ? (at) => Number(data[at])
    : (at) => data[at] as number;
}
