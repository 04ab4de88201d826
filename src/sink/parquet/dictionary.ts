import type { Column, ColumnType, NamedColumn } from "../../columnar/types.js";
import { assertNever } from "../../util/errors.js";

/**
 * Whether a dictionary made by DuckDB could change a value. A dictionary keeps one of several values that compare
 * equal: 0 equals -0, and a month equals 30 days.
 */
export function dictionaryMerges(columns: readonly NamedColumn[]): boolean {
  return columns.some(({ type, column }) => mergesIn(type, column));
}

function mergesIn(type: ColumnType, column: Column): boolean {
  switch (column.kind) {
    case "fixed":
      return type === "interval" || hasNegativeZero(type, column.data);
    case "bytes":
      return false;
    case "list":
      return typeof type === "object" && type.kind === "list" && mergesIn(type.element, column.child);
    case "struct":
      return (
        typeof type === "object" &&
        type.kind === "struct" &&
        type.fields.some((field, index) => {
          const child = column.children[index];
          return child !== undefined && mergesIn(field.type, child);
        })
      );
    default:
      return assertNever(column);
  }
}

/** Searches integers, since a search among floats finds 0 too. The search runs in native code. */
function hasNegativeZero(
  type: ColumnType,
  { buffer, byteOffset, length }: ArrayBufferView & { length: number },
): boolean {
  return type === "float32"
    ? new Uint32Array(buffer, byteOffset, length).includes(0x8000_0000)
    : type === "float64" && new BigUint64Array(buffer, byteOffset, length).includes(0x8000_0000_0000_0000n);
}
