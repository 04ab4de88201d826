import type { DuckDBDataChunk } from "@duckdb/node-api";
import { hasIntegerType, readScalars } from "../../../duckdb/vectors.js";
import type { SliceRequest } from "../../port.js";

/** The position in whole shards that are read as one table. */
export interface Place {
  /** The next shard and the next row in it. */
  readonly slice: number;
  readonly row: number;
  /**
   * Whether a chunk's rows are exactly the next ones. Its first columns are the number of the shard and the number of
   * the row.
   */
  isDue(chunk: DuckDBDataChunk): boolean;
  /** Moves the position by this number of rows. */
  pass(rows: number): void;
}

export function placeIn(slices: readonly SliceRequest[]): Place {
  let slice = 0;
  let row = 0;
  const rowsIn = (index: number): number => slices[index]?.rowEnd ?? Number.POSITIVE_INFINITY;
  return {
    get slice() {
      return slice;
    },
    get row() {
      return row;
    },
    isDue(chunk) {
      const shards = lowWords(chunk, 0, "uint64");
      const numbers = lowWords(chunk, 1, "int64");
      if (shards === undefined || numbers === undefined) {
        return false;
      }
      let at = slice;
      let due = row;
      for (let index = 0; index < chunk.rowCount; index += 1) {
        if (shards[index * 2] !== at || numbers[index * 2] !== due) {
          return false;
        }
        due += 1;
        if (due === rowsIn(at)) {
          at += 1;
          due = 0;
        }
      }
      return true;
    },
    pass(rows) {
      row += rows;
      while (row >= rowsIn(slice)) {
        row -= rowsIn(slice);
        slice += 1;
      }
    },
  };
}

/**
 * Returns the low 32 bits of 64-bit numbers, which are enough here; undefined: the column is one of the shards with the
 * same name.
 */
function lowWords(chunk: DuckDBDataChunk, column: number, type: "int64" | "uint64"): Uint32Array | undefined {
  if (!hasIntegerType(chunk, column, type)) {
    return undefined;
  }
  const { data } = readScalars(chunk, column, type);
  return new Uint32Array(data.buffer, data.byteOffset, chunk.rowCount * 2);
}
