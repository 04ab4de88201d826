/** A hash table over rows that are stored as words outside it: open addressing, linear probing, at most half full. */
export interface RowIndex {
  /** Words that it takes itself, about. */
  readonly words: number;
  clear(): void;
  /** The distinct index of a row with the words [from, to), in the memory of the other rows; -1: there is none. */
  find(hash: number, words: Int32Array, from: number, to: number): number;
  add(hash: number, at: number, distinctIndex: number): void;
}

/** Numbers of an entry: the row's hash, where its words begin, and its distinct index. */
const entryWords = 3;

export function createRowIndex(): RowIndex {
  /** The number of an entry, plus one; 0: free. */
  let slots = new Int32Array(1 << 10);
  let entries = new Int32Array((slots.length / 2) * entryWords);
  let count = 0;
  const grow = (): void => {
    const larger = new Int32Array(entries.length * 2);
    larger.set(entries);
    entries = larger;
    slots = new Int32Array(slots.length * 2);
    for (let entry = 0; entry < count; entry += 1) {
      put(slots, entries[entry * entryWords] as number, entry);
    }
  };
  return {
    get words() {
      return count * (entryWords + 2);
    },
    clear() {
      slots.fill(0);
      count = 0;
    },
    find(hash, words, from, to) {
      const mask = slots.length - 1;
      for (let slot = hash & mask; ; slot = (slot + 1) & mask) {
        const entry = (slots[slot] as number) - 1;
        if (entry < 0) {
          return -1;
        }
        const at = entry * entryWords;
        if (entries[at] === hash && isSame(words, entries[at + 1] as number, from, to)) {
          return entries[at + 2] as number;
        }
      }
    },
    add(hash, at, distinctIndex) {
      if (count * 2 === slots.length) {
        grow();
      }
      const entry = count * entryWords;
      entries[entry] = hash;
      entries[entry + 1] = at;
      entries[entry + 2] = distinctIndex;
      put(slots, hash, count);
      count += 1;
    },
  };
}

function put(slots: Int32Array, hash: number, entry: number): void {
  const mask = slots.length - 1;
  let slot = hash & mask;
  while (slots[slot] !== 0) {
    slot = (slot + 1) & mask;
  }
  slots[slot] = entry + 1;
}

/** The words [from, to) and those from `at` on. No row is the beginning of another: none is longer than it looks. */
function isSame(words: Int32Array, at: number, from: number, to: number): boolean {
  for (let index = from, other = at; index < to; index += 1, other += 1) {
    if (words[index] !== words[other]) {
      return false;
    }
  }
  return true;
}
