import type { Contract } from "../../binding/contract.js";
import { createColumnBuilder } from "../../columnar/column-builder.js";
import { createRowHasher } from "../../columnar/row-hash.js";
import { bytesPerValue, type Column } from "../../columnar/types.js";
import { combineHashes, type HashSeeds } from "../../packing/feature-hasher.js";
import { createKeyHasher } from "../../packing/key-hasher.js";
import { addStored, createStoredTable, type StoredTable, tableRowBytes } from "../../packing/stored-table.js";
import type { MemoryBudget } from "../../util/memory-budget.js";
import type { JobContext, StoredRowsReader } from "../../scoring/context.js";

/** Stored rows in memory. */
export interface FilledTable {
  readonly table: StoredTable;
  /** The predictions of its rows, in the order of the contract's outputs. */
  readonly predictions: readonly Column[];
  /** Rows whose key is there once. */
  readonly keys: number;
}

/** Whether so many stored rows fit in their share of the memory, if their texts have the usual length. */
export function fitsInTable(
  { storedBytes }: Pick<MemoryBudget, "storedBytes">,
  { outputs }: Pick<Contract, "outputs">,
  rowCount: number,
): boolean {
  const rowBytes = outputs.reduce((sum, { type }) => sum + bytesPerValue(type), tableRowBytes);
  return rowCount * rowBytes <= storedBytes;
}

/** Reads stored rows that fit into memory; undefined: their texts are too long for that. */
export async function fillTable(
  { memory: { storedBytes }, signal }: Pick<JobContext, "memory" | "signal">,
  reader: StoredRowsReader,
  { contract: { outputs }, seeds }: { readonly contract: Pick<Contract, "outputs">; readonly seeds: HashSeeds },
): Promise<FilledTable | undefined> {
  const { rowCount } = reader;
  const hashBytes = rowCount * tableRowBytes;
  const table = createStoredTable(rowCount);
  const builders = outputs.map(({ type }) => createColumnBuilder(type, rowCount));
  const hashKeys = createKeyHasher(seeds.key);
  const predicted = createRowHasher(seeds.predictions, false);
  let [rows, keys] = [0, 0];
  for await (const piece of reader.all()) {
    signal.throwIfAborted();
    keys += addStored(table, rows, {
      keys: hashKeys(piece.keys, piece.rowCount),
      rows: combineHashes(piece.hashes, predicted.columns(piece.predictions, piece.rowCount)),
    });
    for (const [index, builder] of builders.entries()) {
      builder.append(piece.predictions[index] as Column, 0, piece.rowCount);
    }
    rows += piece.rowCount;
    if (hashBytes + builders.reduce((sum, { bytes }) => sum + bytes, 0) > storedBytes) {
      return undefined;
    }
  }
  return { table, keys, predictions: builders.map((builder) => builder.finish()) };
}
