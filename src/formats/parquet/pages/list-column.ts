import type { FixedColumn, ListColumn } from "../../../columnar/types.js";
import {
  allocate,
  bytesPerElement,
  copyValues,
  type ElementType,
  type Values,
  viewOf,
} from "../../../columnar/values.js";
import type { ListLevels } from "../footer/leaves.js";
import type { ColumnRows } from "./column.js";
import { levelPlaces, type PageLists, readLists } from "./list-levels.js";
import { findListPages, type ListPage, type ListPages } from "./list-pages.js";
import type { PageHeader } from "./page-header.js";
import { type ColumnOptions, readHeader, unpackDictionary, unpackPage } from "./page-reader.js";
import { encodings, mostRows, valueRows } from "./page-values.js";
import type { StoredColumn } from "./storage.js";
import { plainValues } from "./values.js";

/** The limit of elements that are gathered for rows which are read at once; a longer row is gathered as a whole. */
const gatheredElements = 256 * 1024;
/** The size of the largest elements. */
const alignment = 8;

/** A column chunk of lists, which is read. */
interface Chunk {
  readonly column: StoredColumn;
  readonly list: ListLevels;
  readonly tools: ColumnOptions;
  readonly stored: ElementType;
  readonly element: ElementType;
  readonly pages: ListPages;
  dictionary: FixedColumn | undefined;
  /** Memory for elements that are carried, which is used again. */
  room: Values;
  /** How many bytes of levels the page before had: the next one has mostly as many. */
  levelBytes: number;
}

/** A page, of which rows are read. */
interface OpenPage {
  /** Its place among the pages. */
  readonly index: number;
  /** The row of the row group that its first row is; that may begin before the page. */
  readonly rowStart: number;
  readonly lists: PageLists;
  /** The number of rows that end in the page. */
  readonly ended: number;
  readonly elements: Elements;
}

/** Elements of a page, with those that were carried in front. */
interface Elements {
  /** All of them; undefined: they are gathered when they are read. */
  readonly all: Values | undefined;
  /** Elements [from, to), behind those of the last call. They are valid until the next call. */
  take(from: number, to: number): FixedColumn;
}

/** Elements of a row that goes on in the next page, in memory that is used again for the next such row. */
interface Carried {
  readonly data: Values;
  readonly valid: Uint8Array | undefined;
  readonly count: number;
}

/** Opens the rows of a column chunk of lists. @throws RangeError as `openColumn` */
export function openLists(column: StoredColumn, list: ListLevels, tools: ColumnOptions): ColumnRows {
  let chunk: Chunk | undefined;
  let page: OpenPage | undefined;
  let next = 0;
  const opened = (): OpenPage => {
    chunk ??= openChunk(column, list, tools);
    if (page === undefined || next === page.rowStart + page.ended) {
      const before = page;
      page = undefined; // until the next one is open
      page = before === undefined ? pageOf(chunk, next) : pageAfter(chunk, before);
    }
    return page;
  };
  return {
    ahead() {
      const { rowStart, ended, lists, elements } = opened();
      return elements.all === undefined ? gathered(lists.offsets, next - rowStart, ended) : ended - (next - rowStart);
    },
    take(rows) {
      const open = opened();
      const from = next - open.rowStart;
      next += rows;
      return takeLists(open, from, from + rows);
    },
    skip(rows) {
      next += rows;
      // The row at the end of a page may need what the page has of it.
      page = page !== undefined && next <= page.rowStart + page.ended ? page : undefined;
    },
  };
}

function openChunk(column: StoredColumn, list: ListLevels, tools: ColumnOptions): Chunk {
  const { type, storage } = column;
  if (typeof type !== "object" || type.kind !== "list" || storage.kind !== "fixed") {
    throw new TypeError("only lists of numbers are read here");
  }
  const pages = findListPages(column, tools);
  const elements = { ...column, type: type.element };
  const room = allocate(storage.element, 0);
  return { column: elements, list, tools, ...storage, pages, dictionary: undefined, room, levelBytes: 0 };
}

/** How many of rows [from, to) are gathered at once. */
function gathered(offsets: Uint32Array, from: number, to: number): number {
  const most = (offsets[from] as number) + gatheredElements;
  let end = from + 1;
  while (end < to && (offsets[end + 1] as number) <= most) {
    end += 1;
  }
  return end - from;
}

function takeLists({ lists, elements }: OpenPage, from: number, to: number): ListColumn {
  const valid = lists.valid?.subarray(from, to);
  const offsets = lists.offsets.subarray(from, to + 1);
  if (elements.all !== undefined) {
    const child: FixedColumn = { kind: "fixed", elementsPerValue: 1, data: elements.all, valid: undefined };
    return { kind: "list", offsets, child, valid };
  }
  const [start = 0, end = 0] = [offsets[0], offsets.at(-1)];
  return { kind: "list", offsets: offsets.map((offset) => offset - start), child: elements.take(start, end), valid };
}

/** The page in which a row begins. */
function pageOf(chunk: Chunk, row: number): OpenPage {
  const { pages } = chunk.pages;
  let [low, high] = [0, pages.length];
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((pages[middle] as ListPage).rowEnd > row) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  const page = openPage(chunk, low, undefined);
  return row < page.rowStart + page.ended ? page : pageAfter(chunk, page);
}

/** The next page in which a row ends, with what the pages before it have of that row. */
function pageAfter(chunk: Chunk, { index, lists, ended, elements }: OpenPage): OpenPage {
  const { offsets } = lists;
  let carried = isContinuedAfter(chunk, index)
    ? carry(chunk, undefined, elements.take(offsets[ended] as number, offsets[ended + 1] as number))
    : undefined;
  for (let at = index + 1; ; at += 1) {
    if (carried?.count === 0) {
      throw new RangeError("a list without elements goes on in the next page");
    }
    const isInside = carried !== undefined && isInsideRow(chunk, at);
    const page = openPage(chunk, at, isInside ? undefined : carried);
    if (!isInside) {
      return page;
    }
    carried = carry(chunk, carried, page.elements.take(0, page.lists.offsets[1] as number));
  }
}

function isContinuedAfter({ pages: { pages } }: Chunk, index: number): boolean {
  return pages[index + 1]?.isContinued === true;
}

/** Whether all of a page is in the middle of a row. */
function isInsideRow(chunk: Chunk, index: number): boolean {
  const { pages } = chunk.pages;
  return pages[index]?.rowStart === pages[index]?.rowEnd && isContinuedAfter(chunk, index);
}

/** Adds elements to those of the pages before. @throws RangeError where there is no memory for the row */
function carry(chunk: Chunk, before: Carried | undefined, { data, valid }: FixedColumn): Carried {
  const { element } = chunk;
  const held = before?.count ?? 0;
  const count = held + data.length;
  requireMemory(chunk, count);
  const all = chunk.room.length >= count ? chunk.room : allocate(element, Math.max(count, 2 * chunk.room.length));
  if (before !== undefined && all !== chunk.room) {
    copyValues(all, 0, before.data, 0, held);
  }
  chunk.room = all;
  copyValues(all, held, data, 0, data.length);
  if (before?.valid === undefined && valid === undefined) {
    return { data: all, valid: undefined, count };
  }
  const marks = new Uint8Array(count).fill(1);
  marks.set(before?.valid ?? []);
  marks.set(valid ?? [], held);
  return { data: all, valid: marks, count };
}

/** @throws RangeError where so many elements would take more memory than a page may */
function requireMemory({ element, column: { limits } }: Chunk, count: number): void {
  if (count * bytesPerElement(element) > Math.max(limits.pageBytes, gatheredElements * alignment)) {
    throw new RangeError(`${count} elements of lists at once`);
  }
}

/** @param carried elements of the page's first row; undefined: nobody reads that row if it begins before the page */
function openPage(chunk: Chunk, index: number, carried: Carried | undefined): OpenPage {
  const { column, tools, list } = chunk;
  const place = chunk.pages.pages[index];
  if (place === undefined) {
    throw new RangeError("rows behind the last page");
  }
  const { pageMemory } = tools;
  const header = readHeader(column, tools, place.start);
  const { values, encoding, uncompressedBytes } = header.page;
  const lead = leadBytes(chunk, carried);
  const memory = pageMemory.memory("page", lead + uncompressedBytes);
  const bytes = unpackPage(column, { ...tools, memory: () => memory.subarray(lead) }, header);
  const places = levelPlaces(header.page, bytes);
  chunk.levelBytes = places.valuesAt;
  const { rowStart, rowEnd, isContinued } = place;
  const count = carried?.count ?? 0;
  const request = { places, list, values, begun: rowEnd - rowStart, isContinued, carried: count, pageMemory };
  const lists = readLists(bytes, request);
  const rows = lists.offsets.length - 1;
  const isPlain = encoding === encodings.plain && chunk.stored === chunk.element;
  const isInPlace = isPlain && lists.elements.valid === undefined && carried?.valid === undefined;
  const page = { header: header.page, valuesAt: places.valuesAt, lists, carried };
  return {
    index,
    rowStart: rowStart - (isContinued ? 1 : 0),
    lists,
    ended: rows - (isContinuedAfter(chunk, index) ? 1 : 0),
    elements: isInPlace ? elementsInPlace(chunk, memory, lead, page) : gatheredFrom(chunk, bytes, page),
  };
}

/** The size of the carried elements, and what aligns the values if this page has as many levels as the one before. */
function leadBytes({ element, levelBytes }: Chunk, carried: Carried | undefined): number {
  const lead = alignment + (carried?.count ?? 0) * bytesPerElement(element);
  return lead + (-(lead + levelBytes) & (alignment - 1));
}

interface PageElements {
  readonly header: PageHeader;
  readonly valuesAt: number;
  readonly lists: PageLists;
  readonly carried: Carried | undefined;
}

/**
 * Elements where the page was unpacked. Those that were carried are put before them, over the levels and the memory
 * before these, which are `lead` bytes.
 */
function elementsInPlace(
  { column, element }: Chunk,
  memory: Uint8Array<ArrayBuffer>,
  lead: number,
  { valuesAt, lists, carried }: PageElements,
): Elements {
  const start = lead + valuesAt;
  const at = start - ((memory.byteOffset + start) % bytesPerElement(element));
  if (at < start) {
    memory.copyWithin(at, start);
  }
  const bytes = memory.subarray(0, memory.length - (start - at));
  plainValues(column.storage, bytes, { at, count: lists.elements.count });
  const count = carried?.count ?? 0;
  const from = memory.byteOffset + at - count * bytesPerElement(element);
  const all = viewOf(element, memory.buffer, from, count + lists.elements.count);
  if (carried !== undefined) {
    copyValues(all, 0, carried.data, 0, count);
  }
  return {
    all,
    take: (first, last) => ({ kind: "fixed", elementsPerValue: 1, data: all.subarray(first, last), valid: undefined }),
  };
}

/** Elements of a dictionary, with NULLs among them, or stored with more bits. */
function gatheredFrom(
  chunk: Chunk,
  bytes: Uint8Array<ArrayBuffer>,
  { header, valuesAt, lists, carried }: PageElements,
): Elements {
  const { column, element, tools } = chunk;
  const { pageMemory } = tools;
  const parts = { header, dictionary: dictionaryOf(chunk), pageMemory, at: valuesAt, ...lists.elements };
  const values = valueRows(column, bytes, parts);
  const count = carried?.count ?? 0;
  return {
    all: undefined,
    take(from, to) {
      requireMemory(chunk, to - from);
      const { buffer, byteOffset } = pageMemory.memory("lists", Math.max(1, to - from) * bytesPerElement(element));
      const data = viewOf(element, buffer, byteOffset, to - from);
      const marks = new Uint8Array(to - from).fill(1);
      let hasNulls = false;
      const put = (at: number, part: Pick<FixedColumn, "data" | "valid">, length: number): void => {
        copyValues(data, at - from, part.data, 0, length);
        marks.set(part.valid?.subarray(0, length) ?? [], at - from);
        hasNulls ||= part.valid !== undefined;
      };
      let at = from;
      if (carried !== undefined && at < count) {
        const own = sliced(carried, from, Math.min(to, count));
        put(at, own, own.data.length);
        at += own.data.length;
      }
      while (at < to) {
        const end = Math.min(to, at + mostRows);
        put(at, values.take(at - count, end - count) as FixedColumn, end - at);
        at = end;
      }
      return { kind: "fixed", elementsPerValue: 1, data, valid: hasNulls ? marks : undefined };
    },
  };
}

function sliced({ data, valid }: Carried, from: number, to: number): Pick<FixedColumn, "data" | "valid"> {
  return { data: data.subarray(from, to), valid: valid?.subarray(from, to) };
}

function dictionaryOf(chunk: Chunk): FixedColumn | undefined {
  const { column, tools, pages } = chunk;
  chunk.dictionary ??=
    pages.dictionary === undefined ? undefined : (unpackDictionary(column, tools, pages.dictionary) as FixedColumn);
  return chunk.dictionary;
}
