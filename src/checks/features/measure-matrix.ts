import type { Matrix } from "../../columnar/types.js";
import type { Values } from "../../columnar/values.js";
import { copyNumbers } from "../profiles/column-numbers.js";
import { blockValues, type NextNumbers, noCounts, type NumberCounts } from "../profiles/number-profile.js";
import { profileNumbers } from "../profiles/profile-numbers.js";
import { atOnce, counted, type MeasuredNumbers, measureNumbers, type Numbers } from "./feature-loops.js";

/** Numbers of columns of a matrix, counted and added up without rounding. Few objects: threads send it to each other. */
export interface MatrixCounts {
  /** [columns][counted], in the order of `countOf`. */
  readonly counts: Float64Array<ArrayBuffer>;
  /** [any number][columns]: numbers whose exact sum is the column's, with `others`. */
  readonly sums: Float64Array<ArrayBuffer>;
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
export function measureMatrix(matrix: Matrix, places: readonly number[], rows: Rows): MatrixCounts {
  const found = measureInLoops(matrix, { places, ...rows });
  if (found !== undefined) {
    return found;
  }
  const slow = createCounts(places.length);
  for (const [column, place] of places.entries()) {
    addSlowly(slow, matrix, { column, place, ...rows });
  }
  return slow;
}

interface Counts extends MatrixCounts {
  readonly others: OtherNumbers[];
}

/** The counts of no rows, with so many sums for each column. */
export function createCounts(columns: number, sums = 0): Counts {
  const counts = new Float64Array(columns * counted);
  for (let at = 0; at < counts.length; at += counted) {
    counts[at + countOf.min] = Number.POSITIVE_INFINITY;
    counts[at + countOf.max] = Number.NEGATIVE_INFINITY;
  }
  return { counts, sums: new Float64Array(columns * sums), others: [] };
}

/** Adds the counts of a column to those of the same one, or of another, given by where they begin. */
export function addCounts(target: Float64Array, at: number, counts: Float64Array, from: number): void {
  for (let index = 0; index < countOf.min; index += 1) {
    target[at + index] = (target[at + index] as number) + (counts[from + index] as number);
  }
  const { min, max } = countOf;
  target[at + min] = Math.min(target[at + min] as number, counts[from + min] as number);
  target[at + max] = Math.max(target[at + max] as number, counts[from + max] as number);
}

interface Part extends Rows {
  readonly places: readonly number[];
}

/** undefined: there are no loops for it. */
function measureInLoops(matrix: Matrix, { places, from, to }: Part): MatrixCounts | undefined {
  const { data, valid, width } = matrix;
  const kind = data instanceof Float32Array ? "floats" : "doubles";
  const rowsAtOnce = rowsAtOnceFor(width, atOnce[kind]);
  const rows = Math.floor((to - from) / rowsAtOnce);
  if (rows === 0 || places.length === 0) {
    return undefined;
  }
  const columns = rowsAtOnce === 1 ? Math.max(atOnce[kind], ...places.map((place) => place + 1)) : rowsAtOnce * width;
  const measured = measureNumbers({
    kind,
    rows,
    width: rowsAtOnce * width,
    columns,
    numbers: valid === undefined ? numbersAt(data, from * width) : undefined,
    copy(target, at) {
      copyElements(matrix, from * width + at, target);
    },
  });
  if (measured === undefined) {
    return undefined;
  }
  const isInOrder = columns === places.length && places.every((place, column) => place === column);
  if (measured.areExact && isInOrder && valid === undefined) {
    return { ...measured, others: [] };
  }
  const found = createCounts(places.length, (measured.sums.length * rowsAtOnce) / columns);
  for (const [column, place] of places.entries()) {
    const isExact = takeColumn(found, measured, { column, place, rowsAtOnce, columns });
    const next = isExact ? from + rows * rowsAtOnce : from;
    takeNulls(found, matrix, { column, place, from, to: next });
    addSlowly(found, matrix, { column, place, from: next, to });
  }
  return found;
}

/** The neighbouring rows that the loops read as one, since they measure so many columns at once and a row has fewer. */
function rowsAtOnceFor(width: number, columns: number): number {
  return width >= columns ? 1 : columns % width === 0 ? columns / width : columns;
}

/** The numbers from index `at` on, if they are floats or doubles. */
function numbersAt(data: Values, at: number): Numbers | undefined {
  return data instanceof Float32Array || data instanceof Float64Array ? data.subarray(at) : undefined;
}

/** Fills `target` with elements from index `from` on, NULLs as NaN. */
function copyElements({ data, valid }: Matrix, from: number, target: Numbers): void {
  const to = from + target.length;
  if (target instanceof Float32Array) {
    target.set((data as Float32Array).subarray(from, to));
  } else {
    copyNumbers({ data }, from, to, target);
  }
  if (valid === undefined) {
    return;
  }
  for (let at = from; at < to; at += 1) {
    if (valid[at] === 0) {
      target[at - from] = Number.NaN;
    }
  }
}

/** Counts the NULLs of a column, which were counted as NaN. */
function takeNulls({ counts }: Counts, { valid, width }: Matrix, { column, place, from, to }: ColumnRows): void {
  if (valid === undefined) {
    return;
  }
  let nulls = 0;
  for (let row = from; row < to; row += 1) {
    nulls += valid[row * width + place] === 0 ? 1 : 0;
  }
  const at = column * counted;
  counts[at + countOf.nulls] = (counts[at + countOf.nulls] as number) + nulls;
  counts[at + countOf.nan] = (counts[at + countOf.nan] as number) - nulls;
}

interface OneColumn {
  readonly column: number;
  readonly place: number;
  readonly rowsAtOnce: number;
  /** Those that were measured. */
  readonly columns: number;
}

/** Copies the counts and sums of a column; false: its sums are not exact. */
function takeColumn(
  found: Counts,
  measured: MeasuredNumbers,
  { column, place, rowsAtOnce, columns }: OneColumn,
): boolean {
  const each = columns / rowsAtOnce;
  for (let at = place; at < columns; at += each) {
    if (measured.counts[at * counted + countOf.finite] === -1) {
      return false;
    }
  }
  for (let at = place; at < columns; at += each) {
    addCounts(found.counts, column * counted, measured.counts, at * counted);
  }
  const perRow = found.counts.length / counted;
  for (let at = place, to = column; at < measured.sums.length; at += each, to += perRow) {
    found.sums[to] = measured.sums[at] as number;
  }
  return true;
}

/** Rows of a column. */
interface ColumnRows extends Rows {
  readonly column: number;
  readonly place: number;
}

/** The numbers of at most this many rows are kept as they are, which takes less time than adding them up. */
const keptRows = 2048;
const noHistogram = { bins: 2, values: 0, nameBytes: 0 };
const noValues = new Float64Array(0);
const scratch = new Float64Array(blockValues);

/** Adds any numbers of one column. */
function addSlowly({ counts, others }: Counts, matrix: Matrix, { column, place, from, to }: ColumnRows): void {
  const rows = to - from;
  if (rows === 0) {
    return;
  }
  const next = numbersOf(matrix, place, { from, to });
  const take = ({ nan, positiveInfinite, negativeInfinite, finite, min, max }: NumberCounts): void => {
    const nulls = rows - nan - positiveInfinite - negativeInfinite - finite;
    const found = Float64Array.of(nulls, nan, positiveInfinite, negativeInfinite, finite, min, max);
    addCounts(counts, column * counted, found, 0);
  };
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

/** The numbers of rows of a column of a matrix that are not NULL, block by block. */
function numbersOf({ data, valid, width }: Matrix, place: number, { from, to }: Rows): NextNumbers {
  const read = reader(data);
  let row = from;
  return (target) => {
    let count = 0;
    while (count === 0 && row < to) {
      for (const end = Math.min(to, row + blockValues); row < end; row += 1) {
        const at = row * width + place;
        target[count] = read(at);
        count += valid === undefined || valid[at] !== 0 ? 1 : 0;
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
