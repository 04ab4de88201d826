import { promises } from "node:fs";
import { crc32 } from "node:zlib";
import { errnoOf, JobError } from "../../../util/errors.js";
import { type ColumnChunk, type Footer, placeOf } from "../footer/footer.js";
import { readFooter } from "../footer/read-footer.js";
import type { PageCounts, ShardFile } from "../../port.js";
import { PageFault, pagesOf, type ReadBytes, windowBytes, windowed } from "./page-walk.js";
import { rangesOf } from "../windows.js";

const hint = "the shard was damaged after it was written: fetch it again from where it came, or write it again";

/**
 * Walks all pages of a shard, or of some of its row groups: they must fill their column chunk, hold as many values
 * as the footer promises, and match their CRC-32 where they have one. It covers a page as it is stored in the file,
 * behind its header: https://github.com/apache/parquet-format#checksumming
 * @throws JobError SHARD_CORRUPT naming row group, column and byte
 */
export async function verifyPages(
  shard: Pick<ShardFile, "path" | "remote">,
  { signal, groups }: { signal?: AbortSignal; groups?: readonly number[] } = {},
): Promise<PageCounts> {
  const { path } = shard;
  const footer = await readFooter(shard);
  const counts = { pages: 0, checksums: 0 };
  try {
    await using file = await promises.open(path);
    for (const group of groups ?? footer.rowGroups.keys()) {
      const { chunks = [] } = footer.rowGroups[group] ?? {};
      await shard.remote?.fetch(rangesOf(footer, chunks));
      const read = windowed(file, footer); // for each: bytes of the next one may not have been there
      for (const chunk of chunks) {
        signal?.throwIfAborted();
        if (!chunk.encrypted && chunk.values > 0) {
          await verifyChunk(read, chunk, { footer, counts, signal });
        }
      }
      await (groups === undefined ? shard.remote?.forget() : undefined);
    }
  } catch (error) {
    if (error instanceof PageFault) {
      throw new JobError("SHARD_CORRUPT", `checking ${path}: ${placeIn(footer, error)}: ${error.message}`, { hint });
    }
    const errno = errnoOf(error);
    throw errno === undefined ? error : new JobError("DISK", `checking ${path}: ${errno}`, { cause: error });
  }
  return counts;
}

function placeIn({ rowGroups }: Footer, { chunk }: PageFault): string {
  return placeOf(
    rowGroups.findIndex(({ chunks }) => chunks.includes(chunk)),
    chunk,
  );
}

interface Walk {
  readonly footer: Footer;
  readonly counts: { pages: number; checksums: number };
  readonly signal: AbortSignal | undefined;
}

async function verifyChunk(read: ReadBytes, chunk: ColumnChunk, { footer, counts, signal }: Walk): Promise<void> {
  const end = chunk.start + chunk.compressedBytes;
  let values = 0;
  for await (const { header, place, bodyStart, bodyEnd } of pagesOf(read, chunk, footer)) {
    if (header.crc !== undefined) {
      const found = await checksum(read, { at: bodyStart, length: header.compressedBytes, signal });
      if (found !== header.crc >>> 0) {
        throw new PageFault(chunk, `${place} does not match its checksum`);
      }
      counts.checksums += 1;
    }
    counts.pages += 1;
    values += header.values;
    if (bodyEnd >= end) {
      break;
    }
  }
  if (values !== chunk.values) {
    throw new PageFault(chunk, `its pages have ${values} values, the footer promises ${chunk.values}`);
  }
}

async function checksum(
  read: ReadBytes,
  { at, length, signal }: { at: number; length: number; signal: AbortSignal | undefined },
): Promise<number> {
  let sum = 0;
  for (let done = 0; done < length; ) {
    signal?.throwIfAborted();
    const bytes = await read(at + done, Math.min(length - done, windowBytes));
    sum = crc32(bytes, sum);
    done += bytes.length;
    if (bytes.length === 0) {
      return -1; // the file became shorter
    }
  }
  return sum;
}
