import type { Column } from "../batch/types.js";
import { takeRows } from "./column-take.js";
import type { PageHeader } from "./parquet-page-header.js";
import { isOneRun, readRuns } from "./parquet-runs.js";
import type { StoredColumn } from "./parquet-storage.js";
import { plainValues } from "./parquet-values.js";

/** Memory that the pages of a column are unpacked into, one after the other. */
export interface PageRoom {
  bytes: Uint8Array<ArrayBuffer>;
  /** By how many bytes the last page's levels were more than `levelBytesOf` says: the next page's are, too, mostly. */
  moreLevelBytes: number;
}

/** By the numbers of parquet.thrift. */
export const encodings = { plain: 0, plainDictionary: 2, runs: 3, runDictionary: 8 };

/** Of one page, unpacked: what says that it has more is left to DuckDB. */
export const pageLimitBytes = 2 ** 28;

interface PageParts {
  readonly header: PageHeader;
  readonly dictionary: Column | undefined;
  readonly room: PageRoom;
}

/** What a page holds, NULLs and all. */
export function pageValues(column: StoredColumn, bytes: Uint8Array<ArrayBuffer>, parts: PageParts): Column {
  const { header, dictionary, room } = parts;
  const { at, valid } = readLevels(column, bytes, header);
  room.moreLevelBytes = at - levelBytesOf(column, header);
  const rows = header.values;
  const count = valid === undefined ? rows : countOnes(valid);
  const limit = pageLimitBytes;
  if (header.encoding === encodings.plain || (header.encoding === encodings.runs && column.storage.kind === "bits")) {
    const isPlain = header.encoding === encodings.plain;
    const values = isPlain ? plainValues(column.storage, bytes, { at, count }) : runBits(bytes, at, count);
    return valid === undefined ? values : takeRows(column.type, values, { ...spread(valid), limit });
  }
  const isDictionary = header.encoding === encodings.runDictionary || header.encoding === encodings.plainDictionary;
  if (!isDictionary || dictionary === undefined) {
    throw new RangeError(`encoding ${header.encoding}`);
  }
  const places = new Uint32Array(rows);
  const width = bytes[at] ?? 0;
  readRuns(bytes, { at: at + 1, end: bytes.length, width }, places, count);
  const taking = valid === undefined ? { indices: places, valid } : spread(valid, places);
  return takeRows(column.type, dictionary, { ...taking, limit });
}

/** Of levels before the values, as writers make them where no value is NULL: one run, after its length. */
export function levelBytesOf({ isOptional }: StoredColumn, { kind, values, levelBytes }: PageHeader): number {
  if (!isOptional || kind !== "data") {
    return levelBytes.definition;
  }
  const countBytes = Math.ceil((Math.floor(Math.log2(values)) + 2) / 7); // of twice as many, 7 bits in each
  return Uint32Array.BYTES_PER_ELEMENT + countBytes + 1;
}

/** Where values begin, and which rows have one; undefined: all. */
function readLevels(
  { isOptional }: StoredColumn,
  bytes: Uint8Array,
  { kind, values: rows, levelBytes, levelEncoding }: PageHeader,
): { at: number; valid: Uint8Array | undefined } {
  if (!isOptional) {
    return { at: 0, valid: undefined };
  }
  let [at, end] = [0, levelBytes.definition];
  if (kind === "data") {
    if (levelEncoding !== encodings.runs) {
      throw new RangeError(`levels of encoding ${levelEncoding}`);
    }
    ({ at, end } = prefixed(bytes, 0));
  }
  if (end > bytes.length) {
    throw new RangeError("levels end in the middle");
  }
  if (isOneRun(bytes, { at, end, value: 1 }, rows)) {
    return { at: end, valid: undefined };
  }
  const valid = new Uint8Array(rows);
  readRuns(bytes, { at, end, width: 1 }, valid, rows);
  return { at: end, valid: valid.includes(0) ? valid : undefined };
}

function runBits(bytes: Uint8Array, start: number, count: number): Column {
  const { at, end } = prefixed(bytes, start);
  if (end !== bytes.length) {
    throw new RangeError(`runs of ${end - at} bytes in ${bytes.length - at}`);
  }
  const data = new Uint8Array(count);
  readRuns(bytes, { at, end, width: 1 }, data, count);
  return { kind: "fixed", lanes: 1, data, valid: undefined };
}

/** Where runs lie that have their length before them. */
function prefixed(bytes: Uint8Array, at: number): { at: number; end: number } {
  const start = at + Uint32Array.BYTES_PER_ELEMENT;
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(at, true);
  return { at: start, end: start + length };
}

function countOnes(valid: Uint8Array): number {
  let count = 0;
  for (let row = 0; row < valid.length; row += 1) {
    count += valid[row] as number;
  }
  return count;
}

/** Of each row its place among the values, or among those that `packed` names one after the other; 0 for NULLs. */
function spread(valid: Uint8Array, packed?: Uint32Array): { indices: Uint32Array<ArrayBuffer>; valid: Uint8Array } {
  const indices = new Uint32Array(valid.length);
  let next = 0;
  for (let row = 0; row < valid.length; row += 1) {
    if (valid[row] === 1) {
      indices[row] = packed === undefined ? next : (packed[next] as number);
      next += 1;
    }
  }
  return { indices, valid };
}
