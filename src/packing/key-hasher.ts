import { createRowHasher, hashWords } from "../columnar/row-hash.js";
import type { Column, FixedColumn } from "../columnar/types.js";

/** Hashes keys for the slots of a `StoredTable`, four words each: keys that follow on each other get slots side by side. */
export type KeyHasher = (key: readonly Column[], rows: number) => Int32Array;

/** The bits of a whole number that choose a slot of a group. */
const slotBits = 63;

/** @param seed four words */
export function createKeyHasher(seed: Int32Array): KeyHasher {
  const hasher = createRowHasher(seed, false);
  return (key, rows) => {
    const at = key.findLastIndex(isWhole);
    const column = key[at];
    if (column?.kind !== "fixed") {
      return hasher.columns(key, rows);
    }
    const { data } = column;
    const words = new Int32Array(data.buffer, data.byteOffset, data.byteLength / 4);
    const step = words.length / rows;
    // The low bits come in below: without them, all keys of a group have one hash.
    const upper = words.slice();
    for (let word = 0; word < upper.length; word += step) {
      upper[word] = (upper[word] as number) & ~slotBits;
    }
    const hashes = hasher.columns(key.with(at, columnOfWords(upper, step)), rows);
    for (let row = 0, to = 0, from = 0; row < rows; row += 1, to += hashWords, from += step) {
      const slot = (words[from] as number) & slotBits;
      hashes[to + 1] = (hashes[to + 1] as number) ^ Math.imul(slot, 0x9e3779b1);
      // Not the bits alone: where all keys are multiples of some number, they are the same.
      hashes[to + 3] = (hashes[to + 2] as number) + slot;
    }
    return hashes;
  };
}

/** Whether a column has whole numbers of 4 or 8 bytes, or what is kept as such. */
function isWhole(column: Column): boolean {
  return (
    column.kind === "fixed" &&
    column.elementsPerValue === 1 &&
    (column.data instanceof Int32Array ||
      column.data instanceof Uint32Array ||
      column.data instanceof BigInt64Array ||
      column.data instanceof BigUint64Array)
  );
}

function columnOfWords(words: Int32Array<ArrayBuffer>, step: number): FixedColumn {
  const data = step === 1 ? words : new BigInt64Array(words.buffer);
  return { kind: "fixed", elementsPerValue: 1, data, valid: undefined };
}
