import { rowsOf } from "../../columnar/column-rows.js";
import type { Column, NamedColumn } from "../../columnar/types.js";
import { keyOfBytes } from "./histogram.js";
import { blockValues, profileLoops } from "./profile-loops.js";

/**
 * How often whole rows occur, of a sample that their values choose: a row is counted if the first `level` bits of its
 * hash are zero. So rows that are equal are all counted or not at all, whoever reads them.
 */
export interface RowSketch {
  readonly level: number;
  /** Ascending hashes, and how many rows have each. */
  readonly hashes: readonly number[];
  readonly counts: readonly number[];
}

export const noRowsSketched: RowSketch = { level: 0, hashes: [], counts: [] };

/** Different rows that are counted. */
const mostHashes = 256;
/** Columns that tell rows apart. */
const mostColumns = 16;

/** Counts the rows of an output by their values; of lists and structs, by whether they are NULL. */
export function sketchRows(columns: readonly NamedColumn[], rows: number): RowSketch {
  const counts = new Map<number, number>();
  const { words, hashes, mixWords, sample } = profileLoops();
  let level = 0;
  for (let from = 0; from < rows; from += blockValues) {
    const count = Math.min(blockValues, rows - from);
    hashes.fill(0);
    for (const { column } of columns.slice(0, mostColumns)) {
      mixWords(count, putWords(words, column, from, count));
    }

    for (const hash of hashes.subarray(0, sample(count, level))) {
      if (isSampled(hash, level)) {
        counts.set(hash, (counts.get(hash) ?? 0) + 1);
        level = thin(counts, level);
      }
    }
  }
  return sorted(level, counts);
}

/** Leaves out hashes until they are few enough. @returns the level at which they are */
function thin(counts: Map<number, number>, from: number): number {
  let level = from;
  while (counts.size > mostHashes) {
    level += 1;
    for (const hash of [...counts.keys()].filter((known) => !isSampled(known, level))) {
      counts.delete(hash);
    }
  }
  return level;
}

function isSampled(hash: number, level: number): boolean {
  return level === 0 || hash >>> (32 - level) === 0;
}

function sorted(level: number, counts: ReadonlyMap<number, number>): RowSketch {
  const hashes = [...counts.keys()].toSorted((left, right) => left - right);
  return { level, hashes, counts: hashes.map((hash) => counts.get(hash) as number) };
}

/** Puts the words of rows of a column into the block. @returns how many words each row has */
function putWords(words: Int32Array, column: Column, from: number, rows: number): number {
  const { valid } = column;
  let width = 1;
  if (column.kind === "fixed") {
    const { data } = column;
    const source =
      data.BYTES_PER_ELEMENT < 4
        ? (data as Int8Array)
        : new Int32Array(data.buffer, data.byteOffset, data.byteLength / 4);
    width = source.length / rowsOf(column);
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
  const level = Math.max(first.level, second.level);
  const counts = new Map<number, number>();
  for (const { hashes, counts: rows } of [first, second]) {
    for (const [index, hash] of hashes.entries()) {
      if (isSampled(hash, level)) {
        counts.set(hash, (counts.get(hash) ?? 0) + (rows[index] as number));
      }
    }
  }
  return sorted(thin(counts, level), counts);
}

/** The share of rows that are there before; undefined: no row is counted. */
export function repeatedShare({ hashes, counts }: RowSketch): number | undefined {
  const rows = counts.reduce((sum, count) => sum + count, 0);
  return rows === 0 ? undefined : 1 - hashes.length / rows;
}
