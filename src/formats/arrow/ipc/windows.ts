import type { ByteRange, SliceWindow } from "../../port.js";
import { batchesBetween, dictionaryBlocks, encodedFields, readBatchLayout } from "./batches.js";
import type { ShardBytes } from "./bytes.js";
import { type Block, buffersOf } from "./metadata.js";
import type { ArrowIndex, IndexedBatch } from "./shards.js";

interface Slice {
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Names of the file's columns that are read. */
  readonly columns: ReadonlySet<string>;
}

/** Record batches are not divided: a window is one of them, or neighbouring ones. */
export async function arrowWindows(
  bytes: ShardBytes,
  index: ArrowIndex,
  { windowBytes, ...slice }: Slice & { readonly windowBytes: number },
): Promise<SliceWindow[]> {
  const windows: { rowStart: number; rowEnd: number; batches: ByteRange[]; dictionaries: Set<Block>; size: number }[] =
    [];
  await bytes.file.remote?.fetch(Array.from(batchesBetween(index, slice), metadataOf), { keep: true });
  for (const batch of batchesBetween(index, slice)) {
    const { ranges, dictionaries } = await rangesOfBatch(bytes, index, batch, slice.columns);
    const size = ranges.reduce((sum, { start, end }) => sum + end - start, 0);
    const rowEnd = Math.min(slice.rowEnd, batch.rowStart + batch.rows);
    const last = windows.at(-1);
    if (last !== undefined && last.size + size <= windowBytes) {
      last.rowEnd = rowEnd;
      last.size += size;
      last.batches.push(...ranges);
      for (const block of dictionaries) {
        last.dictionaries.add(block);
      }
    } else {
      const rowStart = Math.max(slice.rowStart, batch.rowStart);
      windows.push({ rowStart, rowEnd, batches: ranges, dictionaries: new Set(dictionaries), size });
    }
  }
  return windows.map(({ rowStart, rowEnd, batches, dictionaries }) => ({
    rowStart,
    rowEnd,
    ranges: [...Array.from(dictionaries, wholeBlock), ...batches],
  }));
}

/** The buffers of some columns of a batch, and the dictionaries that they need. */
async function rangesOfBatch(
  bytes: ShardBytes,
  index: ArrowIndex,
  batch: IndexedBatch,
  columns: ReadonlySet<string>,
): Promise<{ ranges: ByteRange[]; dictionaries: readonly Block[] }> {
  const { nodes } = await readBatchLayout(bytes, index, batch);
  const wanted = nodes.filter(({ field }) => columns.has(field.name));
  const bodyStart = batch.offset + batch.metadataBytes;
  const buffers = buffersOf(wanted).flatMap(({ offset, bytes: length }) =>
    length === 0 ? [] : [{ start: bodyStart + offset, end: bodyStart + offset + length }],
  );
  const ids = new Set(wanted.flatMap(({ field }) => encodedFields(field).map(({ dictionary }) => dictionary.id)));
  return {
    ranges: [metadataOf(batch), ...buffers],
    dictionaries: [...ids].flatMap((id) => dictionaryBlocks(index, batch, id)),
  };
}

/** Fetches what reading these rows takes, where the file has not all. */
export async function fetchArrowRows(bytes: ShardBytes, index: ArrowIndex, slice: Slice): Promise<void> {
  const { remote } = bytes.file;
  if (remote !== undefined) {
    const windows = await arrowWindows(bytes, index, { ...slice, windowBytes: Number.POSITIVE_INFINITY });
    await remote.fetch(windows.flatMap(({ ranges }) => ranges));
  }
}

function metadataOf({ offset, metadataBytes }: Block): ByteRange {
  return { start: offset, end: offset + metadataBytes };
}

function wholeBlock({ offset, metadataBytes, bodyBytes }: Block): ByteRange {
  return { start: offset, end: offset + metadataBytes + bodyBytes };
}
