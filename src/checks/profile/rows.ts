import { rowsOf } from "../../columnar/columns.js";
import type { Column, NamedColumn } from "../../columnar/types.js";
import { keyOfBytes, type KeyTable } from "./histogram.js";
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

/** Leaves out hashes until they are few enough. @returns the level at which they are */
function thin(table: KeyTable, from: number): number {
  let level = from;
  while ((table.used[0] as number) > mostHashes) {
    level += 1;
    table.keepBelow(2 ** (32 - level));
  }
  return level;
}

function finished(table: KeyTable, level: number): RowSketch {
  const { keys, counts } = table.finish();
  return { level, hashes: keys, counts };
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
