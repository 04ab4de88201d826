import type { Column } from "../../../columnar/types.js";
import { messageOf } from "../../../util/errors.js";
import type { PageMemory } from "./page-memory.js";
import { codecs, unpack, unpackIntoNew } from "./codecs.js";
import { type PageHeader, parsePageHeader } from "./page-header.js";
import { encodings, levelBytesOf, mostRows, type PageRows, pageRows } from "./page-values.js";
import type { StoredColumn } from "./storage.js";
import { plainValues } from "./values.js";
import type { Cursor } from "../../../util/thrift.js";

/** Fills `target` with the file's bytes from `position` on. @throws RangeError where they end before */
export type ReadBytes = (target: Uint8Array, position: number) => void;

/** Rows of a column, in order. */
export interface ColumnRows {
  /**
   * Returns how many rows can be read at once from the current page; opens the next page if it has none left.
   * @throws RangeError
   */
  ahead(): number;
  /** Reads the next `rows`, at most `ahead()`. They are valid until the next call. */
  take(rows: number): Column;
  /** Skips rows. Pages that are skipped as a whole are not unpacked. */
  skip(rows: number): void;
}

export interface ColumnOptions {
  readonly read: ReadBytes;
  /** For bytes that are packed: of no more use when a page was unpacked. */
  readonly scratch: (size: number) => Uint8Array;
  readonly pageMemory: PageMemory;
}

/** Most headers are shorter; statistics make them longer. */
const headerGuessBytes = 256;
const headerLimitBytes = 1024 * 1024;
/**
 * The limit of values of a page. A run of few bytes may contain any number of values, each of which takes memory here.
 */
const pageLimitValues = 2 ** 24;

/** Larger pages are not copied once more. */
const largePageBytes = 4 * 1024 * 1024;

interface OpenPage {
  readonly values: PageRows;
  readonly rows: number;
  used: number;
}

/** Opens the rows of one column chunk. @throws RangeError where the chunk is damaged or has unexpected contents */
export function openColumn(column: StoredColumn, tools: ColumnOptions): ColumnRows {
  const pages = pagesOf(column, tools);
  let page: OpenPage | undefined;
  const opened = (): OpenPage => {
    page = page === undefined || page.used === page.rows ? pages.unpack(pages.next()) : page;
    return page;
  };
  return {
    ahead() {
      const { rows, used, values } = opened();
      return values.fitting(used, Math.min(rows, used + mostRows));
    },
    take(rows) {
      const open = opened();
      const from = open.used;
      open.used += rows;
      return open.values.take(from, open.used);
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

function pagesOf(column: StoredColumn, tools: ColumnOptions): Pages {
  let at = column.start;
  /** Rows of the pages so far. */
  let counted = 0;
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
        if (kind === "dictionary" && dictionary === undefined && counted === 0) {
          dictionary = unpackDictionary(column, tools, { page: header.page, at });
          pass(header.page);
          continue;
        }
        const left = column.rows - counted;
        const isData = kind === "data" || kind === "data-v2";
        // Were a page without values, or of another kind, passed over, damage to a header could shift rows.
        if (!isData || values <= 0 || values > Math.min(left, pageLimitValues)) {
          throw new RangeError(`a page (${kind}) of ${values} values, ${left} are due`);
        }
        counted += values;
        return header.page;
      }
    },
    unpack(header) {
      const { pageMemory } = tools;
      const lead = -(levelBytesOf(column, header) + pageMemory.moreLevelBytes) & 7; // so that the values are aligned
      const memory = (size: number): Uint8Array<ArrayBuffer> => pageMemory.memory("page", lead + size).subarray(lead);
      const bytes = unpackPage(column, { ...tools, memory }, { page: header, at });
      pass(header);
      const values = pageRows(column, bytes, { header, dictionary, pageMemory });
      return { values, rows: header.values, used: 0 };
    },
    pass,
  };
}

function unpackDictionary(column: StoredColumn, tools: ColumnOptions, place: { page: PageHeader; at: number }): Column {
  const { encoding, entries } = place.page;
  if (encoding !== encodings.plain && encoding !== encodings.plainDictionary) {
    throw new RangeError(`a dictionary of encoding ${encoding}`);
  }
  const memory = (size: number): Uint8Array<ArrayBuffer> => tools.pageMemory.memory("dictionary", size);
  const bytes = unpackPage(column, { ...tools, memory }, place);
  return plainValues(column.storage, bytes, { at: 0, count: entries });
}

function readHeader(
  { start, end, unpackedBytes, limits: { pageBytes } }: StoredColumn,
  { read, scratch }: ColumnOptions,
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
    const most = Math.min(unpackedBytes, pageBytes);
    if (!fits || uncompressedBytes < 0 || uncompressedBytes > most || compressedBytes > 2 * pageBytes) {
      throw new RangeError(`a page of ${compressedBytes} bytes, ${uncompressedBytes} when unpacked`);
    }
    return { page, bytes: cursor.at };
  }
}

interface UnpackOptions extends Pick<ColumnOptions, "read" | "scratch"> {
  /** For so many bytes. */
  readonly memory: (size: number) => Uint8Array<ArrayBuffer>;
}

/** A page as it was before it was packed: levels, then values. */
function unpackPage(
  { codec, isOptional, storage }: StoredColumn,
  { read, scratch, memory }: UnpackOptions,
  { page, at }: { page: PageHeader; at: number },
): Uint8Array<ArrayBuffer> {
  const { compressedBytes, uncompressedBytes, kind, levelBytes, isCompressed } = page;
  const levels = kind === "data-v2" ? levelBytes.definition : 0;
  if (levelBytes.repetition !== 0 || levels < 0 || (levels > 0 && !isOptional)) {
    throw new RangeError("levels that the schema has not");
  }
  const isPlain = codec === codecs.none || !isCompressed || compressedBytes === levels;
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
