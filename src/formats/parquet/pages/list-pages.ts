/**
 * Where the pages of a chunk of lists are, and how many rows begin in each. A page may begin in the middle of a row: one of
 * version 2 must not, but some writers make such pages. So the repetition levels of each page are counted. They are counted
 * in the whole chunk before a row is read, because a damaged level would shift all rows behind it.
 */
import { gunzipSync, constants } from "node:zlib";
import { unpackSnappyStart } from "../../codecs/snappy.js";
import { unpackZstdBlocks } from "../../codecs/zstd.js";
import { findZeros } from "../../../columnar/memory/page-loops.js";
import { codecs, unpack } from "./codecs.js";
import { requireRuns } from "./list-levels.js";
import { reachable } from "./page-memory.js";
import { type ColumnOptions, type PagePlace, readHeader } from "./page-reader.js";
import { pageLimitValues } from "./page-values.js";
import { firstBit } from "./runs.js";
import type { StoredColumn } from "./storage.js";

export interface ListPage {
  /** The page's first byte. */
  readonly start: number;
  /** Rows [rowStart, rowEnd) of the row group begin in the page. */
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Whether it begins with elements of a row that begins before it. */
  readonly isContinued: boolean;
}

export interface ListPages {
  readonly dictionary: PagePlace | undefined;
  readonly pages: readonly ListPage[];
}

/** More pages than any writer makes: each takes memory here. */
const mostPages = 2 ** 18;

/** @throws RangeError where pages do not have the values and rows that the footer states */
export function findListPages(column: StoredColumn, tools: ColumnOptions): ListPages {
  const { rows, values } = column;
  const pages: ListPage[] = [];
  let dictionary: PagePlace | undefined;
  let rowStart = 0;
  let start = column.start;
  for (let counted = 0; counted < values; ) {
    const place = readHeader(column, tools, start);
    const { page } = place;
    if (page.kind === "dictionary" && dictionary === undefined && pages.length === 0) {
      dictionary = place;
    } else {
      const isData = page.kind === "data" || page.kind === "data-v2";
      if (!isData || page.values <= 0 || page.values > values - counted || pages.length === mostPages) {
        throw new RangeError(`a page (${page.kind}) of ${page.values} values, ${values - counted} are due`);
      }
      const { first, zeros } = rowsBegun(column, tools, place);
      const rowEnd = rowStart + zeros;
      if ((first !== 0 && pages.length === 0) || rowEnd > rows || zeros > pageLimitValues) {
        throw new RangeError(`a page that begins ${zeros} rows with level ${first}, ${rows - rowStart} are due`);
      }
      pages.push({ start, rowStart, rowEnd, isContinued: first !== 0 });
      rowStart = rowEnd;
      counted += page.values;
    }
    start = place.at + page.compressedBytes;
  }
  if (rowStart !== rows) {
    throw new RangeError(`levels that begin ${rowStart} rows, ${rows} are due`);
  }
  return { dictionary, pages };
}

/** The first repetition level of a page, and how many are 0. */
function rowsBegun(
  column: StoredColumn,
  tools: ColumnOptions,
  place: PagePlace,
): { readonly first: number; readonly zeros: number } {
  const { page } = place;
  if (page.kind === "data-v2") {
    const { repetition } = page.levelBytes;
    const levels = packedStart(tools, place, repetition); // never packed
    return countBegun(levels, { at: 0, end: repetition }, page.values, tools);
  }
  requireRuns(page);
  let bytes = unpackStartNow(column, tools, place, Math.min(guessBytes, page.uncompressedBytes));
  const at = Uint32Array.BYTES_PER_ELEMENT;
  const end = at + new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true);
  if (end > bytes.length) {
    bytes = unpackStartNow(column, tools, place, end);
  }
  return countBegun(bytes, { at, end }, page.values, tools);
}

function countBegun(
  bytes: Uint8Array,
  place: { readonly at: number; readonly end: number },
  values: number,
  { pageMemory }: ColumnOptions,
): { readonly first: number; readonly zeros: number } {
  return { first: firstBit(bytes, place), zeros: findZeros(reachable(bytes, place, pageMemory), undefined, values) };
}

/** Reads the first `length` bytes of a page as they are stored. @throws RangeError where the page has fewer */
function packedStart(
  { read, scratch }: ColumnOptions,
  { page: { compressedBytes }, at }: PagePlace,
  length: number,
): Uint8Array {
  if (length < 0 || length > compressedBytes) {
    throw new RangeError(`${length} bytes of levels in a page of ${compressedBytes}`);
  }
  const some = scratch(length).subarray(0, length);
  read(some, at);
  return some;
}

/** Most pages of a MiB have fewer bytes of repetition levels. */
const guessBytes = 4 * 1024;
/** What is read behind packed bytes: Snappy's literals, of up to 64 KiB, and blocks of zstd are not divided. */
const slackBytes = 72 * 1024;
const zstdSlackBytes = 136 * 1024;

/**
 * Returns the first `length` bytes of a page of version 1; what comes after them stays packed, where the codec allows.
 * @throws RangeError where they are not there
 */
function unpackStartNow(column: StoredColumn, tools: ColumnOptions, place: PagePlace, length: number): Uint8Array {
  const { pageMemory } = tools;
  const { compressedBytes, uncompressedBytes } = place.page;
  if (length > uncompressedBytes || (column.codec === codecs.none && compressedBytes !== uncompressedBytes)) {
    throw new RangeError(`${length} bytes of levels in a page of ${compressedBytes}, ${uncompressedBytes} unpacked`);
  }
  const packed = (bytes: number): Uint8Array => packedStart(tools, place, bytes);
  const enough = Math.min(compressedBytes, length + (column.codec === codecs.zstd ? zstdSlackBytes : slackBytes));
  switch (column.codec) {
    case codecs.none:
      return packed(length);
    case codecs.snappy:
      return snappyStart(packed, { enough, compressedBytes }, pageMemory.memory("levels", length), uncompressedBytes);
    default: {
      const unpackSome = column.codec === codecs.zstd ? unpackZstdBlocks : gzipStart;
      const found = unpackSome(packed(enough), uncompressedBytes);
      if (found.length >= length) {
        return found;
      }
    }
  }
  const target = pageMemory.memory("page", uncompressedBytes);
  unpack(column.codec, packed(compressedBytes), target);
  return target.subarray(0, length);
}

function snappyStart(
  packed: (bytes: number) => Uint8Array,
  { enough, compressedBytes }: { readonly enough: number; readonly compressedBytes: number },
  target: Uint8Array,
  uncompressedBytes: number,
): Uint8Array {
  try {
    unpackSnappyStart(packed(enough), target, uncompressedBytes);
  } catch (error) {
    if (!(error instanceof RangeError) || enough === compressedBytes) {
      throw error;
    }
    unpackSnappyStart(packed(compressedBytes), target, uncompressedBytes); // a literal ends behind the first bytes
  }
  return target;
}

/** What the first bytes of a gzip page are when they are unpacked; none where they cannot be. */
function gzipStart(packed: Uint8Array, most: number): Uint8Array {
  try {
    return gunzipSync(packed, { finishFlush: constants.Z_SYNC_FLUSH, maxOutputLength: Math.max(1, most) });
  } catch {
    return new Uint8Array(0); // when the page is unpacked as a whole, what is wrong with it is reported
  }
}
