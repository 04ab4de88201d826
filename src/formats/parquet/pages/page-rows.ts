/** Rows of columns and of pages; texts are made when they are read, because all of a page may not fit into memory. */
import { longestText } from "../../../columnar/column-bytes.js";
import { takeRows } from "../../../columnar/column-take.js";
import type { BytesColumn, Column } from "../../../columnar/types.js";
import type { StoredColumn } from "./storage.js";

/** Rows of a column, in order. */
export interface ColumnRows {
  /**
   * Returns how many rows can be read at once from the current page; opens the next page if it has none left.
   * @throws RangeError
   */
  ahead(): number;
  /** Reads the next `rows`, at most `ahead()`. They are valid until the next call. */
  take(rows: number): Column;
  /** Skips rows. Pages that are skipped as a whole are not unpacked. */
  skip(rows: number): void;
}

/** The rows of a page, NULLs included. */
export interface PageRows {
  /** Reads rows [from, to), at most `mostRows`, after the rows of the last call. They are valid until the next call. */
  take(from: number, to: number): Column;
  /** Returns how many of rows [from, to) are read at once. */
  fitting(from: number, to: number): number;
}

/** Reads rows [from, to) at once, as `PageRows.fitting`. */
export function wholeRange(from: number, to: number): number {
  return to - from;
}

/**
 * Texts that repeat entries of a dictionary. They are built when they are read, because all of them together may have
 * any number of bytes.
 */
export function repeatedTexts(
  { type, limits: { batchBytes } }: StoredColumn,
  dictionary: BytesColumn,
  { indices, valid }: { readonly indices: Uint32Array<ArrayBuffer>; readonly valid: Uint8Array | undefined },
): PageRows {
  const { offsets } = dictionary;
  const longest = longestText(offsets);
  return {
    take(from, to) {
      const taking = { indices: indices.subarray(from, to), valid: valid?.subarray(from, to) };
      return takeRows(type, dictionary, { ...taking, limit: Number.POSITIVE_INFINITY });
    },
    fitting(from, to) {
      if ((to - from) * longest <= batchBytes) {
        return to - from;
      }
      let bytes = 0;
      for (let row = from; row < to; row += 1) {
        const place = indices[row] as number;
        bytes += valid?.[row] === 0 ? 0 : (offsets[place + 1] ?? 0) - (offsets[place] ?? 0);
        if (bytes > batchBytes) {
          return Math.max(1, row - from);
        }
      }
      return to - from;
    },
  };
}
