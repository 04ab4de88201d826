import { type ColumnChunk, type Footer, placeOf, rowsIn } from "./footer.js";
import type { Leaf } from "./leaves.js";
import { magicBytes } from "./tail.js";

/** A lower bound of a data page's header. The number of values of a page is an i32. */
const leastPageBytes = 8;
const pageValuesLimit = 2 ** 31 - 1;
/** Tolerance for sizes: some writers count page headers, others do not. */
const sizesMayDiffer = 1.25;

/** Returns how a footer contradicts itself or the size of its file; undefined if it is consistent. */
export function faultOf(footer: Footer): string | undefined {
  const { rows, rowGroups, leaves, pagesEnd } = footer;
  const sum = rowsIn(footer);
  // parquet-rs 0.3.0 left the file's own count at 0.
  if (rows !== sum && rows !== 0) {
    return `it states ${rows} rows, but its row groups state ${sum}`;
  }
  for (const [group, { rows: groupRows, chunks }] of rowGroups.entries()) {
    if (groupRows < 0 || chunks.length !== leaves.length) {
      return `row group ${group} has ${groupRows} rows of ${chunks.length} columns, the schema ${leaves.length}`;
    }
    for (const [index, leaf] of leaves.entries()) {
      const chunk = chunks[index];
      // The sizes of an encrypted column are encrypted, too. A row group without rows may leave them out.
      if (chunk === undefined || chunk.encrypted || groupRows === 0) {
        continue;
      }
      const fault = faultOfPlace(chunk, { groupRows, pagesEnd, leaf }) ?? faultOfKind(chunk, leaf);
      if (fault !== undefined) {
        return `${placeOf(group, chunk)} ${fault}`;
      }
    }
  }
  return undefined;
}

function faultOfPlace(
  { values, start, compressedBytes }: ColumnChunk,
  { groupRows, pagesEnd, leaf }: { groupRows: number; pagesEnd: number; leaf: Leaf },
): string | undefined {
  if (values < groupRows || (values > groupRows && leaf.repetition === 0)) {
    return `has ${values} values, the row group ${groupRows} rows`;
  }
  const end = start + compressedBytes;
  if (start < magicBytes || compressedBytes < 0 || end > pagesEnd) {
    return `would be bytes ${start} to ${end}, but pages end at byte ${pagesEnd}`;
  }
  return values > (compressedBytes / leastPageBytes) * pageValuesLimit
    ? `cannot hold ${values} values in ${compressedBytes} bytes`
    : undefined;
}

/**
 * Returns how a chunk contradicts the schema or its codec, which would make a reader return wrong values; else
 * undefined.
 */
function faultOfKind(
  { type, codec, levels, compressedBytes, uncompressedBytes }: ColumnChunk,
  leaf: Leaf,
): string | undefined {
  if (type !== leaf.type) {
    return `has physical type ${type}, the schema ${leaf.type}`;
  }
  if (codec === 0 && uncompressedBytes > compressedBytes * sizesMayDiffer) {
    return `is not compressed, but has ${compressedBytes} bytes, ${uncompressedBytes} when unpacked`;
  }
  for (const kind of ["repetition", "definition"] as const) {
    if (levels[kind] !== 0 && levels[kind] !== leaf[kind] + 1) {
      return `counts ${levels[kind]} ${kind} levels, the schema ${leaf[kind] + 1}`;
    }
  }
  return undefined;
}
