/** Reads the header of a page, and the page as it was before it was packed. */
import type { Column } from "../../../columnar/types.js";
import { pieceLimitBytes } from "../../../columnar/memory/vectors.js";
import { messageOf } from "../../../util/errors.js";
import type { Cursor } from "../../../util/thrift.js";
import { codecs, unpack, unpackIntoNew } from "./codecs.js";
import { type PageHeader, parsePageHeader } from "./page-header.js";
import type { PageMemory } from "./page-memory.js";
import { encodings } from "./page-values.js";
import type { StoredColumn } from "./storage.js";
import { plainValues } from "./values.js";

/** Fills `target` with the file's bytes from `position` on. @throws RangeError where they end before */
export type ReadBytes = (target: Uint8Array, position: number) => void;

export interface ColumnOptions {
  readonly read: ReadBytes;
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
export function unpackDictionary(column: StoredColumn, tools: ColumnOptions, place: PagePlace): Column {
  const { encoding, entries } = place.page;
  if (encoding !== encodings.plain && encoding !== encodings.plainDictionary) {
    throw new RangeError(`a dictionary of encoding ${encoding}`);
  }
  const memory = (size: number): Uint8Array<ArrayBuffer> => tools.pageMemory.memory("dictionary", size);
  const bytes = unpackPage(column, { ...tools, memory }, place);
  return plainValues(column.storage, bytes, { at: 0, count: entries });
}

/** Reads the header at byte `at` of the file. @throws RangeError where it is damaged, or its page is too large */
export function readHeader(
  { start, end, storage, unpackedBytes, limits: { pageBytes } }: StoredColumn,
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
function isLookedUp({ kind }: StoredColumn["storage"], page: PageHeader): boolean {
  return kind === "fixed" && (page.kind === "dictionary" || page.encoding !== encodings.plain);
}

export interface UnpackOptions extends Pick<ColumnOptions, "read" | "scratch"> {
  /** For so many bytes. */
  readonly memory: (size: number) => Uint8Array<ArrayBuffer>;
}

/** A page as it was before it was packed: levels, then values. @throws RangeError where it is damaged */
export function unpackPage(
  column: StoredColumn,
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
function plainLevelBytes({ isOptional, list }: StoredColumn, { kind, levelBytes }: PageHeader): number {
  const { repetition, definition } = levelBytes;
  const isUnknown = (repetition !== 0 && list === undefined) || (definition !== 0 && !isOptional);
  if (repetition < 0 || definition < 0 || isUnknown) {
    throw new RangeError("levels that the schema has not");
  }
  return kind === "data-v2" ? repetition + definition : 0;
}
