import type { BytesColumn } from "../../columnar/types.js";
import { costOfName, limitValues, type ValueCounts, type ValueLimits } from "./value-counts.js";
import { hashBins, hashBytes, hashOfName, nameOfText } from "./value-names.js";

/** How often each text of a column occurs, NULLs left out. A text is decoded once, not once for each row. */
export function countTexts(column: BytesColumn, limits: ValueLimits): ValueCounts {
  const limit = mostEntries(limits);
  const table = createTable(limit);
  const rows = column.offsets.length - 1;
  const counted = addTexts(table, column, limit);
  if (counted < rows) {
    const hashed = foldTable(table);
    hashTexts(hashed, column, counted);
    return { kind: "many", hashed };
  }
  const counts = new Map<string, number>();
  for (const { from, to, count } of entriesOf(table)) {
    const name = nameOfText(column.bytes.subarray(from, to));
    counts.set(name, (counts.get(name) ?? 0) + count);
  }
  return limitValues(counts, limits, hashOfName);
}

/** How often each value occurs, given by where its first row has it. undefined: there are too many. */
export function countBytes(column: BytesColumn, limits: ValueLimits): Entry[] | undefined {
  const limit = mostEntries(limits);
  const table = createTable(limit);
  return addTexts(table, column, limit) < column.offsets.length - 1 ? undefined : entriesOf(table);
}

function mostEntries({ values, nameBytes }: ValueLimits): number {
  return Math.min(values, Math.floor(nameBytes / costOfName(0)));
}

/** Bytes [from, to), and how often they came. */
interface Entry {
  readonly from: number;
  readonly to: number;
  readonly count: number;
}

function entriesOf({ size, starts, ends, counts }: Table): Entry[] {
  return Array.from({ length: size }, (_, entry) => ({
    from: starts[entry] as number,
    to: ends[entry] as number,
    count: counts[entry] as number,
  }));
}

interface Table {
  size: number;
  /** Of each different text, where its first row begins and ends, its hash and how often it came. */
  readonly starts: Uint32Array;
  readonly ends: Uint32Array;
  readonly hashes: Uint32Array;
  readonly counts: Float64Array;
  /** The entry in each slot, plus one; 0: none. */
  readonly slots: Uint16Array;
  /** The same by length, first and last byte, of the text that was last looked for: labels are found here, unhashed. */
  readonly recent: Uint16Array;
}

function createTable(limit: number): Table {
  return {
    size: 0,
    starts: new Uint32Array(limit),
    ends: new Uint32Array(limit),
    hashes: new Uint32Array(limit),
    counts: new Float64Array(limit),
    slots: new Uint16Array(2 ** Math.ceil(Math.log2(2 * limit + 2))),
    recent: new Uint16Array(256),
  };
}

/** Returns the first row that was not counted, since its text would be one too many. */
function addTexts(table: Table, { offsets, bytes, valid }: BytesColumn, limit: number): number {
  const { starts, ends, counts, recent } = table;
  const rows = offsets.length - 1;
  for (let row = 0; row < rows; row += 1) {
    if (valid === undefined || valid[row] !== 0) {
      const from = offsets[row] as number;
      const to = offsets[row + 1] as number;
      const short = from === to ? 0 : ((bytes[from] as number) * 5 + (bytes[to - 1] as number) * 3 + to - from) & 255;
      let entry = (recent[short] as number) - 1;
      if (entry < 0 || !sameText(bytes, starts[entry] as number, ends[entry] as number, from, to)) {
        entry = findText(table, bytes, from, to, limit);
        if (entry < 0) {
          return row;
        }
        recent[short] = entry + 1;
      }
      counts[entry] = (counts[entry] as number) + 1;
    }
  }
  return rows;
}

/** The entry of a text, a new one where there is none; -1: it would be one too many. */
function findText(table: Table, bytes: Uint8Array, from: number, to: number, limit: number): number {
  const { starts, ends, hashes, slots } = table;
  const mask = slots.length - 1;
  const hash = hashBytes(bytes, from, to);
  let slot = hash & mask;
  for (let entry = (slots[slot] as number) - 1; entry >= 0; entry = (slots[slot] as number) - 1) {
    if (hashes[entry] === hash && sameText(bytes, starts[entry] as number, ends[entry] as number, from, to)) {
      return entry;
    }
    slot = (slot + 1) & mask;
  }
  if (table.size === limit) {
    return -1;
  }
  const entry = table.size;
  table.size += 1;
  slots[slot] = table.size;
  starts[entry] = from;
  ends[entry] = to;
  hashes[entry] = hash;
  return entry;
}

function sameText(bytes: Uint8Array, start: number, end: number, from: number, to: number): boolean {
  if (end - start !== to - from) {
    return false;
  }
  for (let at = start, other = from; at < end; at += 1, other += 1) {
    if (bytes[at] !== bytes[other]) {
      return false;
    }
  }
  return true;
}

function foldTable({ size, hashes, counts }: Table): Float64Array {
  const hashed = new Float64Array(hashBins);
  for (let entry = 0; entry < size; entry += 1) {
    const bin = (hashes[entry] as number) % hashBins;
    hashed[bin] = (hashed[bin] as number) + (counts[entry] as number);
  }
  return hashed;
}

function hashTexts(hashed: Float64Array, { offsets, bytes, valid }: BytesColumn, rowFrom: number): void {
  const end = offsets.length - 1;
  for (let row = rowFrom; row < end; row += 1) {
    if (valid === undefined || valid[row] !== 0) {
      const bin = hashBytes(bytes, offsets[row] as number, offsets[row + 1] as number) % hashBins;
      hashed[bin] = (hashed[bin] as number) + 1;
    }
  }
}
