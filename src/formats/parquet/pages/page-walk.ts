import { errnoOf, JobError, messageOf } from "../../../base/errors.js";
import { type ColumnChunk, type Footer, placeOfChunk, readParquetFooter } from "../footer.js";
import { type PageHeader, parsePageHeader } from "./page-header.js";
import { promises } from "node:fs";
import { crc32 } from "node:zlib";
import type { PageCounts, ShardFile } from "../../format.js";
import { rangesOf } from "../windows.js";

/** The number of bytes of a file that are held at once. */
const windowBytes = 1024 * 1024;
/** Most page headers have less than 100 bytes; with long texts as statistics they grow. */
const headerGuessBytes = 1024;
const headerLimitBytes = 16 * 1024 * 1024;

/** What is wrong with a page. */
export class PageFault extends Error {}

/** Looks at a page; what is wrong with it names it. @throws PageFault */
export async function inPage<T>({ place }: Page, look: () => Promise<T>): Promise<T> {
  try {
    return await look();
  } catch (error) {
    // A file that cannot be read is not a damaged page.
    throw errnoOf(error) === undefined ? new PageFault(`${place}: ${messageOf(error)}`, { cause: error }) : error;
  }
}

/** Reads bytes [at, at + length), up to the end of the pages. */
export type ReadBytes = (at: number, length: number) => Promise<Uint8Array>;

/** The bytes of a shard's pages, read as they are asked for, or a window at once. */
export interface PageBytes {
  readonly exact: ReadBytes;
  /** A new window: bytes of the last one may not have been there. */
  readonly windowed: () => ReadBytes;
}

/** Opens a shard for a look at its pages. @throws JobError DISK */
export async function withPages<T>(
  { path, doing = "reading" }: { readonly path: string; readonly doing?: string },
  { pagesEnd }: Pick<Footer, "pagesEnd">,
  look: (bytes: PageBytes) => Promise<T>,
): Promise<T> {
  try {
    await using file = await promises.open(path);
    const exact: ReadBytes = async (at, length) => {
      const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(length, pagesEnd - at)));
      const { bytesRead } = await file.read(bytes, 0, bytes.length, at);
      return bytes.subarray(0, bytesRead);
    };
    const windowed = (): ReadBytes => {
      let start = 0;
      let bytes: Uint8Array = new Uint8Array(0);
      return async (at, length) => {
        const wanted = Math.min(length, pagesEnd - at);
        if (at < start || at + wanted > start + bytes.length) {
          bytes = await exact(at, Math.max(wanted, windowBytes));
          start = at;
        }
        return bytes.subarray(at - start, at - start + wanted);
      };
    };
    return await look({ exact, windowed });
  } catch (error) {
    const errno = error instanceof JobError ? undefined : errnoOf(error);
    throw errno === undefined ? error : new JobError("DISK", `${doing} ${path}: ${errno}`, { cause: error });
  }
}

/** A page, and where it is in the file. */
export interface Page {
  readonly header: PageHeader;
  /** The page's name in messages. */
  readonly place: string;
  /** Bytes [bodyStart, bodyEnd) of the file are what follows the header. */
  readonly bodyStart: number;
  readonly bodyEnd: number;
}

/**
 * The pages from the start of a column chunk on, without an end: the caller stops where the chunk ends. A page is
 * before the footer, and has no more bytes when unpacked than its whole chunk.
 * @throws PageFault
 */
export async function* pagesOf(
  read: ReadBytes,
  chunk: ColumnChunk,
  { pagesEnd }: Pick<Footer, "pagesEnd">,
): AsyncGenerator<Page, never> {
  for (let at = chunk.start; ; ) {
    const { header, headerBytes } = await readHeader(read, at);
    const place = `the page at byte ${at}`;
    const { compressedBytes, uncompressedBytes, values } = header;
    const bodyStart = at + headerBytes;
    const bodyEnd = bodyStart + compressedBytes;
    if (compressedBytes < 0 || bodyEnd > pagesEnd) {
      throw new PageFault(`${place} claims ${compressedBytes} bytes, which the file does not have`);
    }
    if (uncompressedBytes < 0 || uncompressedBytes > chunk.uncompressedBytes) {
      const most = `its column chunk ${chunk.uncompressedBytes}`;
      throw new PageFault(`${place} claims ${uncompressedBytes} bytes when unpacked, ${most}`);
    }
    if (values < 0) {
      throw new PageFault(`${place} claims ${values} values`);
    }
    yield { header, place, bodyStart, bodyEnd };
    at = bodyEnd;
  }
}

async function readHeader(read: ReadBytes, at: number): Promise<{ header: PageHeader; headerBytes: number }> {
  for (let length = headerGuessBytes; ; length *= 16) {
    const bytes = await read(at, length);
    const cursor = { bytes, at: 0 };
    try {
      return { header: parsePageHeader(cursor), headerBytes: cursor.at };
    } catch (error) {
      const isCut = error instanceof RangeError && bytes.length === length && length < headerLimitBytes;
      if (!isCut) {
        throw new PageFault(`the page at byte ${at} has a damaged header (${messageOf(error)})`);
      }
    }
  }
}

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
  const footer = await readParquetFooter(shard);
  const counts = { pages: 0, checksums: 0 };
  await withPages({ path, doing: "checking" }, footer, async ({ windowed }) => {
    for (const group of groups ?? footer.rowGroups.keys()) {
      const { chunks = [] } = footer.rowGroups[group] ?? {};
      await shard.remote?.fetch(rangesOf(footer, chunks));
      const read = windowed();
      for (const chunk of chunks.filter(({ encrypted, values }) => !encrypted && values > 0)) {
        signal?.throwIfAborted();
        await verifyChunk(read, chunk, { footer, counts, signal }).catch((error: unknown) => {
          throw error instanceof PageFault
            ? new JobError("SHARD_CORRUPT", `checking ${path}: ${placeOfChunk(group, chunk)}: ${error.message}`, {
                hint,
              })
            : error;
        });
      }
      await (groups === undefined ? shard.remote?.forget() : undefined);
    }
  });
  return counts;
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
        throw new PageFault(`${place} does not match its checksum`);
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
    throw new PageFault(`its pages have ${values} values, the footer promises ${chunk.values}`);
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
