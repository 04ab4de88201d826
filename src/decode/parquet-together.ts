import type { DuckDBDataChunk } from "@duckdb/node-api";
import { readFlat } from "../duckdb/read-vector.js";
import type { SliceRequest } from "./port.js";

/** How far whole shards that are read as one table have come. */
export interface Place {
  /** The shard and the row in it that are due. */
  readonly slice: number;
  readonly row: number;
  /**
   * Whether the rows of a chunk are exactly those that are due: then they are past. Its columns begin with the
   * shard's number and the row's.
   */
  take(chunk: DuckDBDataChunk): boolean;
}

export function placeIn(slices: readonly SliceRequest[]): Place {
  let slice = 0;
  let row = 0;
  return {
    get slice() {
      return slice;
    },
    get row() {
      return row;
    },
    take(chunk) {
      const shards = lowWords(chunk, 0, "uint64");
      const numbers = lowWords(chunk, 1, "int64");
      let at = slice;
      let due = row;
      for (let index = 0; index < chunk.rowCount; index += 1) {
        if (shards[index * 2] !== at || numbers[index * 2] !== due) {
          return false;
        }
        due += 1;
        if (due === slices[at]?.rowEnd) {
          at += 1;
          due = 0;
        }
      }
      slice = at;
      row = due;
      return true;
    },
  };
}

/** 64 bits each, of which 32 are enough here. */
function lowWords(chunk: DuckDBDataChunk, column: number, type: "int64" | "uint64"): Uint32Array {
  const { data } = readFlat(chunk, column, type);
  return new Uint32Array(data.buffer, data.byteOffset, chunk.rowCount * 2);
}
