import type { DuckDBDataChunk } from "@duckdb/node-api";
import { hasIntegerType, readScalars } from "../../../duckdb/read-vector.js";
import type { SliceRequest } from "../../port.js";

/** How far whole shards that are read as one table have come. */
export interface Place {
  /** The shard and the row in it that are due. */
  readonly slice: number;
  readonly row: number;
  /**
   * Where a chunk ends whose rows are exactly those that are due; undefined: they are others. Its columns begin with
   * the shard's number and the row's.
   */
  after(chunk: DuckDBDataChunk): PlaceInSlices | undefined;
  /** What is before it is past. */
  move(to: PlaceInSlices): void;
}

interface PlaceInSlices {
  readonly slice: number;
  readonly row: number;
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
    after(chunk) {
      const shards = lowWords(chunk, 0, "uint64");
      const numbers = lowWords(chunk, 1, "int64");
      if (shards === undefined || numbers === undefined) {
        return undefined;
      }
      let at = slice;
      let due = row;
      for (let index = 0; index < chunk.rowCount; index += 1) {
        if (shards[index * 2] !== at || numbers[index * 2] !== due) {
          return undefined;
        }
        due += 1;
        if (due === slices[at]?.rowEnd) {
          at += 1;
          due = 0;
        }
      }
      return { slice: at, row: due };
    },
    move(to) {
      ({ slice, row } = to);
    },
  };
}

/** 64 bits each, of which 32 are enough here. undefined: it is a column of the shards that is called as ours. */
function lowWords(chunk: DuckDBDataChunk, column: number, type: "int64" | "uint64"): Uint32Array | undefined {
  if (!hasIntegerType(chunk, column, type)) {
    return undefined;
  }
  const { data } = readScalars(chunk, column, type);
  return new Uint32Array(data.buffer, data.byteOffset, chunk.rowCount * 2);
}
