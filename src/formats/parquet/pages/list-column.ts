import type { FixedColumn, ListColumn } from "../../../columnar/types.js";
import { allocate } from "../../../columnar/values.js";
import type { ListLevels } from "../footer/leaves.js";
import {
  carry,
  type Carried,
  type Elements,
  elementsInPlace,
  gatheredElements,
  gatheredFrom,
  leadBytes,
  type ListChunk,
} from "./list-elements.js";
import { levelPlaces, type PageLists, readLists } from "./list-levels.js";
import { findListPages, type ListPage } from "./list-pages.js";
import { type ColumnOptions, readHeader, unpackPage } from "./page-reader.js";
import type { ColumnRows } from "./page-rows.js";
import { encodings } from "./page-values.js";
import type { StoredColumn } from "./storage.js";

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

/** Opens the rows of a column chunk of lists. @throws RangeError as `openColumn` */
export function openLists(column: StoredColumn, list: ListLevels, tools: ColumnOptions): ColumnRows {
  let chunk: ListChunk | undefined;
  let page: OpenPage | undefined;
  let next = 0;
  const opened = (): OpenPage => {
    chunk ??= openChunk(column, list, tools);
    while (page === undefined || next === page.rowStart + page.ended) {
      const before: OpenPage | undefined = page;
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
      // The row at the end of a page may continue on the next one.
      page = page !== undefined && next <= page.rowStart + page.ended ? page : undefined;
    },
  };
}

function openChunk(column: StoredColumn, list: ListLevels, tools: ColumnOptions): ListChunk {
  const { type, storage } = column;
  if (typeof type !== "object" || type.kind !== "list" || storage.kind !== "fixed") {
    throw new TypeError("only lists of numbers are read here");
  }
  const pages = findListPages(column, tools);
  const elements = { ...column, type: type.element };
  const carriedMemory = allocate(storage.element, 0);
  return { column: elements, list, tools, ...storage, pages, dictionary: undefined, carriedMemory, levelBytes: 0 };
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
function pageOf(chunk: ListChunk, row: number): OpenPage {
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
function pageAfter(chunk: ListChunk, { index, lists, ended, elements }: OpenPage): OpenPage {
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

function isContinuedAfter({ pages: { pages } }: ListChunk, index: number): boolean {
  return pages[index + 1]?.isContinued === true;
}

/** Whether all of a page is in the middle of a row. */
function isInsideRow(chunk: ListChunk, index: number): boolean {
  const { pages } = chunk.pages;
  return pages[index]?.rowStart === pages[index]?.rowEnd && isContinuedAfter(chunk, index);
}

/** @param carried elements of the page's first row; undefined: that row is not read if it begins before the page */
function openPage(chunk: ListChunk, index: number, carried: Carried | undefined): OpenPage {
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
