import { asFixed, unscaled } from "../../columnar/json-text.js";
import type { NamedColumn } from "../../columnar/types.js";

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
