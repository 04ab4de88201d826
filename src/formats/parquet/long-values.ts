import type { MemoryBudget } from "../../util/memory-budget.js";
import { boundColumns, type Projection } from "../../binding/contract.js";
import { layoutOf } from "../../columnar/types.js";
import { columnsInFile } from "../planned-columns.js";
import type { SliceRequest } from "../port.js";
import type { ColumnChunk, Footer } from "./footer/footer.js";
import { groupsBetween } from "./footer/groups.js";

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
