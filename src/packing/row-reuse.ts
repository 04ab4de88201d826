import type { Contract } from "../binding/contract.js";
import { reuseColumn } from "../binding/reuse-column.js";
import { type ColumnBuilder, createColumnBuilder, gatherColumn } from "../columnar/column-builder.js";
import { hashWords, type RowHasher } from "../columnar/row-hash.js";
import type { NamedTensor } from "../columnar/tensor.js";
import type { Column, ColumnType, NamedColumn, RecordBatch } from "../columnar/types.js";

/** Rows of an earlier run, found by the keys of rows of this one. */
export interface StoredRows {
  /** The rows of this run whose keys they have: ascending, each once. */
  readonly rows: Float64Array;
  /** Their hashes, as `RowHasher` makes them; undefined: they are the same rows, and are taken without a comparison. */
  readonly hashes: Int32Array | undefined;
  /** Their predictions, in the order of the contract's outputs. */
  readonly predictions: readonly Column[];
}

/** Stored rows that are compared before they are taken. */
export interface HashedRows extends StoredRows {
  readonly hashes: Int32Array;
}

/** Rows of a batch, and the stored rows with their keys. */
export interface ExpectedRows {
  readonly batch: RecordBatch;
  /** Rows [from, to) of the batch are packed next. */
  readonly range: { readonly from: number; readonly to: number };
  /** The run's number of the first row that the batch was made from. */
  readonly firstRow: number;
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
  /** The stored predictions of output `index` behind those that were scored. */
  behind(index: number, scored: Column, rows: number): Column;
  /** The column of hashes of rows that are complete: of those that `keep` marks with 1; none if rows are not hashed. */
  hashesOf(columns: readonly NamedColumn[], keep: Uint8Array): readonly NamedColumn[];
}

/** What all pieces of a run need. */
export interface ReuseTools {
  /** undefined: rows are not hashed. */
  readonly hasher: RowHasher | undefined;
  readonly contract: Pick<Contract, "outputs" | "passthrough">;
  /** Output columns that name a row. */
  readonly key: readonly string[];
}

/** @param length rows of the piece, at most */
export function createRowReuse({ hasher, contract, key }: ReuseTools, length: number): RowReuse {
  const hashes = new Int32Array(hasher === undefined ? 0 : length * hashWords);
  const stored = contract.outputs.map(({ type }) => createColumnBuilder(type, 0));
  const finished: (Column | undefined)[] = [];
  const names = new Set([...key, ...contract.outputs.map(({ column }) => column)]);
  let rowCount = 0;
  let candidates: ((from: number, rows: number) => Candidates) | undefined;
  return {
    get bytes() {
      return hashes.subarray(0, rowCount * hashWords).byteLength + stored.reduce((sum, { bytes }) => sum + bytes, 0);
    },
    expect(rows) {
      candidates = rows.stored === undefined ? undefined : candidatesIn(rows.stored, rows, { contract, key });
    },
    take(tensors, from, rows) {
      const start = rowCount * hashWords;
      hasher?.tensors(tensors, rows, hashes, rowCount);
      rowCount += rows;
      if (candidates === undefined) {
        return undefined;
      }
      const { at, columns, predictions, hashes: wanted } = candidates(from, rows);
      const made = wanted && hasher?.columns(gatherHashes(hashes.subarray(start), at), columns, at.length);
      const isSame = sameHashes(made, wanted, at.length);
      for (const [index, builder] of stored.entries()) {
        appendMarked(builder, predictions[index] as Column, isSame);
      }
      return flagsAt(at, isSame, rows);
    },
    behind(index, scored, rows) {
      const count = stored[index]?.rowCount ?? 0;
      const type = contract.outputs[index]?.type;
      if (count === 0 || type === undefined) {
        return scored;
      }
      finished[index] ??= (stored[index] as ColumnBuilder).finish();
      return oneBehindOther(type, [scored, rows], [finished[index], count]);
    },
    hashesOf(columns, keep) {
      const named = columns.filter(({ name }) => names.has(name));
      return hasher === undefined ? [] : [hashesOfRows(hasher, named, { hashes, keep })];
    },
  };
}

/** The flags of rows that are among others. */
function flagsAt(at: Uint32Array, flags: Uint8Array, rows: number): Uint8Array {
  const all = new Uint8Array(rows);
  for (let index = 0; index < at.length; index += 1) {
    all[at[index] as number] = flags[index] as number;
  }
  return all;
}

function hashesOfRows(
  hasher: RowHasher,
  columns: readonly NamedColumn[],
  { hashes, keep }: { readonly hashes: Int32Array; readonly keep: Uint8Array },
): NamedColumn {
  const own = keep.includes(0) ? markedHashes(hashes, keep) : hashes.subarray(0, keep.length * hashWords);
  const values = columns.map(({ type, column }) => plainBools(type, column));
  return hashColumn(hasher.columns(own, values, own.length / hashWords));
}

function oneBehindOther(type: ColumnType, ...pieces: readonly (readonly [Column, number])[]): Column {
  const all = createColumnBuilder(type, 0);
  for (const [column, rows] of pieces) {
    all.append(column, 0, rows);
  }
  return all.finish();
}

/** Rows that have a stored row, and what their hashes are made of besides their features. */
interface Candidates {
  /** Where the rows are among those that are packed. */
  readonly at: Uint32Array;
  /** Their keys, and the stored predictions, in the order of the output. */
  readonly columns: readonly Column[];
  readonly predictions: readonly Column[];
  /** The stored hashes; undefined: there are none to compare. */
  readonly hashes: Int32Array | undefined;
}

function candidatesIn(
  { rows: storedRows, hashes, predictions }: StoredRows,
  { batch, range, firstRow }: ExpectedRows,
  { contract, key }: Pick<ReuseTools, "contract" | "key">,
): (from: number, rows: number) => Candidates {
  const storedAt = placesOf(storedRows, { batch, range, firstRow });
  const keys = contract.passthrough.flatMap(({ column, source }, index) =>
    key.includes(column) ? [{ type: source.type, column: batch.carried[index] as Column }] : [],
  );
  return (from, rows) => {
    const at = new Uint32Array(rows);
    const places = new Uint32Array(rows);
    let count = 0;
    for (let row = 0; row < rows; row += 1) {
      const place = storedAt[from - range.from + row] as number;
      if (place >= 0) {
        at[count] = row;
        places[count] = place;
        count += 1;
      }
    }
    const [found, stored] = [at.subarray(0, count), places.subarray(0, count)];
    const inBatch = found.map((row) => from + row);
    const taken = predictions.map((column, index) => {
      const { type } = contract.outputs[index] as Contract["outputs"][number];
      return plainBools(type, gatherColumn(type, column, stored));
    });
    return {
      at: found,
      columns: [...keys.map(({ type, column }) => plainBools(type, gatherColumn(type, column, inBatch))), ...taken],
      predictions: taken,
      hashes: hashes && gatherHashes(hashes, stored),
    };
  };
}

/** For each row of the range, the index of its stored row; -1: it has none. */
function placesOf(stored: Float64Array, { batch, range, firstRow }: Omit<ExpectedRows, "stored">): Int32Array {
  const places = new Int32Array(range.to - range.from).fill(-1);
  let next = 0;
  for (let row = range.from; row < range.to; row += 1) {
    const inRun = firstRow + (batch.selection?.indices[row] ?? row);
    while (next < stored.length && (stored[next] as number) < inRun) {
      next += 1;
    }
    if (stored[next] === inRun) {
      places[row - range.from] = next;
    }
  }
  return places;
}

function gatherHashes(hashes: Int32Array, rows: Uint32Array): Int32Array {
  const gathered = new Int32Array(rows.length * hashWords);
  for (let index = 0; index < rows.length; index += 1) {
    const from = (rows[index] as number) * hashWords;
    for (let word = 0; word < hashWords; word += 1) {
      gathered[index * hashWords + word] = hashes[from + word] as number;
    }
  }
  return gathered;
}

function markedHashes(hashes: Int32Array, keep: Uint8Array): Int32Array {
  return gatherHashes(
    hashes,
    Uint32Array.from(keep.keys()).filter((row) => keep[row] === 1),
  );
}

/** 1 for each row whose hashes are equal, or all rows where there are none to compare. */
function sameHashes(one: Int32Array | undefined, other: Int32Array | undefined, rows: number): Uint8Array {
  const isSame = new Uint8Array(rows);
  if (one === undefined || other === undefined) {
    return isSame.fill(1);
  }
  for (let row = 0, at = 0; row < isSame.length; row += 1, at += hashWords) {
    const differs =
      ((one[at] as number) ^ (other[at] as number)) |
      ((one[at + 1] as number) ^ (other[at + 1] as number)) |
      ((one[at + 2] as number) ^ (other[at + 2] as number)) |
      ((one[at + 3] as number) ^ (other[at + 3] as number));
    isSame[row] = differs === 0 ? 1 : 0;
  }
  return isSame;
}

/** Appends the rows that are marked with 1. */
function appendMarked(builder: ColumnBuilder, column: Column, marks: Uint8Array): void {
  for (let from = marks.indexOf(1); from >= 0; ) {
    const end = marks.indexOf(0, from);
    const to = end < 0 ? marks.length : end;
    builder.append(column, from, to);
    from = marks.indexOf(1, to);
  }
}

/** Gives true one byte: models may write another one than a target does. */
function plainBools(type: ColumnType, column: Column): Column {
  if (type === "bool" && column.kind === "fixed") {
    return { ...column, data: Uint8Array.from(column.data as Uint8Array, (byte) => (byte === 0 ? 0 : 1)) };
  }
  return typeof type === "object" && type.kind === "list" && column.kind === "list"
    ? { ...column, child: plainBools(type.element, column.child) }
    : column;
}

function hashColumn(words: Int32Array): NamedColumn {
  const data = new BigUint64Array(words.buffer as ArrayBuffer, words.byteOffset, words.length / 2);
  return { ...reuseColumn, column: { kind: "fixed", elementsPerValue: 2, data, valid: undefined } };
}
