import { type ColumnProfile, countedRows, histogramOf, namesOf } from "./column.js";
import { rangeOfBin } from "./histogram.js";

/** The value of a bin of shift 0 as a text; undefined: it has no name. */
export function valueText(column: ColumnProfile, key: number): string | undefined {
  if (column.kind === "numbers") {
    const [low, high] = rangeOfBin(key, 0);
    return String(Math.abs(high) < 1e-300 ? 0 : Number(((low + high) / 2).toPrecision(6)));
  }
  return namesOf(column).get(key);
}

/** A value of a column, with its rows. */
export interface ValueRows {
  readonly key: number;
  readonly rows: number;
}

/** Whether each value of a column has a bin of its own. */
export function areCounted(column: ColumnProfile): boolean {
  return column.kind !== "rows" && column.kind !== "vectors" && histogramOf(column).shift === 0;
}

/** The values that are counted one by one, in the order of their keys; undefined: there are too many. */
export function countedValues(column: ColumnProfile): readonly ValueRows[] | undefined {
  const { keys, counts } = histogramOf(column);
  return areCounted(column) ? keys.map((key, index) => ({ key, rows: counts[index] as number })) : undefined;
}

/** Different numbers of a column whose values are classes. */
const mostClasses = 24;

/** Whether the values are classes: texts and truths that are counted, or a few whole numbers. */
export function areClasses(column: ColumnProfile): boolean {
  const values = countedValues(column);
  return (
    values !== undefined &&
    values.length > 0 &&
    (column.kind === "values" ||
      (values.length <= mostClasses && values.every(({ key }) => Number.isInteger(Number(valueText(column, key))))))
  );
}

/** The share of rows without a value: NULL, NaN, infinite, or of vectors zero. */
export function emptyShare(column: ColumnProfile): number | undefined {
  if (column.rows === 0) {
    return undefined;
  }
  const zero = column.kind === "vectors" ? column.zero : 0;
  const empty =
    column.kind === "numbers" || column.kind === "vectors" ? column.rows - countedRows(column) + zero : column.nulls;
  return empty / column.rows;
}
