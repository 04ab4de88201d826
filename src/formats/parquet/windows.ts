import { columnsInFile } from "../planned-columns.js";
import { type ColumnChunk, type Footer, readParquetFooter, groupsBetween } from "./footer.js";
import type { ByteRange, SliceRequest, SliceWindow } from "../format.js";

/** Some writers left the header of the dictionary's page out of a chunk's size (PARQUET-816). */
const slackBytes = 100;

/**
 * The byte ranges of some column chunks. Those without values, and those that only a key opens, are not read.
 *
 * A range never has the beginning of another chunk: with the header of its first page there, and zeros after it, that
 * chunk would be read as if it were whole, should it be read by mistake. Without it, reading it fails.
 */
export function rangesOf(footer: Footer, chunks: readonly ColumnChunk[]): ByteRange[] {
  return chunks
    .filter(({ encrypted, values }) => !encrypted && values > 0)
    .map(({ start, compressedBytes }) => {
      const end = start + compressedBytes;
      return { start, end: Math.min(end + slackBytes, Math.max(end, startAfter(footer, start))) };
    });
}

const sortedStarts = new WeakMap<Footer, Float64Array>();

/** Where the chunk begins that comes after the one at `start`; for the last one, where the footer does. */
function startAfter(footer: Footer, start: number): number {
  const starts =
    sortedStarts.get(footer) ??
    Float64Array.from(footer.rowGroups.flatMap(({ chunks }) => chunks.map((chunk) => chunk.start))).toSorted();
  sortedStarts.set(footer, starts);
  let low = 0;
  let high = starts.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((starts[middle] ?? 0) > start) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return starts[low] ?? footer.pagesEnd;
}

function chunksOf(footer: Footer, group: number, columns: readonly string[]): readonly ColumnChunk[] {
  const chunks = footer.rowGroups[group]?.chunks ?? [];
  const there = new Set(chunks.map(({ path }) => path[0] ?? ""));
  // DuckDB gives a column without a name one.
  return columns.every((name) => there.has(name))
    ? chunks.filter(({ path }) => columns.includes(path[0] ?? ""))
    : chunks;
}

/** Row groups are not divided: a window is one of them, or neighbouring ones. Each has the footer, too. */
export async function sliceWindows(
  { file, rowStart, rowEnd, projection }: SliceRequest,
  windowBytes: number,
): Promise<SliceWindow[]> {
  const footer = await readParquetFooter(file);
  const columns = columnsInFile(projection);
  const windows: { rowStart: number; rowEnd: number; ranges: ByteRange[]; bytes: number }[] = [];
  for (const { group, rowStart: from, rowEnd: to } of groupsBetween(footer, { rowStart, rowEnd })) {
    const ranges = rangesOf(footer, chunksOf(footer, group, columns));
    const bytes = bytesIn(ranges);
    const last = windows.at(-1);
    if (last !== undefined && last.bytes + bytes <= windowBytes) {
      last.rowEnd = to;
      last.ranges.push(...ranges);
      last.bytes += bytes;
    } else {
      windows.push({ rowStart: from, rowEnd: to, ranges, bytes });
    }
  }
  const footerRange = { start: footer.pagesEnd, end: footer.sizeBytes };
  return windows.map((window) => {
    window.ranges.push(footerRange);
    return { rowStart: window.rowStart, rowEnd: window.rowEnd, ranges: window.ranges };
  });
}

function bytesIn(ranges: readonly ByteRange[]): number {
  return ranges.reduce((sum, { start, end }) => sum + end - start, 0);
}

/** The bytes of some columns in the row groups that have some of these rows. */
export function rangesBetween(
  footer: Footer,
  rows: { readonly rowStart: number; readonly rowEnd: number },
  columns: readonly string[],
): ByteRange[] {
  return Array.from(groupsBetween(footer, rows), ({ group }) =>
    rangesOf(footer, chunksOf(footer, group, columns)),
  ).flat();
}
