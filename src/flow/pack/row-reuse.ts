import { type Contract, reuseColumn } from "../../models/binding/contract.js";
import { createColumnBuilder, gatherColumn } from "../../columns/columns.js";
import { createRowHasher, hashWords } from "../../columns/row-hash.js";
import { type NamedTensor, numericBuffers } from "../../columns/tensor.js";
import type { Column, NamedColumn, RecordBatch } from "../../columns/types.js";
import type { BatchRows } from "./input-target.js";
import {
  type FeatureHashing,
  type HashedRows,
  type HashedUnit,
  combineHashes,
  createFeatureHasher,
  noPlace,
  plainBools,
} from "./feature-hasher.js";
import { bytesPerRow } from "../../models/binding/row-bytes.js";
import { createBufferPool } from "../../columns/loops/buffer-pool.js";
import { type RowFault, createInputTarget } from "./input-target.js";
import { type Packer, type PackerOptions, createPacker, sourcesOf } from "./packer.js";

/**
 * Hashes the rows of a piece of a span, and decides which of them take stored predictions. Those that are scored have
 * numbers of their own: from the piece's first row on, without a gap.
 */
export interface RowReuse {
  /** The run's number of the piece's first row. */
  readonly rowStart: number;
  /** Rows so far. */
  readonly rowCount: number;
  /** Rows so far that are scored. */
  readonly scoredCount: number;
  /** Which row of the piece is scored as number `index`; both count from 0. */
  scoredAt(index: number): number;
  /** The size of hashes and stored predictions so far, in bytes. */
  readonly bytes: number;
  /** Takes packed rows: rows [from, to) of a batch. */
  take(batch: RecordBatch, tensors: readonly NamedTensor[], range: { from: number; to: number }): void;
  /** Takes rows [from, to) of those that a worker has hashed. */
  takeHashed(rows: HashedUnit, from: number, to: number): void;
  /** How many of the rows that `keep` marks with 1 take stored predictions. */
  countReused(keep: Uint8Array): number;
  /** The predictions of the rows that `keep` marks with 1. @param scored those that were scored, in the order of the outputs */
  predictionsOf(scored: readonly Column[], keep: Uint8Array): Column[];
  /** What is stored with rows that are complete: with those that `keep` marks with 1. */
  hashesOf(columns: readonly NamedColumn[], keep: Uint8Array): NamedColumn;
}

/** How rows of a run are hashed and, where an earlier run is reused, find its rows: what all pieces of the run need. */
export interface Reuse {
  readonly hashing: FeatureHashing;
  readonly contract: Pick<Contract, "outputs" | "passthrough" | "missing" | "reuse">;
  /** Measures how long rows are compared. */
  readonly timer: { readonly nowMs: () => number; readonly took: (ms: number) => void };
  /** Predictions of the rows of the table, in the order of the contract's outputs. */
  readonly predictions?: readonly Column[] | undefined;
}

export function createRowReuse(
  { hashing, contract, timer, predictions = [] }: Reuse,
  { rowStart, rowEnd }: { readonly rowStart: number; readonly rowEnd: number },
): RowReuse {
  const length = rowEnd - rowStart;
  const hashes = new Int32Array(length * hashWords);
  const hasher = createFeatureHasher(contract, hashing);
  const predicted = createRowHasher(hashing.seeds.predictions, false);
  const names = new Set(contract.outputs.map(({ column }) => column));
  const stored = contract.outputs.map(({ type }) => createColumnBuilder(type, 0));
  let finished: Column[] | undefined;
  const isStored = new Uint8Array(length);
  const scored = new Uint32Array(length);
  let [rowCount, scoredCount] = [0, 0];
  const add = (rows: HashedRows): void => {
    hashes.set(rows.hashes, rowCount * hashWords);
    const count = rows.hashes.length / hashWords;
    const found = new Uint32Array(count);
    let foundCount = 0;
    for (let row = 0; row < count; row += 1) {
      const place = rows.places?.[row] ?? noPlace;
      if (place === noPlace) {
        scored[scoredCount] = rowCount;
        scoredCount += 1;
      } else {
        isStored[rowCount] = 1;
        found[foundCount] = place;
        foundCount += 1;
      }
      rowCount += 1;
    }
    for (const [index, { type }] of foundCount === 0 ? [] : contract.outputs.entries()) {
      stored[index]?.append(
        gatherColumn(type, predictions[index] as Column, found.subarray(0, foundCount)),
        0,
        foundCount,
      );
    }
  };
  return {
    rowStart,
    get rowCount() {
      return rowCount;
    },
    get scoredCount() {
      return scoredCount;
    },
    scoredAt: (index) => scored[index] as number,
    get bytes() {
      return stored.reduce((sum, { bytes }) => sum + bytes, rowCount * hashWords * 4);
    },
    take(batch, tensors, range) {
      const sinceMs = timer.nowMs();
      const hashed = hasher.hash(tensors, batch, range);
      timer.took(timer.nowMs() - sinceMs);
      add(hashed);
    },
    takeHashed({ hashes: all, places, ms }, from, to) {
      timer.took((ms * (to - from)) / Math.max(1, all.length / hashWords));
      add({ hashes: all.subarray(from * hashWords, to * hashWords), places: places?.subarray(from, to) });
    },
    countReused: (keep) => keep.reduce((count, flag, at) => count + (flag & (isStored[at] as number)), 0),
    predictionsOf(columns, keep) {
      finished ??= stored.map((builder) => builder.finish());
      return mixed(contract, { scored: columns, stored: finished }, { isStored: isStored.subarray(0, rowCount), keep });
    },
    hashesOf(columns, keep) {
      const own = keep.includes(0) ? markedHashes(hashes, keep) : hashes.subarray(0, keep.length * hashWords);
      const values = columns.flatMap(({ name, type, column }) => (names.has(name) ? [plainBools(type, column)] : []));
      return hashColumn(combineHashes(own, predicted.columns(values, own.length / hashWords)));
    },
  };
}

/** The predictions of the rows that `keep` marks, in the order of the rows: those of `isStored` are stored ones. */
function mixed(
  { outputs }: Pick<Contract, "outputs">,
  { scored, stored }: { readonly scored: readonly Column[]; readonly stored: readonly Column[] },
  { isStored, keep }: { readonly isStored: Uint8Array; readonly keep: Uint8Array },
): Column[] {
  const storedCount = countOf(isStored);
  const scoredCount = isStored.length - storedCount;
  const places = new Uint32Array(countOf(keep));
  let [count, nextScored, nextStored] = [0, 0, scoredCount];
  for (let at = 0; at < isStored.length; at += 1) {
    const place = isStored[at] === 1 ? nextStored++ : nextScored++;
    if (keep[at] === 1) {
      places[count] = place;
      count += 1;
    }
  }
  return outputs.map(({ type }, index) => {
    const all = createColumnBuilder(type, isStored.length);
    all.append(scored[index] as Column, 0, scoredCount);
    all.append(stored[index] as Column, 0, storedCount);
    return gatherColumn(type, all.finish(), places);
  });
}

function countOf(flags: Uint8Array): number {
  let count = 0;
  for (const flag of flags) {
    count += flag;
  }
  return count;
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

/** Packs rows as the model would get them, so that they can be compared. */
interface Stage {
  readonly rows: number;
  /** Packs rows, and takes their tensors back once the rows are compared. */
  pack(batch: RecordBatch, range: BatchRows, look: (tensors: readonly NamedTensor[]) => void): void;
}

/** What stays in the cache between packing and look-up. */
const stagedBytes = 256 * 1024;

export function createStage(contract: Contract, onFault: (fault: RowFault) => void): Stage {
  const pool = createBufferPool();
  const sources = sourcesOf(contract);
  const rows = Math.max(1, Math.floor(stagedBytes / bytesPerRow(contract)));
  const options = {
    batchRows: rows,
    nanAllowed: contract.missing === "nan",
    take: (bytes: number) => pool.take(bytes),
    onFault,
  };
  return {
    rows,
    pack({ inputs }, range, look) {
      const count = range.to - range.from;
      const tensors = contract.inputs.map((binding, index) => {
        const target = createInputTarget(binding, contract, options);
        target.copy(inputs[sources[index] ?? -1], range, 0);
        return target.tensor(count, count);
      });
      look(tensors);
      pool.release(numericBuffers(tensors));
    },
  };
}

interface ReusingPackerOptions extends PackerOptions {
  readonly reuse: () => RowReuse;
}

/**
 * Packs each row that takes no stored prediction. All rows are packed once to be hashed as the model would see them, and
 * those that are scored a second time, for the model. Batches number their rows as `RowReuse` does.
 */
export function createReusingPacker({ reuse, onFault, ...options }: ReusingPackerOptions): Packer {
  const packer = createPacker({ ...options, onFault() {} }); // the stage has reported them
  const stage = createStage(options.contract, onFault);
  return {
    ...packer,
    *push(batch, { from, to, row }) {
      const piece = reuse();
      for (let at = from; at < to; at += stage.rows) {
        const range = { from: at, to: Math.min(to, at + stage.rows), row: row + (at - from) };
        const [firstRow, firstScored] = [piece.rowCount, piece.scoredCount];
        stage.pack(batch, range, (tensors) => {
          piece.take(batch, tensors, range);
        });
        const shift = range.from - firstRow;
        for (let index = firstScored; index < piece.scoredCount; ) {
          const start = piece.scoredAt(index);
          let count = 1;
          while (index + count < piece.scoredCount && piece.scoredAt(index + count) === start + count) {
            count += 1;
          }
          yield* packer.push(batch, { from: start + shift, to: start + count + shift, row: piece.rowStart + index });
          index += count;
        }
      }
    },
  };
}
