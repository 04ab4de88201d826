import type { BytesColumn, Column } from "../../../columns/types.js";
import {
  allocate,
  bytesPerElement,
  type ElementType,
  type Values,
  elementsOf,
  unpackBits,
  copyValues,
  elementOf,
  viewOf,
} from "../../../columns/values.js";
import { assertNever, messageOf } from "../../../base/errors.js";
import { checkTexts } from "../../read-fully.js";
import type { Storage, ChunkColumn } from "./storage.js";
import { longestText, repeatRows, takeRows, sliceColumn } from "../../../columns/columns.js";
import { areHere, pieceLimitBytes } from "../../../columns/loops/vectors.js";
import {
  bitsSpareBytes,
  countOnesHere,
  isSpreadHere,
  type PackedValues,
  readBits,
  spreadHere,
  takeRunsHere,
} from "../../../columns/loops/page-loops.js";
import { type PageMemory, reachable } from "./page-memory.js";
import { type PageHeader, codecs, unpack, unpackIntoNew, parsePageHeader } from "./page-header.js";
import { isOneRun, readRuns } from "./runs.js";
import type { Cursor } from "../../../base/thrift.js";

/** `count` consecutive values from `at` to the end: views of `bytes` where they can be. */
export function plainValues(
  storage: Storage,
  bytes: Uint8Array<ArrayBuffer>,
  { at, count }: { readonly at: number; readonly count: number },
): Column {
  switch (storage.kind) {
    case "bits":
      requireBytes(bytes, at, Math.ceil(count / 8));
      return { kind: "fixed", elementsPerValue: 1, data: unpackBits(bytes.subarray(at), 0, count), valid: undefined };
    case "fixed": {
      const { stored, element } = storage;
      requireBytes(bytes, at, count * bytesPerElement(stored));
      const values = elementsOf(stored, bytes.subarray(at));
      const data = element === stored ? values : narrowed(values, element);
      return { kind: "fixed", elementsPerValue: 1, data, valid: undefined };
    }
    case "bytes":
      return readTexts(bytes, { at, count, isText: storage.isText });
    default:
      return assertNever(storage);
  }
}

function requireBytes(bytes: Uint8Array, at: number, size: number): void {
  // More bytes than that: the values may be others, or not all.
  if (at + size !== bytes.length) {
    throw new RangeError(`values of ${size} bytes in ${bytes.length - at}`);
  }
}

function narrowed(values: Values, element: ElementType): Values {
  const target = allocate(element, values.length) as Int32Array<ArrayBuffer>;
  const source = values as Int32Array<ArrayBuffer>;
  for (let index = 0; index < source.length; index += 1) {
    const value = source[index] as number;
    target[index] = value;
    if (target[index] !== value) {
      throw new RangeError(`${value} is no ${element}`);
    }
  }
  return target;
}

const lengthBytes = 4;

function readTexts(
  bytes: Uint8Array<ArrayBuffer>,
  { at: start, count, isText }: { at: number; count: number; isText: boolean },
): BytesColumn {
  const most = bytes.length - start - count * lengthBytes;
  if (count < 0 || most < 0) {
    throw new RangeError(`${count} texts in ${bytes.length - start} bytes`);
  }
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const offsets = new Uint32Array(count + 1);
  // In the page's memory: each text moves towards the start, over the lengths before it.
  const texts = bytes.subarray(start, start + most);
  let at = start;
  let filled = 0;
  for (let index = 0; index < count; index += 1) {
    const length = at + lengthBytes <= bytes.length ? view.getUint32(at, true) : bytes.length;
    at += lengthBytes;
    if (filled + length > texts.length) {
      throw new RangeError("a text ends outside of its page");
    }
    moveText(bytes, start + filled, at, length);
    at += length;
    filled += length;
    offsets[index + 1] = filled;
  }
  if (filled !== most) {
    throw new RangeError(`texts of ${filled} bytes in ${most}`);
  }
  const column: BytesColumn = { kind: "bytes", offsets, bytes: texts, valid: undefined };
  if (isText) {
    checkTexts(column);
  }
  return column;
}

/** A call of the engine costs more than this many bytes. */
const shortText = 32;

function moveText(bytes: Uint8Array, to: number, from: number, length: number): void {
  if (length >= shortText) {
    bytes.copyWithin(to, from, from + length);
    return;
  }
  for (let index = 0; index < length; index += 1) {
    bytes[to + index] = bytes[from + index] as number;
  }
}

/** Rows of a column, in order. */
export interface ColumnRows {
  /** Rows that can be read at once from the current page; opens the next one if it has none left. @throws RangeError */
  ahead(): number;
  /** Reads the next `rows`, at most `ahead()`. They are valid until the next call. */
  take(rows: number): Column;
  /** Skips rows. Pages that are skipped as a whole are not unpacked. */
  skip(rows: number): void;
}

/** The rows of a page, NULLs included. */
export interface PageRows {
  /** Reads rows [from, to), at most `mostRows`, after the rows of the last call. They are valid until the next call. */
  take(from: number, to: number): Column;
  /** Returns how many of rows [from, to) are read at once. */
  fitting(from: number, to: number): number;
}

/** Reads rows [from, to) at once, as `PageRows.fitting`. */
function wholeRange(from: number, to: number): number {
  return to - from;
}

/** Built when they are read: all texts that repeat entries of a dictionary may together have any number of bytes. */
function repeatedTexts(
  { type, limits: { batchBytes } }: ChunkColumn,
  dictionary: BytesColumn,
  { indices, valid }: { readonly indices: Uint32Array<ArrayBuffer>; readonly valid: Uint8Array | undefined },
): PageRows {
  const { offsets } = dictionary;
  const longest = longestText(offsets);
  return {
    take(from, to) {
      const taking = { indices: indices.subarray(from, to), valid: valid?.subarray(from, to) };
      return repeatRows(type, dictionary, { ...taking, limit: Number.POSITIVE_INFINITY });
    },
    fitting(from, to) {
      if ((to - from) * longest <= batchBytes) {
        return to - from;
      }
      let bytes = 0;
      for (let row = from; row < to; row += 1) {
        const place = indices[row] as number;
        bytes += valid?.[row] === 0 ? 0 : (offsets[place + 1] ?? 0) - (offsets[place] ?? 0);
        if (bytes > batchBytes) {
          return Math.max(1, row - from);
        }
      }
      return to - from;
    },
  };
}

/** Encodings by the numbers of parquet.thrift. */
export const encodings = { plain: 0, plainDictionary: 2, runs: 3, runDictionary: 8 };

/** The limit of rows read at once: 32 columns of so many floats fit several times into a core's second cache. */
export const mostRows = 32 * 1024;

/** The limit of values of a page: a run of few bytes may have any number of them, each of which takes memory here. */
export const pageLimitValues = 2 ** 24;

interface PageParts {
  readonly header: PageHeader;
  readonly dictionary: Column | undefined;
  readonly pageMemory: PageMemory;
}

/** @throws RangeError, as `take` may */
export function pageRows(column: ChunkColumn, bytes: Uint8Array<ArrayBuffer>, parts: PageParts): PageRows {
  const { header, pageMemory } = parts;
  const levels = readLevels(column, bytes, parts);
  pageMemory.moreLevelBytes = levels.at - levelBytesOf(column, header);
  return valueRows(column, bytes, { ...parts, ...levels, rows: header.values });
}

/** The rows of a page whose levels are read already. `rows`: with NULLs. @throws RangeError, as `take` may */
export function valueRows(column: ChunkColumn, bytes: Uint8Array<ArrayBuffer>, parts: PackedParts): PageRows {
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
  column: ChunkColumn,
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
export function levelBytesOf({ isOptional }: ChunkColumn, { kind, values, levelBytes }: PageHeader): number {
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

function readLevels({ isOptional }: ChunkColumn, bytes: Uint8Array, { header, pageMemory }: PageParts): Levels {
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

/** Fills `target` with the file's bytes from `position` on. @throws RangeError where they end before */
export type ReadInto = (target: Uint8Array, position: number) => void;

export interface ColumnOptions {
  readonly read: ReadInto;
  /** For bytes that are packed: of no more use when a page was unpacked. */
  readonly scratch: (size: number) => Uint8Array;
  readonly pageMemory: PageMemory;
}

/** A page of a column chunk. */
export interface PagePlace {
  readonly page: PageHeader;
  /** Where what follows the header begins in the file. */
  readonly at: number;
}

/** Most headers are shorter; statistics make them longer. */
const headerGuessBytes = 256;
const headerLimitBytes = 1024 * 1024;

/** Larger pages are not copied once more. */
const largePageBytes = 4 * 1024 * 1024;

/** @throws RangeError where the page is damaged, or not one that is read here */
export function unpackDictionary(column: ChunkColumn, tools: ColumnOptions, place: PagePlace): Column {
  const { encoding, entries } = place.page;
  if (encoding !== encodings.plain && encoding !== encodings.plainDictionary) {
    throw new RangeError(`a dictionary of encoding ${encoding}`);
  }
  const memory = (size: number): Uint8Array<ArrayBuffer> => tools.pageMemory.memory("dictionary", size);
  const bytes = unpackPage(column, { ...tools, memory }, place);
  return plainValues(column.storage, bytes, { at: 0, count: entries });
}

/** Reads the header at byte `at` of the file. @throws RangeError where it is damaged, or its page is too large */
export function readPageHeader(
  { start, end, storage, unpackedBytes, limits: { pageBytes } }: ChunkColumn,
  { read, scratch }: ColumnOptions,
  at: number,
): PagePlace {
  for (let guess = headerGuessBytes; ; guess *= 16) {
    const bytes = scratch(guess).subarray(0, Math.min(guess, end - at));
    read(bytes, at);
    const cursor: Cursor = { bytes, at: 0 };
    let page: PageHeader;
    try {
      page = parsePageHeader(cursor);
    } catch (error) {
      if (error instanceof RangeError && bytes.length === guess && guess < headerLimitBytes) {
        continue; // it is longer
      }
      throw new RangeError(`the page at byte ${at - start} of the chunk: ${messageOf(error)}`, { cause: error });
    }
    const { compressedBytes, uncompressedBytes } = page;
    const fits = compressedBytes >= 0 && at + cursor.at + compressedBytes <= end;
    const most = Math.min(unpackedBytes, pageBytes, isLookedUp(storage, page) ? pieceLimitBytes : pageBytes);
    if (!fits || uncompressedBytes < 0 || uncompressedBytes > most || compressedBytes > 2 * pageBytes) {
      throw new RangeError(`a page of ${compressedBytes} bytes, ${uncompressedBytes} when unpacked`);
    }
    return { page, at: at + cursor.at };
  }
}

/** Whether loops look up the page's numbers in a dictionary, or it is the dictionary: a larger page is read by DuckDB. */
function isLookedUp({ kind }: ChunkColumn["storage"], page: PageHeader): boolean {
  return kind === "fixed" && (page.kind === "dictionary" || page.encoding !== encodings.plain);
}

interface UnpackOptions extends Pick<ColumnOptions, "read" | "scratch"> {
  /** For so many bytes. */
  readonly memory: (size: number) => Uint8Array<ArrayBuffer>;
}

/** A page as it was before it was packed: levels, then values. @throws RangeError where it is damaged */
export function unpackPage(
  column: ChunkColumn,
  { read, scratch, memory }: UnpackOptions,
  { page, at }: PagePlace,
): Uint8Array<ArrayBuffer> {
  const { codec, storage } = column;
  const { compressedBytes, uncompressedBytes } = page;
  const levels = plainLevelBytes(column, page);
  const isPlain = codec === codecs.none || !page.isCompressed || compressedBytes === levels;
  if (compressedBytes < levels || (isPlain && compressedBytes !== uncompressedBytes)) {
    throw new RangeError(`a page of ${compressedBytes} bytes that is not compressed, ${uncompressedBytes} are due`);
  }
  if (isPlain) {
    const target = memory(uncompressedBytes);
    read(target, at);
    return target;
  }
  const packed = scratch(compressedBytes).subarray(0, compressedBytes);
  read(packed, at);
  if (storage.kind === "bytes" && levels === 0 && uncompressedBytes > largePageBytes && codec !== codecs.snappy) {
    return unpackIntoNew(codec, packed, uncompressedBytes); // where it is unpacked into memory of its own anyhow
  }
  const target = memory(uncompressedBytes);
  target.set(packed.subarray(0, levels));
  unpack(codec, packed.subarray(levels), target.subarray(levels));
  return target;
}

/** Returns the size of the levels before the values that are never packed: those of pages of version 2. */
function plainLevelBytes({ isOptional, list }: ChunkColumn, { kind, levelBytes }: PageHeader): number {
  const { repetition, definition } = levelBytes;
  const isUnknown = (repetition !== 0 && list === undefined) || (definition !== 0 && !isOptional);
  if (repetition < 0 || definition < 0 || isUnknown) {
    throw new RangeError("levels that the schema has not");
  }
  return kind === "data-v2" ? repetition + definition : 0;
}
