import { scaleOf } from "../../columnar/decimals.js";
import { withNanos } from "../../columnar/dates-and-times.js";
import { asFixed, jsonOf, unscaled } from "../../columnar/json-text.js";
import type { Column, ColumnType, NamedColumn } from "../../columnar/types.js";

/** Reads the whole number that a value of 64 or 128 bits is stored as, times `unit`; undefined for NULL. */
export type ExactReader = (row: number) => bigint | undefined;

/** Reads a column of decimals, dates or times without rounding. */
export function exactReader({ column }: NamedColumn, unit: bigint): ExactReader {
  const fixed = asFixed(column);
  const { data, valid, elementsPerValue } = fixed;
  return (row) => {
    if (valid !== undefined && valid[row] === 0) {
      return undefined;
    }
    const value = elementsPerValue === 1 ? BigInt(data[row] ?? 0) : BigInt(unscaled(fixed, row, true));
    return value * unit;
  };
}

/** Shows a decimal, date or time that is not NULL; undefined for other types. */
export function exactText(type: ColumnType, column: Column, row: number): string | undefined {
  if (column.valid?.[row] === 0) {
    return undefined;
  }
  if (scaleOf(type) !== undefined) {
    return jsonOf(type, column, row);
  }
  if (type !== "date32" && !(typeof type === "string" && type.startsWith("time"))) {
    return undefined;
  }
  const value = BigInt(asFixed(column).data[row] ?? 0);
  const text = JSON.parse(jsonOf(type, column, row)) as string; // in microseconds
  return withNanos(text, type.endsWith("[ns]") ? ((value % 1000n) + 1000n) % 1000n : 0n);
}
