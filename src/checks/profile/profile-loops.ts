/**
 * The loops over all values of a span that its profile takes, in WebAssembly (`profile-loops.wat`), which is fast from
 * the first row on, where V8 interprets JavaScript at first. Values are copied into its memory a block at a time. A thread
 * without such memory (`ulimit -v`) has plain loops, which are slower.
 */
import { loopsWithMemory } from "../../columns/loops/vectors.js";
import type { Column, NamedColumn } from "../../columns/types.js";
import { type Histogram, BinTable, keyOfBytes, keyOfNumber, mixHash, mostBins, tableSlots } from "./histogram.js";
import { profileLoopsCode } from "./profile-loops-code.js";
import { rowCountOf } from "../../columns/columns.js";

/** Numbers, or rows, of a block. */
export const blockValues = 2048;
/** Words of the widest value: 128 bits. */
const mostWords = 4;

/** Fills the start of a block with the next numbers, at most `blockValues`; returns how many, 0 at the end. */
export type NextNumbers = (block: Float64Array) => number;

interface CountedNumbers {
  readonly rows: number;
  readonly nan: number;
  readonly infinite: readonly [negative: number, positive: number];
  /** Of finite numbers; infinite if there are none. */
  readonly min: number;
  readonly max: number;
  readonly sum: number;
  /** What the sum was rounded by (Knuth's two-sum). */
  readonly rest: number;
  readonly values: Histogram;
}

interface ProfileLoops {
  readonly numbers: Float64Array;
  readonly table: BinTable;
  readonly notFinite: Int32Array;
  /** The least and the greatest finite number, their sum, and what it was rounded by. */
  readonly facts: Float64Array;
  /** Returns `to`; or, once the table has more than `bins` keys, the number after the one too many. */
  readonly countBlock: (from: number, to: number, shift: number, bins: number) => number;
  readonly words: Int32Array;
  readonly hashes: Uint32Array;
  /** Mixes the words of rows, so many each, into their hashes. */
  readonly mixWords: (rows: number, width: number) => void;
  /** Ends the hashes of rows, and moves those whose first `level` bits are zero to the start; returns how many those are. */
  readonly sample: (rows: number, level: number) => number;
}

let opened: ProfileLoops | undefined;

/** This thread's. What is in their memory lasts until somebody else uses them. @public so that tests compare both kinds of loops */
export function profileLoops(): ProfileLoops {
  opened ??= openLoops();
  return opened;
}

function openLoops(): ProfileLoops {
  const loops = loopsWithMemory(profileLoopsCode) as (ProfileLoops & { memory: { buffer: ArrayBuffer } }) | undefined;
  const memory = loops?.memory.buffer ?? new ArrayBuffer(0x18000);
  const places = {
    numbers: new Float64Array(memory, 0, blockValues),
    table: new BinTable(
      new Uint32Array(memory, 0x4000, tableSlots),
      new Uint32Array(memory, 0x8000, tableSlots),
      new Uint32Array(memory, 0xc000, mostBins + 1),
      new Uint32Array(memory, 0xd200, 1),
    ),
    notFinite: new Int32Array(memory, 0xd204, 3),
    facts: new Float64Array(memory, 0xd210, 4),
    words: new Int32Array(memory, 0xe000, mostWords * blockValues),
    hashes: new Uint32Array(memory, 0x16000, blockValues),
  };
  const { countBlock, mixWords, sample } = loops ?? plainLoops(places);
  return { ...places, countBlock, mixWords, sample };
}

/** Counts numbers. @param bins the most bins of their histogram, at most 1,024 */
export function countNumbers(next: NextNumbers, bins: number): CountedNumbers {
  const { numbers, table, notFinite, facts, countBlock } = profileLoops();
  table.finish(); // a reader of numbers that failed has left some
  notFinite.fill(0);
  facts.set([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 0, 0]);
  let rows = 0;
  for (let count = next(numbers); count > 0; count = next(numbers)) {
    rows += count;
    for (let at = 0; at < count; ) {
      at = countBlock(at, count, table.shift, bins);
      table.limit(bins);
    }
  }

  const [nan, negative, positive] = notFinite as unknown as readonly [number, number, number];
  const [min, max, sum, rest] = facts as unknown as readonly [number, number, number, number];
  return { rows, nan, infinite: [negative, positive], min, max, sum, rest, values: table.finish() };
}

type Places = Omit<ProfileLoops, "countBlock" | "mixWords" | "sample">;

function plainLoops({ numbers, table, notFinite, facts, words, hashes }: Places): Omit<ProfileLoops, keyof Places> {
  return {
    countBlock(from, to, shift, bins) {
      let [min, max, sum, rest] = facts as unknown as [number, number, number, number];
      let at = from;
      while (at < to && (table.used[0] as number) <= bins) {
        const value = numbers[at] as number;
        at += 1;
        if (value - value !== 0) {
          const place = Number.isNaN(value) ? 0 : value < 0 ? 1 : 2;
          notFinite[place] = (notFinite[place] as number) + 1;
          continue;
        }
        table.put(keyOfNumber(value) >>> shift, 1);
        min = value < min ? value : min;
        max = value > max ? value : max;
        const total = sum + value;
        const part = total - sum;
        rest += sum - (total - part) + (value - part);
        sum = total;
      }
      facts.set([min, max, sum, rest]);
      return at;
    },
    mixWords(rows, width) {
      for (let row = 0, at = 0; row < rows; row += 1) {
        let hash = hashes[row] as number;
        for (const end = at + width; at < end; at += 1) {
          const mixed = hash ^ (words[at] as number);
          hash = Math.imul((mixed << 13) | (mixed >>> 19), 0x5bd1e995) + 0x38495ab5;
        }
        hashes[row] = hash;
      }
    },
    sample(rows, level) {
      let sampled = 0;
      for (let row = 0; row < rows; row += 1) {
        const hash = mixHash(hashes[row] as number);
        if (level === 0 || hash >>> (32 - level) === 0) {
          hashes[sampled] = hash;
          sampled += 1;
        }
      }
      return sampled;
    },
  };
}

/** Of a sample by hash (first `level` bits zero): rows that are equal are all counted or not at all. */
export interface RowSketch {
  readonly level: number;
  /** Ascending hashes, and how many rows have each. */
  readonly hashes: readonly number[];
  readonly counts: readonly number[];
}

export const noRowsSketched: RowSketch = { level: 0, hashes: [], counts: [] };

/** Different rows that are counted. */
const mostHashes = 256;
const mostColumns = 16;

/** Counts the rows of an output by their values; of lists and structs, by whether they are NULL. */
export function sketchRows(columns: readonly NamedColumn[], rows: number): RowSketch {
  const { words, hashes, table, mixWords, sample } = profileLoops();
  let level = 0;
  let end = 2 ** 32;
  for (let from = 0; from < rows; from += blockValues) {
    const count = Math.min(blockValues, rows - from);
    hashes.fill(0);
    for (const { column } of columns.slice(0, mostColumns)) {
      mixWords(count, putWords(words, column, from, count));
    }

    const sampled = sample(count, level);
    for (let index = 0; index < sampled; index += 1) {
      if ((hashes[index] as number) < end) {
        table.put(hashes[index] as number, 1);
        if ((table.used[0] as number) > mostHashes) {
          level = thin(table, level);
          end = 2 ** (32 - level);
        }
      }
    }
  }
  return finished(table, level);
}

/** @returns the level at which they are few enough */
function thin(table: BinTable, from: number): number {
  let level = from;
  while ((table.used[0] as number) > mostHashes) {
    level += 1;
    table.keepBelow(2 ** (32 - level));
  }
  return level;
}

function finished(table: BinTable, level: number): RowSketch {
  const { keys, counts } = table.finish();
  return { level, hashes: keys, counts };
}

/** @returns how many words each row has */
function putWords(words: Int32Array, column: Column, from: number, rows: number): number {
  const { valid } = column;
  let width = 1;
  if (column.kind === "fixed") {
    const { data } = column;
    const source =
      data.BYTES_PER_ELEMENT < 4
        ? (data as Int8Array)
        : new Int32Array(data.buffer, data.byteOffset, data.byteLength / 4);
    width = source.length / rowCountOf(column);
    words.set(source.subarray(from * width, (from + rows) * width));
  } else if (column.kind === "bytes") {
    const { bytes, offsets } = column;
    for (let row = 0; row < rows; row += 1) {
      words[row] = keyOfBytes(bytes, offsets[from + row] as number, offsets[from + row + 1] as number, 0);
    }
  } else {
    words.fill(0, 0, rows);
  }

  if (valid !== undefined) {
    for (let word = 0; word < rows * width; word += 1) {
      words[word] = valid[from + Math.floor(word / width)] === 0 ? nullWord : (words[word] as number);
    }
  }
  return width;
}

/** What is counted of a NULL. */
const nullWord = 0x51ed270b;

/** Merges the sketches of different rows, in any order. */
export function mergeSketches(first: RowSketch, second: RowSketch): RowSketch {
  const { table } = profileLoops();
  const level = Math.max(first.level, second.level);
  for (const { hashes, counts } of [first, second]) {
    for (let index = 0; index < hashes.length && (hashes[index] as number) < 2 ** (32 - level); index += 1) {
      table.put(hashes[index] as number, counts[index] as number);
    }
  }
  return finished(table, thin(table, level));
}

/** The share of rows that are there before; undefined: no row is counted. */
export function repeatedShare({ hashes, counts }: RowSketch): number | undefined {
  const rows = counts.reduce((sum, count) => sum + count, 0);
  return rows === 0 ? undefined : 1 - hashes.length / rows;
}
