import type { MemoryBudget } from "../../util/memory-budget.js";
import { boundColumns, type Projection } from "../../binding/contract.js";
import { layoutOf } from "../../columnar/types.js";
import { columnsInFile } from "../planned-columns.js";
import type { SliceRequest } from "../port.js";
import { type ColumnChunk, type Footer, groupsBetween, withChunks } from "./footer.js";
import { promises } from "node:fs";
import { errnoOf, JobError } from "../../util/errors.js";
import { codecs, hasReadableStart, unpackStart } from "./pages/page-header.js";
import { PageFault, pagesOf, unbuffered } from "./pages/page-walk.js";

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

/** Returns the size of all values of a chunk. */
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
  return used || boundColumns(projection).some(({ type }) => layoutOf(type).kind !== "fixed");
}

/** Returns the chunks that a slice reads. */
export function chunksOf(
  chunks: readonly ColumnChunk[],
  { projection }: Pick<SliceRequest, "projection">,
): ColumnChunk[] {
  const names = new Set(columnsInFile(projection).map((name) => name.toLowerCase()));
  return chunks.filter(({ path }) => names.has((path[0] ?? "").toLowerCase()));
}

/** The number of BYTE_ARRAY in parquet.thrift. */
const byteArray = 6;

/**
 * Fills in the bytes of a slice's texts in a footer of a writer without SizeStatistics. A dictionary stores a text
 * once, even if many rows have it: each row is assumed to have the longest one.
 * @param isConcerned default: all columns that the slice reads
 */
export async function withTextSizes(
  footer: Footer,
  slice: Pick<SliceRequest, "file" | "rowStart" | "rowEnd" | "projection">,
  isConcerned: (chunk: ColumnChunk) => boolean = () => true,
): Promise<Footer> {
  const found = new Map<ColumnChunk, number>();
  for (const { chunks } of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(chunks, slice)) {
      if (isUnknown(chunk) && isConcerned(chunk)) {
        const longest = await longestEntry(slice.file.path, footer, chunk);
        if (longest >= longValueBytes) {
          found.set(chunk, longest * chunk.values);
        }
      }
    }
  }
  return withChunks(footer, found, (chunk, unencodedBytes) => ({ ...chunk, unencodedBytes }));
}

function isUnknown({ type, unencodedBytes, uncompressedBytes, encrypted, codec }: ColumnChunk): boolean {
  return (
    type === byteArray &&
    unencodedBytes === undefined &&
    uncompressedBytes >= longValueBytes &&
    !encrypted &&
    hasReadableStart(codec)
  );
}

/** Returns the bytes of the longest text in a chunk's dictionary; 0 without one, or if it is damaged: reading reports it. */
async function longestEntry(path: string, footer: Footer, chunk: ColumnChunk): Promise<number> {
  try {
    await using file = await promises.open(path);
    const read = unbuffered(file, footer);
    for await (const { header, bodyStart } of pagesOf(read, chunk, footer)) {
      const { kind, compressedBytes, uncompressedBytes, isCompressed, entries } = header;
      if (kind !== "dictionary" || uncompressedBytes < longValueBytes) {
        return 0;
      }
      const packed = await read(bodyStart, compressedBytes);
      const isPlain = chunk.codec === codecs.none || !isCompressed;
      const size = { length: uncompressedBytes, wholeBytes: uncompressedBytes };
      return longestOf(isPlain ? packed : await unpackStart(chunk.codec, packed, size), entries);
    }
    return 0;
  } catch (error) {
    if (error instanceof PageFault || error instanceof RangeError) {
      return 0;
    }
    throw new JobError("DISK", `reading ${path}: ${errnoOf(error)}`, { cause: error });
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
 * Fills in the size of pages in the chunks of lists that a slice reads. Writers cut pages of lists at very different
 * sizes: pyarrow at 1 MiB, DuckDB at 100 MB.
 */
export async function withPageBytes(
  footer: Footer,
  slice: Pick<SliceRequest, "file" | "rowStart" | "rowEnd" | "projection">,
): Promise<Footer> {
  const found = new Map<ColumnChunk, number>();
  for (const { chunks } of groupsBetween(footer, slice)) {
    for (const chunk of chunksOf(chunks, slice)) {
      const isList = footer.leaves[chunks.indexOf(chunk)]?.list !== undefined;
      if (isList && !chunk.encrypted && !chunk.isElsewhere) {
        found.set(chunk, await pageBytesOf(slice.file.path, footer, chunk));
      }
    }
  }
  return withChunks(footer, found, (chunk, pageBytes) => ({ ...chunk, pageBytes }));
}

/** Returns the size of a chunk's first page with rows, or of the dictionary before it, if that is larger. */
async function pageBytesOf(path: string, footer: Footer, chunk: ColumnChunk): Promise<number> {
  if (chunk.uncompressedBytes <= listUnitBytes) {
    return chunk.uncompressedBytes; // no page is larger than that
  }
  let largest = 0;
  try {
    await using file = await promises.open(path);
    for await (const { header } of pagesOf(unbuffered(file, footer), chunk, footer)) {
      largest = Math.max(largest, header.uncompressedBytes);
      if (header.kind !== "dictionary") {
        break;
      }
    }
    return largest;
  } catch (error) {
    if (error instanceof PageFault) {
      return largest; // reading it reports what is wrong
    }
    throw new JobError("DISK", `reading ${path}: ${errnoOf(error)}`, { cause: error });
  }
}
