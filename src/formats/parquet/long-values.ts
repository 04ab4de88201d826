import type { MemoryBudget } from "../../base/memory-budget.js";
import { boundColumns, type Projection } from "../../models/binding/contract.js";
import { layoutOfType } from "../../columns/types.js";
import { columnsInFile } from "../planned-columns.js";
import type { SliceRequest } from "../format.js";
import { type ColumnChunk, type Footer, type GroupRows, groupsBetween, type Leaf } from "./footer.js";
import { hasReadableStart, unpackStart } from "./pages/page-header.js";
import { type Page, PageFault, pagesOf, type ReadBytes, withPages } from "./pages/page-walk.js";

/** The size from which values count as long: 1,024 of them in a page, or a DuckDB vector of them, are megabytes. */
export const longValueBytes = 4096;
/** The number of values after which writers check whether a page is full. */
const pageValues = 1024;
/** The number of pages in memory: a compressed and an uncompressed one, and a dictionary. */
const pagesHeld = 3;

/**
 * Returns the average size of a value. If the writer does not record it, the stored size is used, in which a dictionary
 * entry counts once for many rows.
 */
export function averageBytes(chunk: ColumnChunk | undefined): number {
  return chunk === undefined ? 0 : valueBytes(chunk) / Math.max(1, chunk.values);
}

function valueBytes({ uncompressedBytes, unencodedBytes = 0 }: ColumnChunk): number {
  return Math.max(uncompressedBytes, unencodedBytes);
}

/** Returns how many of `workers` fit into memory if each holds pages of long values, or of lists, of these rows. */
export function longValueWorkers(
  footer: Footer,
  slice: Pick<SliceRequest, "rowStart" | "rowEnd" | "projection">,
  { workers, memory }: { readonly workers: number; readonly memory: MemoryBudget },
): number {
  let largest = 0;
  for (const { chunks } of groupsBetween(footer, slice)) {
    const read = chunksOf(chunks, slice);
    const pages = read.map((chunk) => {
      const average = averageBytes(chunk);
      return average < longValueBytes ? 0 : Math.min(chunk.uncompressedBytes, average * pageValues);
    });
    const lists = read.reduce((sum, { pageBytes = 0 }) => sum + pageBytes, 0);
    largest = Math.max(largest, lists, ...pages);
  }
  const fitting = largest === 0 ? workers : Math.floor(memory.openPagesBytes / (largest * pagesHeld));
  return Math.max(1, Math.min(workers, fitting));
}

/** Rows of a vector of DuckDB, which it holds with all of their bytes. */
const vectorRows = 2048;

/**
 * Parts of a slice that DuckDB reads one after the other: if values are long, of as many rows as have `vectorBytes`. For
 * each part DuckDB begins with the part's row group, and passes the rows before the part again.
 */
export function* boundedSlices(
  footer: Footer,
  slice: SliceRequest,
  { vectorBytes }: Pick<MemoryBudget, "vectorBytes">,
): Generator<SliceRequest> {
  let { rowStart: begun } = slice;
  for (const { groupRows, chunks, rowStart, rowEnd } of groupsBetween(footer, slice)) {
    const rowBytes = chunksOf(chunks, slice).reduce((sum, chunk) => sum + valueBytes(chunk), 0) / groupRows;
    if (rowBytes * vectorRows <= vectorBytes) {
      continue; // together with its neighbours
    }
    if (begun < rowStart) {
      yield { ...slice, rowStart: begun, rowEnd: rowStart };
    }
    const most = Math.max(1, Math.floor(vectorBytes / rowBytes));
    for (let from = rowStart; from < rowEnd; from += most) {
      yield { ...slice, rowStart: from, rowEnd: Math.min(rowEnd, from + most) };
    }
    begun = rowEnd;
  }
  if (begun < slice.rowEnd) {
    yield { ...slice, rowStart: begun };
  }
}

/** Whether values of the columns that are read may have any number of bytes. Types of expressions are not known here. */
export function hasLongTypes(projection: Projection): boolean {
  const used = projection.expressions?.list.some(({ uses }) => uses.length > 0) ?? false;
  return used || boundColumns(projection).some(({ type }) => layoutOfType(type).kind !== "fixed");
}

/** Returns the chunks that a slice reads. */
export function chunksOf(
  chunks: readonly ColumnChunk[],
  { projection }: Pick<SliceRequest, "projection">,
): ColumnChunk[] {
  const names = new Set(columnsInFile(projection).map((name) => name.toLowerCase()));
  return chunks.filter(({ path }) => names.has((path[0] ?? "").toLowerCase()));
}

/** A column chunk that a slice reads. */
export interface SliceChunk {
  readonly chunk: ColumnChunk;
  readonly leaf: Leaf;
  /** "row group 3 (rows 400 to 799), column `user`" */
  readonly place: string;
  readonly rows: GroupRows;
}

/** Yields the column chunks that a slice reads, row group by row group, except encrypted ones. */
export function* sliceChunks(footer: Footer, slice: SliceRows): Generator<SliceChunk> {
  for (const rows of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(rows.chunks, slice)) {
      const leaf = footer.leaves[rows.chunks.indexOf(chunk)];
      if (leaf !== undefined && !chunk.encrypted) {
        yield {
          chunk,
          leaf,
          place: `row group ${rows.group} (rows ${rows.rowStart} to ${rows.rowEnd - 1}), column \`${chunk.path[0]}\``,
          rows,
        };
      }
    }
  }
}

type SliceRows = Pick<SliceRequest, "file" | "rowStart" | "rowEnd" | "projection">;

/** Adds what a look at the chunks' first pages tells. Reading reports what is wrong with these. */
async function withFacts(
  footer: Footer,
  slice: SliceRows,
  isConcerned: (found: SliceChunk) => boolean,
  look: (pages: AsyncIterable<Page>, read: ReadBytes, chunk: ColumnChunk) => Promise<Partial<ColumnChunk>>,
): Promise<Footer> {
  const concerned = [...sliceChunks(footer, slice)].filter(isConcerned);
  if (concerned.length === 0) {
    return footer;
  }
  const completed = new Map<ColumnChunk, ColumnChunk>();
  await withPages(slice.file, footer, async ({ exact }) => {
    for (const { chunk } of concerned) {
      completed.set(chunk, { ...chunk, ...(await look(pagesOf(exact, chunk, footer), exact, chunk)) });
    }
  });
  const rowGroups = footer.rowGroups.map(({ rows, chunks }) => ({
    rows,
    chunks: chunks.map((chunk) => completed.get(chunk) ?? chunk),
  }));
  return { ...footer, rowGroups };
}

const byteArray = 6;

/**
 * Fills in the bytes of a slice's texts in a footer of a writer without SizeStatistics. A dictionary stores a text
 * once, even if many rows have it: each row is assumed to have the longest one.
 * @param isConcerned default: all columns that the slice reads
 */
export async function withTextSizes(
  footer: Footer,
  slice: SliceRows,
  isConcerned: (chunk: ColumnChunk) => boolean = () => true,
): Promise<Footer> {
  const isUnknown = ({ chunk }: SliceChunk): boolean =>
    chunk.type === byteArray &&
    chunk.unencodedBytes === undefined &&
    chunk.uncompressedBytes >= longValueBytes &&
    hasReadableStart(chunk.codec) &&
    isConcerned(chunk);
  return await withFacts(footer, slice, isUnknown, async (pages, read, chunk) => {
    const longest = await longestEntry(pages, read, chunk);
    return longest >= longValueBytes ? { unencodedBytes: longest * chunk.values } : {};
  });
}

/** In bytes; 0 without a dictionary, or if it is damaged. */
async function longestEntry(pages: AsyncIterable<Page>, read: ReadBytes, chunk: ColumnChunk): Promise<number> {
  try {
    for await (const { header, bodyStart } of pages) {
      const { kind, compressedBytes, uncompressedBytes, isCompressed, entries } = header;
      if (kind !== "dictionary" || uncompressedBytes < longValueBytes) {
        return 0;
      }
      const packed = await read(bodyStart, compressedBytes);
      const page = { start: (bytes: number) => packed.subarray(0, bytes), compressedBytes, uncompressedBytes };
      return longestOf(isCompressed ? unpackStart(chunk.codec, page, uncompressedBytes) : packed, entries);
    }
    return 0;
  } catch (error) {
    if (error instanceof PageFault || error instanceof RangeError) {
      return 0;
    }
    throw error;
  }
}

/** @throws RangeError where a length goes past the end of the bytes */
function longestOf(bytes: Uint8Array, entries: number): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let longest = 0;
  for (let at = 0, index = 0; index < entries; index += 1) {
    const length = view.getUint32(at, true);
    longest = Math.max(longest, length);
    at += Uint32Array.BYTES_PER_ELEMENT + length;
  }
  return longest;
}

/** The size of lists from which a row group is cut into several units, as far as it has pages for them. */
export const listUnitBytes = 8 * 1024 * 1024;

/**
 * Fills in the size of pages in the chunks of lists that a slice reads: of the first page with rows, or of the dictionary
 * before it, if that is larger. Writers cut pages of lists at very different sizes: pyarrow at 1 MiB, DuckDB at 100 MB.
 */
export async function withPageBytes(footer: Footer, slice: SliceRows): Promise<Footer> {
  return await withFacts(footer, slice, isReadList, async (pages, _, { uncompressedBytes }) => ({
    // No page is larger than its chunk.
    pageBytes:
      uncompressedBytes <= listUnitBytes
        ? uncompressedBytes
        : await largestPage(pages, (kind) => kind !== "dictionary"),
  }));
}

function isReadList({ chunk, leaf }: SliceChunk): boolean {
  return leaf.list !== undefined && !chunk.isElsewhere;
}

/** The uncompressed size of the largest page up to the last one, or to where a header is damaged. */
export async function largestPage(
  pages: AsyncIterable<Page>,
  isLast: (kind: Page["header"]["kind"], bodyEnd: number) => boolean,
): Promise<number> {
  let largest = 0;
  try {
    for await (const { header, bodyEnd } of pages) {
      largest = Math.max(largest, header.uncompressedBytes);
      if (isLast(header.kind, bodyEnd)) {
        break;
      }
    }
  } catch (error) {
    if (!(error instanceof PageFault)) {
      throw error;
    }
  }
  return largest;
}
