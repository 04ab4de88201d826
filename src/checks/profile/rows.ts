import type { Column, NamedColumn } from "../../columnar/types.js";
import { keyOfBytes, mixHash } from "./histogram.js";

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
  const hashes = new Int32Array(rows);
  for (const { column } of columns.slice(0, mostColumns)) {
    addColumn(hashes, column);
  }
  const counts = new Map<number, number>();
  let level = 0;
  for (let row = 0; row < rows; row += 1) {
    const hash = mixHash(hashes[row] as number);
    if (isSampled(hash, level)) {
      counts.set(hash, (counts.get(hash) ?? 0) + 1);
      level = thin(counts, level);
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

/** Mixes the values of a column into the hashes of its rows. */
function addColumn(hashes: Int32Array, column: Column): void {
  const { valid } = column;
  if (column.kind !== "fixed") {
    for (let row = 0; row < hashes.length; row += 1) {
      const word =
        valid?.[row] === 0
          ? nullWord
          : column.kind === "bytes"
            ? keyOfBytes(column.bytes, column.offsets[row] as number, column.offsets[row + 1] as number, 0)
            : 0;
      hashes[row] = mixed((hashes[row] as number) ^ word);
    }
    return;
  }
  const { data, elementsPerValue } = column;
  const perRow = Math.max(1, (data.BYTES_PER_ELEMENT * elementsPerValue) / 4);
  const words: ArrayLike<number> =
    data.BYTES_PER_ELEMENT < 4
      ? (data as Exclude<typeof data, BigInt64Array | BigUint64Array>)
      : new Int32Array(data.buffer, data.byteOffset, data.byteLength / 4);
  for (let row = 0, at = 0; row < hashes.length; row += 1) {
    let hash = hashes[row] as number;
    const isNull = valid !== undefined && valid[row] === 0;
    for (const end = at + perRow; at < end; at += 1) {
      hash = mixed(hash ^ (isNull ? nullWord : (words[at] as number)));
    }
    hashes[row] = hash;
  }
}

/** What is counted of a NULL. */
const nullWord = 0x51ed270b;

function mixed(hash: number): number {
  return (Math.imul((hash << 13) | (hash >>> 19), 0x5bd1e995) + 0x38495ab5) | 0;
}

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
