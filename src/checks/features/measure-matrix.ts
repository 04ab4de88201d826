import type { Matrix } from "../../columnar/types.js";
import type { Values } from "../../columnar/values.js";
import { copyNumbers } from "../profiles/column-numbers.js";
import { createExactAdder } from "../profiles/exact-sum.js";
import { countNumber, noCounts } from "../profiles/number-profile.js";
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

/** Finite numbers of a column, added up, in units of 2^-1074. */
export interface OtherNumbers {
  readonly column: number;
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
export function addCounts(target: Float64Array, at: number, counts: ArrayLike<number>, from: number): void {
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

/** Adds any numbers of one column, one by one: some rows that are left over, or numbers that loops add with rounding. */
function addSlowly({ counts, others }: Counts, matrix: Matrix, { column, place, from, to }: ColumnRows): void {
  if (from === to) {
    return;
  }
  const { data, valid, width } = matrix;
  const found = { ...noCounts };
  const adder = createExactAdder();
  let nulls = 0;
  for (let row = from, at = from * width + place; row < to; row += 1, at += width) {
    const value = Number(data[at]);
    if (valid !== undefined && valid[at] === 0) {
      nulls += 1;
    } else if (countNumber(found, value)) {
      adder.add(value);
    }
  }
  const { nan, positiveInfinite, negativeInfinite, finite, min, max } = found;
  addCounts(counts, column * counted, [nulls, nan, positiveInfinite, negativeInfinite, finite, min, max], 0);
  others.push({ column, sum: adder.finish() });
}
