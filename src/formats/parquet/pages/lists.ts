import { findZeros } from "../../../columns/loops/page-loops.js";
import { codecs, unpackStart, type PageHeader } from "./page-header.js";
import { reachable, type PageMemory } from "./page-memory.js";
import {
  type ColumnOptions,
  type PagePlace,
  readPageHeader,
  pageLimitValues,
  encodings,
  prefixed,
  unpackDictionary,
  mostRows,
  valueRows,
  plainValues,
  unpackPage,
  type ColumnRows,
} from "./page-values.js";
import { firstBit, isOneRun, readRuns } from "./runs.js";
import type { ChunkColumn } from "./storage.js";
import type { ListLevels } from "../footer.js";
import type { FixedColumn, ListColumn } from "../../../columns/types.js";
import {
  allocate,
  bytesPerElement,
  copyValues,
  type ElementType,
  type Values,
  viewOf,
} from "../../../columns/values.js";

/**
 * Where the pages of a chunk of lists are, and how many rows begin in each. A page may begin in the middle of a row: one of
 * version 2 must not, but some writers make such pages. So the repetition levels of each page are counted. They are counted
 * in the whole chunk before a row is read, because a damaged level would shift all rows behind it.
 */

interface ListPage {
  /** The page's first byte. */
  readonly start: number;
  /** Rows [rowStart, rowEnd) of the row group begin in the page. */
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Whether it begins with elements of a row that begins before it. */
  readonly isContinued: boolean;
}

interface ListPages {
  readonly dictionary: PagePlace | undefined;
  readonly pages: readonly ListPage[];
}

/** More pages than any writer makes: each takes memory here. */
const mostPages = 2 ** 18;

/** @throws RangeError where pages do not have the values and rows that the footer states */
function findListPages(column: ChunkColumn, tools: ColumnOptions): ListPages {
  const { rows, values } = column;
  const pages: ListPage[] = [];
  let dictionary: PagePlace | undefined;
  let rowStart = 0;
  let start = column.start;
  for (let counted = 0; counted < values; ) {
    const place = readPageHeader(column, tools, start);
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
  column: ChunkColumn,
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
  let bytes = firstBytes(column, tools, place, Math.min(guessBytes, page.uncompressedBytes));
  const at = Uint32Array.BYTES_PER_ELEMENT;
  const end = at + new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength).getUint32(0, true);
  if (end > bytes.length) {
    bytes = firstBytes(column, tools, place, end);
  }
  return countBegun(bytes, { at, end }, page.values, tools);
}

/** Returns the first `length` bytes of a page of version 1, or more. @throws RangeError where they are not there */
function firstBytes({ codec }: ChunkColumn, tools: ColumnOptions, place: PagePlace, length: number): Uint8Array {
  const { compressedBytes, uncompressedBytes } = place.page;
  if (codec === codecs.none && compressedBytes !== uncompressedBytes) {
    throw new RangeError(`a page of ${compressedBytes} bytes, ${uncompressedBytes} unpacked`);
  }
  const page = { start: (bytes: number) => packedStart(tools, place, bytes), compressedBytes, uncompressedBytes };
  return unpackStart(codec, page, length, tools.pageMemory.memory("levels", length));
}

function countBegun(
  bytes: Uint8Array,
  place: { readonly at: number; readonly end: number },
  values: number,
  { pageMemory }: ColumnOptions,
): { readonly first: number; readonly zeros: number } {
  return { first: firstBit(bytes, place), zeros: findZeros(reachable(bytes, place, pageMemory), undefined, values) };
}

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
/**
 * Rows of lists by the levels before the values of a page. A repetition level of 0 begins a row. A definition level
 * says what there is: NULL (0, where the list is optional), a list without elements, an element that is NULL (where
 * elements are optional), or an element. https://parquet.apache.org/docs/file-format/nestedencoding/
 */

interface BytePlace {
  readonly at: number;
  readonly end: number;
}

interface LevelPlaces {
  readonly repetition: BytePlace;
  readonly definition: BytePlace;
  readonly valuesAt: number;
}

function levelPlaces(header: PageHeader, bytes: Uint8Array): LevelPlaces {
  const { kind, levelBytes } = header;
  let repetition = { at: 0, end: levelBytes.repetition };
  let definition = { at: repetition.end, end: repetition.end + levelBytes.definition };
  if (kind === "data") {
    requireRuns(header);
    repetition = prefixed(bytes, 0);
    definition = prefixed(bytes, repetition.end);
  }
  if (definition.end > bytes.length) {
    throw new RangeError("levels end in the middle");
  }
  return { repetition, definition, valuesAt: definition.end };
}

/** @throws RangeError where the levels of a page of version 1 are in an encoding that is out of use */
function requireRuns({ repetitionEncoding, levelEncoding }: PageHeader): void {
  if (repetitionEncoding !== encodings.runs || levelEncoding !== encodings.runs) {
    throw new RangeError(`levels of encodings ${repetitionEncoding} and ${levelEncoding}`);
  }
}

interface ListsRequest {
  readonly places: LevelPlaces;
  readonly list: ListLevels;
  /** The number of levels of either kind. */
  readonly values: number;
  /** The number of rows that begin in the page. */
  readonly begun: number;
  /** Whether the page begins with elements of a row that begins in a page before it. */
  readonly isContinued: boolean;
  /** The number of that row's elements that are in pages before it, and are read. */
  readonly carried: number;
  readonly pageMemory: PageMemory;
}

/** The rows of a page. The first one may begin before it, the last one may go on behind it. */
interface PageLists {
  /** Row i is elements [offsets[i], offsets[i + 1]), of which carried ones are the first. */
  readonly offsets: Uint32Array;
  /** Which lists are not NULL; undefined: all. */
  readonly valid: Uint8Array | undefined;
  readonly elements: {
    readonly rows: number;
    /** Which are not NULL; undefined: all. Holds until levels are read into the same memory again. */
    readonly valid: Uint8Array | undefined;
    /** How many are not NULL: values of the page. */
    readonly count: number;
  };
}

/**
 * @throws RangeError where levels contradict each other, the page's header or the request
 * @public so that tests see it
 */
export function readLists(bytes: Uint8Array, request: ListsRequest): PageLists {
  const { places, list, values, begun, isContinued, carried, pageMemory } = request;
  const { buffer, byteOffset } = pageMemory.memory("starts", Math.max(1, begun) * Uint32Array.BYTES_PER_ELEMENT);
  const starts = new Uint32Array(buffer, byteOffset, begun);
  findZeros(reachable(bytes, places.repetition, pageMemory), starts, values);
  if ((starts[0] === 0) === isContinued) {
    throw new RangeError(isContinued ? "a row that goes on begins" : "a page begins inside a row");
  }
  const highest = 1 + (list.isOptional ? 1 : 0) + (list.isElementOptional ? 1 : 0);
  const lead = isContinued ? 1 : 0;
  const offsets = new Uint32Array(lead + begun + 1);
  if (isOneRun(bytes, { ...places.definition, value: highest }, values)) {
    for (let row = 0; row < begun; row += 1) {
      offsets[lead + row] = carried + (starts[row] as number);
    }
    offsets[lead + begun] = carried + values;
    return { offsets, valid: undefined, elements: { rows: values, valid: undefined, count: values } };
  }
  if (values > pageLimitValues) {
    throw new RangeError(`a page of ${values} values`);
  }
  // Not each level stands for an element with a value.
  const empty = list.isOptional ? 1 : 0;
  const levels = pageMemory.memory("levels", values);
  readRuns(bytes, { ...places.definition, width: 32 - Math.clz32(highest) }, levels, values);
  const valid = new Uint8Array(lead + begun).fill(1);
  const present = pageMemory.memory("valid", values);
  let [rows, count, nulls] = [0, 0, 0];
  for (let row = 0; row < valid.length; row += 1) {
    const from = row < lead ? 0 : (starts[row - lead] as number);
    const to = starts[row - lead + 1] ?? values;
    if (to === from + 1 && row >= lead && (levels[from] as number) <= empty) {
      valid[row] = levels[from] === empty ? 1 : 0;
      nulls += levels[from] === empty ? 0 : 1;
    } else {
      for (let at = from; at < to; at += 1) {
        const level = levels[at] as number;
        if (level <= empty || level > highest) {
          throw new RangeError(`the level ${level} for an element`);
        }
        const isPresent = level === highest ? 1 : 0;
        present[rows] = isPresent;
        count += isPresent;
        rows += 1;
      }
    }
    offsets[row + 1] = carried + rows;
  }
  return {
    offsets,
    valid: nulls === 0 ? undefined : valid,
    elements: { rows, valid: count === rows ? undefined : present.subarray(0, rows), count },
  };
}

/** The limit of elements that are gathered for rows which are read at once; a longer row is gathered as a whole. */
const gatheredElements = 256 * 1024;
/** The size of the largest elements. */
const alignment = 8;

interface ListChunk {
  readonly column: ChunkColumn;
  readonly list: ListLevels;
  readonly tools: ColumnOptions;
  readonly stored: ElementType;
  readonly element: ElementType;
  readonly pages: ListPages;
  dictionary: FixedColumn | undefined;
  /** Memory for elements that are carried, which is used again. */
  carriedMemory: Values;
  /** How many bytes of levels the page before had: the next one has mostly as many. */
  levelBytes: number;
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

function carry(chunk: ListChunk, before: Carried | undefined, { data, valid }: FixedColumn): Carried {
  const { element } = chunk;
  const held = before?.count ?? 0;
  const count = held + data.length;
  requireMemory(chunk, count);
  const all =
    chunk.carriedMemory.length >= count
      ? chunk.carriedMemory
      : allocate(element, Math.max(count, 2 * chunk.carriedMemory.length));
  if (before !== undefined && all !== chunk.carriedMemory) {
    copyValues(all, 0, before.data, 0, held);
  }
  chunk.carriedMemory = all;
  copyValues(all, held, data, 0, data.length);
  if (before?.valid === undefined && valid === undefined) {
    return { data: all, valid: undefined, count };
  }
  const marks = new Uint8Array(count).fill(1);
  marks.set(before?.valid ?? []);
  marks.set(valid ?? [], held);
  return { data: all, valid: marks, count };
}

function requireMemory({ element, column: { limits } }: ListChunk, count: number): void {
  if (count * bytesPerElement(element) > Math.max(limits.pageBytes, gatheredElements * alignment)) {
    throw new RangeError(`${count} elements of lists at once`);
  }
}

/** The size of the carried elements, and what aligns the values if this page has as many levels as the one before. */
function leadBytes({ element, levelBytes }: ListChunk, carried: Carried | undefined): number {
  const lead = alignment + (carried?.count ?? 0) * bytesPerElement(element);
  return lead + (-(lead + levelBytes) & (alignment - 1));
}

interface PageElements {
  readonly header: PageHeader;
  readonly valuesAt: number;
  readonly lists: PageLists;
  readonly carried: Carried | undefined;
}

/** Carried elements are put before the page's, over the levels and the memory before these, which are `lead` bytes. */
function elementsInPlace(
  { column, element }: ListChunk,
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
  chunk: ListChunk,
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

function dictionaryOf(chunk: ListChunk): FixedColumn | undefined {
  const { column, tools, pages } = chunk;
  chunk.dictionary ??=
    pages.dictionary === undefined ? undefined : (unpackDictionary(column, tools, pages.dictionary) as FixedColumn);
  return chunk.dictionary;
}

interface OpenPage {
  readonly index: number;
  /** The row of the row group that its first row is; that may begin before the page. */
  readonly rowStart: number;
  readonly lists: PageLists;
  /** The number of rows that end in the page. */
  readonly ended: number;
  readonly elements: Elements;
}

/** Opens the rows of a column chunk of lists. @throws RangeError as `openColumn` */
export function openLists(column: ChunkColumn, list: ListLevels, tools: ColumnOptions): ColumnRows {
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

function openChunk(column: ChunkColumn, list: ListLevels, tools: ColumnOptions): ListChunk {
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
  const header = readPageHeader(column, tools, place.start);
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
