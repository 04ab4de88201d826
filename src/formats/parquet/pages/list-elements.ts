/** Elements of the lists of a page. */
import type { FixedColumn } from "../../../columnar/types.js";
import {
  allocate,
  bytesPerElement,
  copyValues,
  type ElementType,
  type Values,
  viewOf,
} from "../../../columnar/values.js";
import type { ListLevels } from "../footer/leaves.js";
import type { PageLists } from "./list-levels.js";
import type { ListPages } from "./list-pages.js";
import type { PageHeader } from "./page-header.js";
import { type ColumnOptions, unpackDictionary } from "./page-reader.js";
import { mostRows, valueRows } from "./page-values.js";
import type { StoredColumn } from "./storage.js";
import { plainValues } from "./values.js";

/** The limit of elements that are gathered for rows which are read at once; a longer row is gathered as a whole. */
export const gatheredElements = 256 * 1024;
/** The size of the largest elements. */
const alignment = 8;

/** A column chunk of lists, which is read. */
export interface ListChunk {
  readonly column: StoredColumn;
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
export interface Elements {
  /** All of them; undefined: they are gathered when they are read. */
  readonly all: Values | undefined;
  /** Elements [from, to), behind those of the last call. They are valid until the next call. */
  take(from: number, to: number): FixedColumn;
}

/** Elements of a row that goes on in the next page, in memory that is used again for the next such row. */
export interface Carried {
  readonly data: Values;
  readonly valid: Uint8Array | undefined;
  readonly count: number;
}

/** Adds elements to those of the pages before. @throws RangeError where there is no memory for the row */
export function carry(chunk: ListChunk, before: Carried | undefined, { data, valid }: FixedColumn): Carried {
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

/** @throws RangeError where so many elements would take more memory than a page may */
function requireMemory({ element, column: { limits } }: ListChunk, count: number): void {
  if (count * bytesPerElement(element) > Math.max(limits.pageBytes, gatheredElements * alignment)) {
    throw new RangeError(`${count} elements of lists at once`);
  }
}

/** The size of the carried elements, and what aligns the values if this page has as many levels as the one before. */
export function leadBytes({ element, levelBytes }: ListChunk, carried: Carried | undefined): number {
  const lead = alignment + (carried?.count ?? 0) * bytesPerElement(element);
  return lead + (-(lead + levelBytes) & (alignment - 1));
}

export interface PageElements {
  readonly header: PageHeader;
  readonly valuesAt: number;
  readonly lists: PageLists;
  readonly carried: Carried | undefined;
}

/**
 * Elements where the page was unpacked. Those that were carried are put before them, over the levels and the memory
 * before these, which are `lead` bytes.
 */
export function elementsInPlace(
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
export function gatheredFrom(
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
