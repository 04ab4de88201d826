import type { Column, ColumnType } from "../batch/types.js";
import { messageOf } from "../errors.js";
import { sliceColumn } from "./column-rows.js";
import { takeRows } from "./column-take.js";
import { codecs, unpack } from "./parquet-codecs.js";
import { type PageHeader, parsePageHeader } from "./parquet-page-header.js";
import { isOneRun, readRuns } from "./parquet-runs.js";
import type { Storage } from "./parquet-storage.js";
import { plainValues } from "./parquet-values.js";
import type { Cursor } from "./thrift.js";

/** A column of a row group, and where it lies. Plain JSON. */
export interface StoredColumn {
  readonly name: string;
  readonly type: ColumnType;
  readonly storage: Storage;
  /** Whether its values have definition levels: it may have NULLs. */
  readonly isOptional: boolean;
  readonly codec: number;
  /** Bytes of the file. */
  readonly start: number;
  readonly end: number;
  /** Of all pages, when unpacked. */
  readonly unpackedBytes: number;
  readonly rows: number;
}

/** Fills `target` with the file's bytes from `position` on. @throws RangeError where they end before */
export type ReadBytes = (target: Uint8Array, position: number) => void;

/** Rows of a column, in order. */
export interface ColumnRows {
  /** Rows up to the end of the page that is open; opens one where there are none. @throws RangeError */
  ahead(): number;
  /** The next `rows`, at most as many as are ahead. They hold until rows of another page are taken. */
  take(rows: number): Column;
  /** Steps over rows; pages that lie there as a whole are not unpacked. */
  skip(rows: number): void;
}

/** Memory that columns are unpacked into, one after the other. */
export interface PageRoom {
  /** Where pages are unpacked to, and how far from its start so that the values are aligned. */
  bytes: Uint8Array<ArrayBuffer>;
  lead: number;
}

export interface ColumnTools {
  readonly read: ReadBytes;
  /** For bytes that are packed: of no more use when a page was unpacked. */
  readonly scratch: (size: number) => Uint8Array;
  readonly room: PageRoom;
}

const encodings = { plain: 0, plainDictionary: 2, runs: 3, runDictionary: 8 };

/** Most headers are shorter; statistics make them longer. */
const headerGuessBytes = 256;
const headerLimitBytes = 1024 * 1024;
/** Of one page, unpacked: what says that it has more is left to DuckDB. */
const pageLimitBytes = 2 ** 28;
/** A run of some bytes may stand for any number of values, each of which takes memory here. */
const pageLimitValues = 2 ** 24;

interface OpenPage {
  readonly values: Column;
  readonly rows: number;
  used: number;
}

/** What lies in pages of one column chunk. Whatever is not as it should be is a RangeError. */
export function openColumn(column: StoredColumn, tools: ColumnTools): ColumnRows {
  const pages = pagesOf(column, tools);
  let page: OpenPage | undefined;
  const opened = (): OpenPage => {
    page = page === undefined || page.used === page.rows ? pages.unpack(pages.next()) : page;
    return page;
  };
  return {
    ahead() {
      const { rows, used } = opened();
      return rows - used;
    },
    take(rows) {
      const open = opened();
      const from = open.used;
      open.used += rows;
      return sliceColumn(open.values, from, open.used);
    },
    skip(rows) {
      let left = rows;
      while (left > 0) {
        if (page === undefined || page.used === page.rows) {
          const header = pages.next();
          if (header.values <= left) {
            pages.pass(header);
            left -= header.values;
            continue;
          }
          page = pages.unpack(header);
        }
        const step = Math.min(left, page.rows - page.used);
        page.used += step;
        left -= step;
      }
    },
  };
}

interface Pages {
  /** The header of the next page with rows, which is then unpacked or passed. Dictionaries before it are kept. */
  next(): PageHeader;
  unpack(header: PageHeader): OpenPage;
  pass(header: PageHeader): void;
}

function pagesOf(column: StoredColumn, tools: ColumnTools): Pages {
  let at = column.start;
  /** Rows of the pages so far. */
  let told = 0;
  let dictionary: Column | undefined;
  const pass = ({ compressedBytes }: PageHeader): void => {
    at += compressedBytes;
  };
  return {
    next() {
      for (;;) {
        const header = readHeader(column, tools, at);
        const { kind, values } = header.page;
        at += header.bytes;
        if (kind === "dictionary" && dictionary === undefined && told === 0) {
          dictionary = unpackDictionary(column, tools, { page: header.page, at });
          pass(header.page);
          continue;
        }
        const left = column.rows - told;
        const isData = kind === "data" || kind === "data-v2";
        // Were a page without values, or of another kind, passed over, damage to a header could shift rows.
        if (!isData || values <= 0 || values > Math.min(left, pageLimitValues)) {
          throw new RangeError(`a page (${kind}) of ${values} values, ${left} are due`);
        }
        told += values;
        return header.page;
      }
    },
    unpack(header) {
      const bytes = unpackPage(column, tools, { page: header, at });
      pass(header);
      const values = pageValues(column, bytes, { header, dictionary, room: tools.room });
      return { values, rows: header.values, used: 0 };
    },
    pass,
  };
}

function unpackDictionary(column: StoredColumn, tools: ColumnTools, place: { page: PageHeader; at: number }): Column {
  const { encoding, entries } = place.page;
  if (encoding !== encodings.plain && encoding !== encodings.plainDictionary) {
    throw new RangeError(`a dictionary of encoding ${encoding}`);
  }
  const values = plainValues(column.storage, unpackPage(column, tools, place), { at: 0, count: entries });
  tools.room.bytes = new Uint8Array(0); // it stays where it is
  return values;
}

function readHeader(
  { start, end, unpackedBytes }: StoredColumn,
  { read, scratch }: ColumnTools,
  at: number,
): { page: PageHeader; bytes: number } {
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
    if (!fits || uncompressedBytes < 0 || uncompressedBytes > Math.min(unpackedBytes, pageLimitBytes)) {
      throw new RangeError(`a page of ${compressedBytes} bytes, ${uncompressedBytes} when unpacked`);
    }
    return { page, bytes: cursor.at };
  }
}

/** A page as it was before it was packed: levels, then values. */
function unpackPage(
  { codec, isOptional }: StoredColumn,
  { read, scratch, room }: ColumnTools,
  { page, at }: { page: PageHeader; at: number },
): Uint8Array<ArrayBuffer> {
  const { compressedBytes, uncompressedBytes, kind, levelBytes, isCompressed } = page;
  const levels = kind === "data-v2" ? levelBytes.definition : 0;
  if (levelBytes.repetition !== 0 || levels < 0 || (levels > 0 && !isOptional)) {
    throw new RangeError("levels that the schema has not");
  }
  const needed = room.lead + uncompressedBytes;
  if (room.bytes.length < needed) {
    room.bytes = new Uint8Array(needed);
  }
  const target = room.bytes.subarray(room.lead, needed);
  const isPlain = codec === codecs.none || !isCompressed || compressedBytes === levels;
  if (compressedBytes < levels || (isPlain && compressedBytes !== uncompressedBytes)) {
    throw new RangeError(`a page of ${compressedBytes} bytes that is not compressed, ${uncompressedBytes} are due`);
  }
  if (isPlain) {
    read(target, at);
    return target;
  }
  const packed = scratch(compressedBytes).subarray(0, compressedBytes);
  read(packed, at);
  target.set(packed.subarray(0, levels));
  unpack(codec, packed.subarray(levels), target.subarray(levels));
  return target;
}

interface PageParts {
  readonly header: PageHeader;
  readonly dictionary: Column | undefined;
  readonly room: PageRoom;
}

function pageValues(column: StoredColumn, bytes: Uint8Array<ArrayBuffer>, parts: PageParts): Column {
  const { header, dictionary, room } = parts;
  const { at, valid } = readLevels(column, bytes, header);
  const rows = header.values;
  const count = valid === undefined ? rows : countOnes(valid);
  const limit = pageLimitBytes;
  if (header.encoding === encodings.plain || (header.encoding === encodings.runs && column.storage.kind === "bits")) {
    room.lead = (8 - (at % 8)) % 8; // the next page's levels take as much, mostly
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
