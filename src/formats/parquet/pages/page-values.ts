import type { Column } from "../../../columnar/types.js";
import { copyValues, elementOf, type Values, viewOf } from "../../../columnar/values.js";
import { areHere } from "../../../columnar/memory/vectors.js";
import { sliceColumn } from "../../../columnar/column-rows.js";
import { takeRows } from "../../../columnar/column-take.js";
import {
  bitsSpareBytes,
  countOnesHere,
  isSpreadHere,
  type PackedValues,
  readBits,
  spreadHere,
  takeRunsHere,
} from "../../../columnar/memory/page-loops.js";
import { type PageMemory, reachable } from "./page-memory.js";
import type { PageHeader } from "./page-header.js";
import { type PageRows, repeatedTexts, wholeRange } from "./page-rows.js";
import { isOneRun, readRuns } from "./runs.js";
import type { StoredColumn } from "./storage.js";
import { plainValues } from "./values.js";

/** Encodings by the numbers of parquet.thrift. */
export const encodings = { plain: 0, plainDictionary: 2, runs: 3, runDictionary: 8 };

/**
 * The limit of rows that are read at once. 32 columns of this many floats fit several times into a core's second cache.
 */
export const mostRows = 32 * 1024;

/**
 * The limit of values of a page. A run of few bytes may contain any number of values, each of which takes memory here.
 */
export const pageLimitValues = 2 ** 24;

export interface PageParts {
  readonly header: PageHeader;
  readonly dictionary: Column | undefined;
  readonly pageMemory: PageMemory;
}

/** @throws RangeError, as `take` may */
export function pageRows(column: StoredColumn, bytes: Uint8Array<ArrayBuffer>, parts: PageParts): PageRows {
  const { header, pageMemory } = parts;
  const levels = readLevels(column, bytes, parts);
  pageMemory.moreLevelBytes = levels.at - levelBytesOf(column, header);
  return valueRows(column, bytes, { ...parts, ...levels, rows: header.values });
}

/** The rows of a page whose levels are read already. `rows`: with NULLs. @throws RangeError, as `take` may */
export function valueRows(column: StoredColumn, bytes: Uint8Array<ArrayBuffer>, parts: PackedParts): PageRows {
  const packed = packedValues(column, bytes, parts);
  if ("like" in packed) {
    return rowsHere(packed, parts);
  }
  return "take" in packed ? packed : { take: (from, to) => sliceColumn(packed, from, to), fitting: wholeRange };
}

interface PackedParts extends PageParts, Levels {
  readonly rows: number;
}

/** Returns all values of a page with its NULLs; or the values alone, if loops spread them later. */
function packedValues(
  column: StoredColumn,
  bytes: Uint8Array<ArrayBuffer>,
  { header, dictionary, pageMemory, at, valid, count, rows }: PackedParts,
): Column | LoopedValues | PageRows {
  const limit = column.limits.pageBytes;
  const isLooped = (values: Values): boolean => isSpreadHere(values) && areHere([valuesMemory(pageMemory, values)]);
  if (header.encoding === encodings.plain || (header.encoding === encodings.runs && column.storage.kind === "bits")) {
    const isPlain = header.encoding === encodings.plain;
    const values = isPlain ? plainValues(column.storage, bytes, { at, count }) : runBits(bytes, at, count);
    if (valid === undefined) {
      return values;
    }
    return values.kind === "fixed" && isLooped(values.data)
      ? copiedHere(values.data)
      : values.kind === "bytes"
        ? { ...values, offsets: spreadOffsets(values.offsets, valid), valid }
        : takeRows(column.type, values, { ...spread(valid), limit });
  }
  const isDictionary = header.encoding === encodings.runDictionary || header.encoding === encodings.plainDictionary;
  if (!isDictionary || dictionary === undefined) {
    throw new RangeError(`encoding ${header.encoding}`);
  }
  const runs = { at: at + 1, end: bytes.length, width: bytes[at] ?? 0 };
  if (dictionary.kind === "fixed" && isLooped(dictionary.data)) {
    const { data } = dictionary;
    const values = takeRunsHere(bytes, runs, data, count);
    if (values !== undefined) {
      return { ...values, like: data };
    }
  }
  if (rows > pageLimitValues) {
    throw new RangeError(`a page of ${rows} numbers`);
  }
  const places = new Uint32Array(rows);
  readRuns(bytes, runs, places, count);
  const taking = valid === undefined ? { indices: places, valid } : spread(valid, places);
  return dictionary.kind === "bytes"
    ? repeatedTexts(column, dictionary, taking)
    : takeRows(column.type, dictionary, { ...taking, limit });
}

/** Offsets of rows, NULLs among them, which have no bytes. */
function spreadOffsets(offsets: Uint32Array, valid: Uint8Array): Uint32Array {
  const spreadOut = new Uint32Array(valid.length + 1);
  let next = 0;
  for (let row = 0; row < valid.length; row += 1) {
    next += valid[row] as number;
    spreadOut[row + 1] = offsets[next] as number;
  }
  return spreadOut;
}

/** Values of one element each, in memory that loops reach. */
interface LoopedValues extends PackedValues {
  /** Others of that element. */
  readonly like: Values;
}

function valuesMemory(pageMemory: PageMemory, { BYTES_PER_ELEMENT: bytes }: Values): Uint8Array<ArrayBuffer> {
  return pageMemory.memory("values", mostRows * bytes);
}

function copiedHere(values: Values): LoopedValues {
  let next = 0;
  return {
    like: values,
    take(target) {
      copyValues(target, 0, values, next, next + target.length);
      next += target.length;
    },
    skip(count) {
      next += count;
    },
  };
}

/** Spreads values among NULLs when rows are read. */
function rowsHere(
  values: LoopedValues,
  { valid, pageMemory }: { readonly valid: Uint8Array | undefined; readonly pageMemory: PageMemory },
): PageRows {
  const element = elementOf(values.like);
  const ones = (from: number, to: number): number =>
    valid === undefined ? to - from : countOnesHere(valid.subarray(from, to));
  let passed = 0;
  return {
    fitting: wholeRange,
    take(from, to) {
      const skipped = ones(passed, from);
      if (skipped > 0) {
        values.skip(skipped);
      }
      passed = to;
      const rows = to - from;
      const count = ones(from, to);
      const { buffer, byteOffset } = valuesMemory(pageMemory, values.like);
      if (count > 0) {
        values.take(viewOf(element, buffer, byteOffset, count));
      }
      const data = viewOf(element, buffer, byteOffset, rows);
      const present = count === rows ? undefined : valid?.subarray(from, to);
      if (present !== undefined) {
        spreadHere(data, count, present);
      }
      return { kind: "fixed", elementsPerValue: 1, data, valid: present };
    },
  };
}

/** Returns the size of the levels before the values if no value is NULL: one run, after its length. */
export function levelBytesOf({ isOptional }: StoredColumn, { kind, values, levelBytes }: PageHeader): number {
  if (!isOptional || kind !== "data") {
    return levelBytes.definition;
  }
  const countBytes = Math.ceil((Math.floor(Math.log2(values)) + 2) / 7); // of twice as many, 7 bits in each
  return Uint32Array.BYTES_PER_ELEMENT + countBytes + 1;
}

interface Levels {
  /** Where values begin. */
  readonly at: number;
  /** Which rows have one; undefined: all. */
  readonly valid: Uint8Array | undefined;
  /** How many have one. */
  readonly count: number;
}

function readLevels({ isOptional }: StoredColumn, bytes: Uint8Array, { header, pageMemory }: PageParts): Levels {
  const { kind, values: rows, levelBytes, levelEncoding } = header;
  if (!isOptional) {
    return { at: 0, valid: undefined, count: rows };
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
    return { at: end, valid: undefined, count: rows };
  }
  const valid = pageMemory.memory("valid", rows + bitsSpareBytes);
  const count = readBits(reachable(bytes, { at, end }, pageMemory), valid, rows);
  return { at: end, valid: count === rows ? undefined : valid.subarray(0, rows), count };
}

function runBits(bytes: Uint8Array, start: number, count: number): Column {
  const { at, end } = prefixed(bytes, start);
  if (end !== bytes.length) {
    throw new RangeError(`runs of ${end - at} bytes in ${bytes.length - at}`);
  }
  const data = new Uint8Array(count);
  readRuns(bytes, { at, end, width: 1 }, data, count);
  return { kind: "fixed", elementsPerValue: 1, data, valid: undefined };
}

/** The bytes of runs that have their length before them. */
export function prefixed(bytes: Uint8Array, at: number): { at: number; end: number } {
  const start = at + Uint32Array.BYTES_PER_ELEMENT;
  const length = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(at, true);
  return { at: start, end: start + length };
}

/** Returns each row's index among the values, or among the entries of `packed`; 0 for NULLs. */
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
