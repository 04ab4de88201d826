import type { DistinctRows } from "./distinct-rows.js";
import { createRowIndex } from "./row-index.js";
import type { NamedTensor } from "../columnar/tensor.js";
import { fieldOf, grownTo, memoryOf, wordsOf, write } from "../columnar/row-words.js";

/** Rows as the model reads them: found by a hash, and compared by their bytes. */
export interface RowStore {
  /** Forgets all rows: another span begins. */
  clear(): void;
  /**
   * Adds the rows of some tensors to those of a span. A row that equals a kept row is added as its repeat.
   * @param stored marks rows that take a stored prediction with 1; undefined: none does
   */
  add(tensors: readonly NamedTensor[], rows: number, distinct: DistinctRows, stored?: Uint8Array): void;
}

/** Keeps no row: each goes through the model unless it takes a stored prediction. */
export const noRowStore: RowStore = {
  clear() {},
  add(_tensors, rows, distinct, stored) {
    for (let row = 0; row < rows; row += 1) {
      if (stored?.[row] === 1) {
        distinct.takeStored();
      } else {
        distinct.add();
      }
    }
  },
};

/** The limit of kept rows, in bytes. Beyond it rows are forgotten, and rows equal to them are scored again. */
const keptBytes = 64 * 1024 * 1024;

export interface RowStoreOptions {
  readonly limitBytes?: number;
  /** Returns a 32-bit hash of words [from, to). */
  readonly hashOf?: (words: Int32Array, from: number, to: number) => number;
}

export function createRowStore({ limitBytes = keptBytes, hashOf = hashWords }: RowStoreOptions = {}): RowStore {
  const limitWords = limitBytes / 4;
  const index = createRowIndex();
  let memory = memoryOf(1 << 14);
  let used = 0;
  const clear = (): void => {
    used = 0;
    index.clear();
  };
  return {
    clear,
    add(tensors, rows, distinct, stored) {
      const fields = tensors.map((tensor) => fieldOf(tensor, rows));
      for (let row = 0; row < rows; row += 1) {
        if (stored?.[row] === 1) {
          distinct.takeStored();
          continue;
        }
        const length = wordsOf(fields, row);
        if (used + length + index.words > limitWords) {
          clear();
        }
        memory = grownTo(memory, used + length);
        // Behind those that are kept: a new one is kept by moving the end.
        const end = write(memory, used, fields, row);
        const hash = hashOf(memory.words, used, end);
        const distinctIndex = index.find(hash, memory.words, used, end);
        if (distinctIndex >= 0) {
          distinct.repeat(distinctIndex);
        } else {
          index.add(hash, used, distinct.count);
          distinct.add();
          used = end;
        }
      }
    },
  };
}

/** Two interleaved hashes, since one would wait for its own last product; then as MurmurHash3 ends (public domain, A. Appleby). */
function hashWords(words: Int32Array, from: number, to: number): number {
  let a = 0x2c1b3c6d;
  let b = 0x297a2d39;
  let index = from;
  for (; index + 1 < to; index += 2) {
    a = Math.imul(a ^ (words[index] as number), 0x7feb352d);
    b = Math.imul(b ^ (words[index + 1] as number), 0x27d4eb2f);
    // Downwards, too: floats of few digits differ in their upper bits only.
    a ^= a >>> 15;
    b ^= b >>> 13;
  }
  if (index < to) {
    a = Math.imul(a ^ (words[index] as number), 0x7feb352d);
    a ^= a >>> 15;
  }
  let hash = a ^ Math.imul(b, 0x5bd1e995);
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}
