import { type FloatBits, upperWord } from "./float-bits.js";
import { costOfName, limitValues, manyNumbers, type ValueCounts, type ValueLimits } from "./value-counts.js";
import { mixHash } from "./value-names.js";

/** Counts different finite numbers for as long as they are few: an open hash table whose size is bounded. */
export interface DistinctNumbers {
  /** Adds the first `count` values. */
  add(bits: FloatBits, count: number): void;
  finish(): ValueCounts;
}

/** What the shortest name of a number takes. */
export const costOfShortest = costOfName(1);

export function createDistinctNumbers(limits: ValueLimits): DistinctNumbers {
  const limit = Math.min(limits.values, Math.floor(limits.nameBytes / costOfShortest));
  const table = createTable(limit);
  return {
    add(bits, count) {
      if (table.size <= limit) {
        addNumbers(table, bits, count, limit);
      }
    },
    finish() {
      if (table.size > limit) {
        return manyNumbers;
      }
      const counts = new Map<string, number>();
      for (let slot = 0; slot < table.counts.length; slot += 1) {
        const count = table.counts[slot] as number;
        if (count > 0) {
          counts.set(String(table.numbers[slot]), count);
        }
      }
      return limitValues(counts, limits, undefined);
    },
  };
}

interface Table {
  /** The number of different numbers. If it is above the limit, the other fields have no meaning. */
  size: number;
  /** By slot; a slot without a count is free. */
  readonly numbers: Float64Array;
  readonly counts: Float64Array;
}

function createTable(limit: number): Table {
  // Twice as many slots as numbers keep chains short.
  const slots = 2 ** Math.ceil(Math.log2(2 * limit + 2));
  return { size: 0, numbers: new Float64Array(slots), counts: new Float64Array(slots) };
}

function addNumbers(table: Table, { values, words }: FloatBits, count: number, limit: number): void {
  const { numbers, counts } = table;
  const mask = numbers.length - 1;
  const [high, low] = [upperWord, 1 - upperWord];
  for (let index = 0; index < count; index += 1) {
    const value = values[index] as number;
    const upper = words[2 * index + high] as number;
    let slot = mixHash(upper ^ Math.imul(words[2 * index + low] as number, 0x9e3779b1)) & mask;
    while ((counts[slot] as number) > 0 && numbers[slot] !== value) {
      slot = (slot + 1) & mask;
    }
    if (counts[slot] === 0) {
      if (table.size === limit) {
        table.size += 1;
        return;
      }
      table.size += 1;
      numbers[slot] = value;
    }
    counts[slot] = (counts[slot] as number) + 1;
  }
}
