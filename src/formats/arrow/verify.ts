import { readPieces } from "./ipc/batches.js";
import { rewriteShard } from "../error-hints.js";
import type { OpenArrow } from "./ipc/shards.js";
import { columnTypeOf } from "./ipc/types.js";
import { fetchArrowRows } from "./ipc/windows.js";
import { JobError } from "../../util/errors.js";
import type { PageCounts, ShardFile } from "../port.js";

/**
 * Reads every column of every batch that can be read: places, lengths, offsets, indices, texts and compressed buffers
 * must be in order. Arrow has no checksums; a batch counts as a page without one.
 * @throws JobError SHARD_CORRUPT
 */
export async function verifyArrow(
  file: ShardFile,
  open: (file: ShardFile) => Promise<OpenArrow>,
  signal: AbortSignal,
): Promise<PageCounts> {
  await using shard = await open(file);
  const { bytes, index } = shard;
  const readable = index.schema.fields.filter((field) => columnTypeOf(field) !== undefined);
  const columns = new Map(readable.map(({ name }) => [name, undefined]));
  if (columns.size < readable.length) {
    throw new JobError("SCHEMA_MISMATCH", `checking ${file.path}: two columns have the same name`, {
      hint: rewriteShard,
    });
  }
  for (const { rowStart, rows } of index.batches) {
    const slice = { rowStart, rowEnd: rowStart + rows };
    await fetchArrowRows(bytes, index, { ...slice, columns: new Set(columns.keys()) });
    const pieces = readPieces(bytes, index, { ...slice, columns });
    while ((await pieces.next()).done !== true) {
      signal.throwIfAborted();
    }
    await file.remote?.forget();
  }
  return { pages: index.batches.length, checksums: 0 };
}
