import type { Contract } from "../binding/contract.js";
import { sliceColumn } from "../columnar/column-rows.js";
import { createRowHasher, hashWords } from "../columnar/row-hash.js";
import type { NamedTensor } from "../columnar/tensor.js";
import type { Column, ColumnType, RecordBatch } from "../columnar/types.js";
import { createKeyHasher } from "./key-hasher.js";
import { findStored, noPlace, type StoredTable } from "./stored-table.js";

/** What the hashes of rows depend on besides their values. Plain data: threads are sent it. */
export interface HashSeeds {
  /** Four words each. Hashes of features and keys together, of keys alone, and of predictions. */
  readonly features: Int32Array;
  readonly key: Int32Array;
  readonly predictions: Int32Array;
}

/** Rows that are hashed, and the rows of an earlier run that they are compared with. */
export interface FeatureHashing {
  readonly seeds: HashSeeds;
  /** undefined: none are known, or they are found in another way. */
  readonly table?: StoredTable | undefined;
}

/** What became of rows that were hashed. */
export interface HashedRows {
  /** The hash of each row's features and key, four words each. */
  readonly hashes: Int32Array<ArrayBuffer>;
  /** For each row, the number of the stored row whose prediction it takes, or `noPlace`; undefined: none takes one. */
  readonly places: Int32Array<ArrayBuffer> | undefined;
}

/** Rows that a worker has hashed. */
export interface HashedUnit extends HashedRows {
  /** Milliseconds that it took. */
  readonly ms: number;
}

/** How many rows take stored predictions. */
export function countStored(places: Int32Array): number {
  let count = 0;
  for (const place of places) {
    count += place === noPlace ? 0 : 1;
  }
  return count;
}

/** Hashes packed rows with their keys, and finds them in the table. */
export interface FeatureHasher {
  /** @param from the row of the batch that the first row of the tensors is */
  hash(tensors: readonly NamedTensor[], batch: RecordBatch, range: { from: number; to: number }): HashedRows;
}

export function createFeatureHasher(
  { passthrough, missing, reuse }: Pick<Contract, "passthrough" | "missing" | "reuse">,
  { seeds, table }: FeatureHashing,
): FeatureHasher {
  const features = createRowHasher(seeds.features, missing === "nan");
  const hashKeys = createKeyHasher(seeds.key);
  const keys = passthrough.flatMap(({ column, source }, index) =>
    reuse?.key.includes(column) === true ? [{ index, type: source.type }] : [],
  );
  let scratch = new Int32Array(0);
  return {
    hash(tensors, { carried }, { from, to }) {
      const rows = to - from;
      scratch = scratch.length < rows * hashWords ? new Int32Array(rows * hashWords) : scratch;
      const columns = keys.map(({ index, type }) => plainBools(type, sliceColumn(carried[index] as Column, from, to)));
      const own = scratch.subarray(0, rows * hashWords);
      features.tensors(tensors, rows, own, 0);
      const hashes = features.columns(columns, rows, own);
      const wanted = table && { keys: hashKeys(columns, rows), rows: hashes };
      return { hashes, places: wanted && findStored(table, wanted, namedRows(columns, rows)) };
    },
  };
}

/** 0 for rows whose key has a NULL; undefined: there are none. */
function namedRows(key: readonly Column[], rows: number): Uint8Array | undefined {
  let isNamed: Uint8Array | undefined;
  for (const { valid } of key) {
    if (valid?.includes(0) === true) {
      isNamed ??= new Uint8Array(rows).fill(1);
      for (let row = 0; row < rows; row += 1) {
        isNamed[row] = (isNamed[row] as number) & (valid[row] as number);
      }
    }
  }
  return isNamed;
}

/** Gives true one byte: models may write another one than a target does. */
export function plainBools(type: ColumnType, column: Column): Column {
  if (type === "bool" && column.kind === "fixed") {
    return { ...column, data: Uint8Array.from(column.data as Uint8Array, (byte) => (byte === 0 ? 0 : 1)) };
  }
  return typeof type === "object" && type.kind === "list" && column.kind === "list"
    ? { ...column, child: plainBools(type.element, column.child) }
    : column;
}

/**
 * Combines the hashes of rows with the hashes of their predictions, in place of the latter. The combined hash is stored
 * with the row. Combining it with the hash of the stored predictions gives the hash of the row again; if a prediction was
 * changed, it gives a hash that no row has.
 */
export function combineHashes(one: Int32Array, other: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  for (let word = 0; word < other.length; word += 1) {
    other[word] = (other[word] as number) ^ (one[word] as number);
  }
  return other;
}
