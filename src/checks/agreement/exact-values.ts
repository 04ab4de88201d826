import { isInfinite } from "../../columnar/dates-and-times.js";
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

/** The digits of a decimal behind its point; undefined for other types. */
export function scaleOf(type: ColumnType): number | undefined {
  return typeof type === "object" && type.kind === "decimal" ? type.scale : undefined;
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
  const text = JSON.parse(jsonOf(type, column, row)) as string; // in microseconds
  const value = BigInt(asFixed(column).data[row] ?? 0);
  const nanos = type.endsWith("[ns]") && !isInfinite(value) ? ((value % 1000n) + 1000n) % 1000n : 0n;
  if (nanos === 0n) {
    return text;
  }
  const [clock = "", fraction = ""] = text.split(".");
  return `${clock}.${fraction.padEnd(6, "0")}${String(nanos).padStart(3, "0")}`;
}
