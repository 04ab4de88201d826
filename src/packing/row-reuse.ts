import type { Contract } from "../binding/contract.js";
import { reuseColumn } from "../binding/reuse-column.js";
import { type ColumnBuilder, createColumnBuilder, gatherColumn } from "../columnar/column-builder.js";
import { createRowHasher, hashWords } from "../columnar/row-hash.js";
import type { NamedTensor } from "../columnar/tensor.js";
import type { Column, ColumnType, NamedColumn, RecordBatch } from "../columnar/types.js";
import {
  combineHashes,
  createFeatureHasher,
  type FeatureHasher,
  type FeatureHashing,
  type HashedRows,
  type HashedUnit,
  plainBools,
} from "./feature-hasher.js";
import { noPlace } from "./stored-table.js";

/** Rows of an earlier run, found by the keys of rows of this one. */
export interface StoredRows {
  /** The rows of this run whose keys they have: ascending, each once. */
  readonly rows: Float64Array;
  /**
   * The hashes that rows of this run have which take their predictions; undefined: all take them, because they are the
   * same rows.
   */
  readonly hashes: Int32Array | undefined;
  /** Their predictions, in the order of the contract's outputs. */
  readonly predictions: readonly Column[];
}

/** Stored rows that are compared before they are taken. */
export interface ComparedRows extends StoredRows {
  readonly hashes: Int32Array;
}

/** Rows of a batch, and the stored rows with their keys. */
export interface ExpectedRows {
  readonly batch: RecordBatch;
  /** Rows [from, to) of the batch are packed next. */
  readonly range: { readonly from: number; readonly to: number };
  /** The run's number of the first row that the batch was made from. */
  readonly firstRow: number;
  /** undefined: they are in the table, or there are none. */
  readonly stored: StoredRows | undefined;
}

/** Hashes the rows of a piece of a span, and decides which of them take stored predictions. */
export interface RowReuse {
  /** The size of hashes and stored predictions so far, in bytes. */
  readonly bytes: number;
  /** Names the rows that are packed next. */
  expect(rows: ExpectedRows): void;
  /** Takes packed rows, those of a batch from row `from` on. Returns 1 for each that takes a stored prediction. */
  take(tensors: readonly NamedTensor[], from: number, rows: number): Uint8Array | undefined;
  /** Takes rows [from, to) of those that a worker has hashed. Returns 1 for each that takes a stored prediction. */
  takeHashed(rows: HashedUnit, from: number, to: number): Uint8Array | undefined;
  /** The stored predictions of output `index` behind those that were scored. */
  readonly behind: (this: void, index: number, scored: Column, rows: number) => Column;
  /** What is stored with rows that are complete: with those that `keep` marks with 1; nothing if rows are not hashed. */
  hashesOf(columns: readonly NamedColumn[], keep: Uint8Array): readonly NamedColumn[];
}

/** What all pieces of a run need. */
export interface ReuseTools {
  /** undefined: rows are not hashed. */
  readonly hashing: FeatureHashing | undefined;
  readonly contract: Pick<Contract, "outputs" | "passthrough" | "missing" | "reuse">;
  /** Measures how long rows are compared. */
  readonly timer: { readonly nowMs: () => number; readonly took: (ms: number) => void };
  /** Predictions of the rows of the table, in the order of the contract's outputs. */
  readonly predictions?: readonly Column[] | undefined;
}

/** @param length rows of the piece, at most */
export function createRowReuse({ hashing, contract, timer, predictions = [] }: ReuseTools, length: number): RowReuse {
  const hashes = new Int32Array(hashing === undefined ? 0 : length * hashWords);
  const hasher = hashing && createFeatureHasher(contract, hashing);
  const predicted = hashing && createRowHasher(hashing.seeds.predictions, false);
  const stored = createStoredPredictions(contract);
  const names = new Set(contract.outputs.map(({ column }) => column));
  let rowCount = 0;
  let expected: Expected | undefined;
  const add = (rows: HashedRows, source: readonly Column[]): Uint8Array | undefined => {
    hashes.set(rows.hashes, rowCount * hashWords);
    rowCount += rows.hashes.length / hashWords;
    return rows.places && stored.take(rows.places, source);
  };
  return {
    get bytes() {
      return (hashing === undefined ? 0 : rowCount * hashWords * 4) + stored.bytes;
    },
    expect(rows) {
      expected = { ...rows, places: rows.stored && placesOf(rows.stored, rows) };
    },
    take(tensors, from, rows) {
      if (expected === undefined) {
        throw new RangeError("rows were packed that were not expected");
      }
      const sinceMs = timer.nowMs();
      const hashed = hashExpected(hasher, expected, tensors, { from, to: from + rows });
      timer.took(timer.nowMs() - sinceMs);
      return add(hashed, expected.stored?.predictions ?? predictions);
    },
    takeHashed({ hashes: all, places, ms }, from, to) {
      timer.took((ms * (to - from)) / Math.max(1, all.length / hashWords));
      const rows = { hashes: all.subarray(from * hashWords, to * hashWords), places: places?.subarray(from, to) };
      return add(rows, predictions);
    },
    behind: stored.behind,
    hashesOf(columns, keep) {
      if (predicted === undefined) {
        return [];
      }
      const own = keep.includes(0) ? markedHashes(hashes, keep) : hashes.subarray(0, keep.length * hashWords);
      const values = columns.flatMap(({ name, type, column }) => (names.has(name) ? [plainBools(type, column)] : []));
      return [hashColumn(combineHashes(own, predicted.columns(values, own.length / hashWords)))];
    },
  };
}

/** The stored predictions that rows of a piece take. */
interface StoredPredictions {
  readonly bytes: number;
  /** Copies those at these places of columns, and returns 1 for each row that takes one. */
  take(places: Int32Array, source: readonly Column[]): Uint8Array;
  readonly behind: RowReuse["behind"];
}

function createStoredPredictions({ outputs }: Pick<Contract, "outputs">): StoredPredictions {
  const builders = outputs.map(({ type }) => createColumnBuilder(type, 0));
  const finished: (Column | undefined)[] = [];
  return {
    get bytes() {
      return builders.reduce((sum, { bytes }) => sum + bytes, 0);
    },
    take(places, source) {
      const marks = new Uint8Array(places.length);
      const found = new Uint32Array(places.length);
      let count = 0;
      for (let row = 0; row < places.length; row += 1) {
        const place = places[row] as number;
        if (place !== noPlace) {
          marks[row] = 1;
          found[count] = place;
          count += 1;
        }
      }
      for (const [index, { type }] of outputs.entries()) {
        const taken = gatherColumn(type, source[index] as Column, found.subarray(0, count));
        builders[index]?.append(taken, 0, count);
      }
      return marks;
    },
    behind(index, scored, rows) {
      const count = builders[index]?.rowCount ?? 0;
      const type = outputs[index]?.type;
      if (count === 0 || type === undefined) {
        return scored;
      }
      finished[index] ??= (builders[index] as ColumnBuilder).finish();
      return oneBehindOther(type, [scored, rows], [finished[index], count]);
    },
  };
}

function oneBehindOther(type: ColumnType, ...pieces: readonly (readonly [Column, number])[]): Column {
  const all = createColumnBuilder(
    type,
    pieces.reduce((sum, [, rows]) => sum + rows, 0),
  );
  for (const [column, rows] of pieces) {
    all.append(column, 0, rows);
  }
  return all.finish();
}

interface Expected extends ExpectedRows {
  /** For each row of the range, the index of the stored row that was found by its key. */
  readonly places: Int32Array | undefined;
}

/** Hashes packed rows. Of those that were found by their keys, some have other hashes. */
function hashExpected(
  hasher: FeatureHasher | undefined,
  { batch, range, stored, places: found }: Expected,
  tensors: readonly NamedTensor[],
  { from, to }: { readonly from: number; readonly to: number },
): HashedRows {
  const hashed = hasher?.hash(tensors, batch, { from, to }) ?? { hashes: new Int32Array(0), places: undefined };
  if (stored === undefined || found === undefined) {
    return hashed;
  }
  const places = found.slice(from - range.from, to - range.from);
  if (stored.hashes === undefined) {
    return { ...hashed, places };
  }
  for (let row = 0; row < places.length; row += 1) {
    const place = places[row] as number;
    if (place !== noPlace && !isSameHash(hashed.hashes, row, stored.hashes, place)) {
      places[row] = noPlace;
    }
  }
  return { ...hashed, places };
}

function isSameHash(one: Int32Array, row: number, other: Int32Array, place: number): boolean {
  for (let word = 0; word < hashWords; word += 1) {
    if (one[row * hashWords + word] !== other[place * hashWords + word]) {
      return false;
    }
  }
  return true;
}

/** For each row of the range, the index of its stored row, or `noPlace`. */
function placesOf(stored: StoredRows, { batch, range, firstRow }: Omit<ExpectedRows, "stored">): Int32Array {
  const places = new Int32Array(range.to - range.from).fill(noPlace);
  const { rows } = stored;
  let next = 0;
  for (let row = range.from; row < range.to; row += 1) {
    const inRun = firstRow + (batch.selection?.indices[row] ?? row);
    while (next < rows.length && (rows[next] as number) < inRun) {
      next += 1;
    }
    if (rows[next] === inRun) {
      places[row - range.from] = next;
    }
  }
  return places;
}

function markedHashes(hashes: Int32Array, keep: Uint8Array): Int32Array {
  const marked = new Int32Array(keep.length * hashWords);
  let length = 0;
  for (let row = 0; row < keep.length; row += 1) {
    if (keep[row] === 1) {
      marked.set(hashes.subarray(row * hashWords, (row + 1) * hashWords), length);
      length += hashWords;
    }
  }
  return marked.subarray(0, length);
}

function hashColumn(words: Int32Array): NamedColumn {
  const data = new BigUint64Array(words.buffer as ArrayBuffer, words.byteOffset, words.length / 2);
  return { ...reuseColumn, column: { kind: "fixed", elementsPerValue: 2, data, valid: undefined } };
}
