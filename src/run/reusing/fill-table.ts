import type { Contract } from "../../binding/contract.js";
import { createColumnBuilder } from "../../columnar/column-builder.js";
import { createRowHasher, hashWords } from "../../columnar/row-hash.js";
import { bytesPerValue, type Column } from "../../columnar/types.js";
import { combineHashes, type HashSeeds } from "../../packing/feature-hasher.js";
import { createKeyHasher } from "../../packing/key-hasher.js";
import { addStored, createStoredTable, type StoredTable, tableRowBytes } from "../../packing/stored-table.js";
import type { JobContext, StoredRowsReader } from "../../scoring/context.js";

/** Stored rows in memory. */
export interface FilledTable {
  readonly table: StoredTable;
  /** The predictions of its rows, in the order of the contract's outputs. */
  readonly predictions: readonly Column[];
  /** Rows whose key is there once. */
  readonly keys: number;
  /** Rows that were not read, because the table was full. */
  readonly left: number;
  /** What all rows would take, in bytes, if the others are like those that were read. */
  readonly wholeBytes: number;
}

/** Reads stored rows into memory, as many as fit into their share of it. */
export async function fillTable(
  { memory: { storedBytes }, signal }: Pick<JobContext, "memory" | "signal">,
  reader: StoredRowsReader,
  { contract: { outputs }, seeds }: { readonly contract: Pick<Contract, "outputs">; readonly seeds: HashSeeds },
): Promise<FilledTable> {
  // As long as texts have the usual length; they are measured as they come.
  const rowBytes = outputs.reduce((sum, { type }) => sum + bytesPerValue(type), tableRowBytes);
  const most = Math.min(reader.rowCount, Math.floor(storedBytes / rowBytes));
  const table = createStoredTable(most);
  const builders = outputs.map(({ type }) => createColumnBuilder(type, most));
  const predictionBytes = (): number => builders.reduce((sum, { bytes }) => sum + bytes, 0);
  const hashKeys = createKeyHasher(seeds.key);
  const predicted = createRowHasher(seeds.predictions, false);
  let [rows, keys] = [0, 0];
  let isFull = false;
  for await (const piece of reader.all()) {
    signal.throwIfAborted();
    const count = Math.min(piece.rowCount, most - rows);
    const hashes = combineHashes(piece.hashes, predicted.columns(piece.predictions, piece.rowCount));
    keys += addStored(table, rows, {
      keys: hashKeys(piece.keys, piece.rowCount).subarray(0, count * hashWords),
      rows: hashes.subarray(0, count * hashWords),
    });
    for (const [index, builder] of builders.entries()) {
      builder.append(piece.predictions[index] as Column, 0, count);
    }
    rows += count;
    isFull = count < piece.rowCount || most * tableRowBytes + predictionBytes() > storedBytes;
    if (isFull) {
      break;
    }
  }
  return {
    table,
    keys,
    predictions: builders.map((builder) => builder.finish()),
    left: isFull ? reader.rowCount - rows : 0,
    wholeBytes: reader.rowCount * Math.max(rowBytes, tableRowBytes + predictionBytes() / Math.max(1, rows)),
  };
}
