import type { Column } from "./types.js";
import { assertNever } from "../util/errors.js";

/**
 * Returns how many rows from `from` on have at most `limit` bytes in all columns together: at least one, and none from
 * `to` on.
 */
export function rowsWithin(
  columns: Iterable<Column>,
  { from, to, limit }: { readonly from: number; readonly to: number; readonly limit: number },
): number {
  const all = [...columns];
  const bytesTo = (end: number): number => all.reduce((sum, column) => sum + bytesIn(column, from, end), 0);
  if (to <= from || bytesTo(to) <= limit) {
    return to - from;
  }
  let low = from + 1;
  let high = to;
  while (low < high) {
    const middle = (low + high + 1) >>> 1;
    if (bytesTo(middle) <= limit) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low - from;
}

function bytesIn(column: Column, from: number, to: number): number {
  switch (column.kind) {
    case "fixed":
      return (to - from) * column.elementsPerValue * column.data.BYTES_PER_ELEMENT;
    case "bytes":
      return (column.offsets[to] ?? 0) - (column.offsets[from] ?? 0) + (to - from) * column.offsets.BYTES_PER_ELEMENT;
    case "list": {
      const elements = bytesIn(column.child, column.offsets[from] ?? 0, column.offsets[to] ?? 0);
      return elements + (to - from) * column.offsets.BYTES_PER_ELEMENT;
    }
    case "struct":
      return column.children.reduce((sum, child) => sum + bytesIn(child, from, to), 0);
    default:
      return assertNever(column);
  }
}

/** Returns the bytes of the longest value of a column of texts or bytes. */
export function longestText(offsets: Uint32Array): number {
  let longest = 0;
  for (let entry = 1; entry < offsets.length; entry += 1) {
    longest = Math.max(longest, (offsets[entry] as number) - (offsets[entry - 1] as number));
  }
  return longest;
}
