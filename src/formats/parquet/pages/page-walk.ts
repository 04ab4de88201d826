import type { FileHandle } from "node:fs/promises";
import { messageOf } from "../../../util/errors.js";
import type { ColumnChunk, Footer } from "../footer/footer.js";
import { type PageHeader, parsePageHeader } from "./page-header.js";

/** The number of bytes of a file that are held at once. */
export const windowBytes = 1024 * 1024;
/** Most page headers have less than 100 bytes; with long texts as statistics they grow. */
const headerGuessBytes = 1024;
const headerLimitBytes = 16 * 1024 * 1024;

/** What is wrong with a page. */
export class PageFault extends Error {
  readonly chunk: ColumnChunk;

  constructor(chunk: ColumnChunk, message: string) {
    super(message);
    this.chunk = chunk;
  }
}

/** Reads bytes [at, at + length), up to the end of the pages. */
export type ReadBytes = (at: number, length: number) => Promise<Uint8Array>;

export function windowed(file: FileHandle, { pagesEnd }: Footer): ReadBytes {
  let start = 0;
  let bytes: Uint8Array = new Uint8Array(0);
  let buffer = Buffer.allocUnsafe(windowBytes);
  return async (at, length) => {
    const wanted = Math.min(length, pagesEnd - at);
    if (at < start || at + wanted > start + bytes.length) {
      const size = Math.min(Math.max(wanted, windowBytes), pagesEnd - at);
      buffer = buffer.length < size ? Buffer.allocUnsafe(size) : buffer;
      const { bytesRead } = await file.read(buffer, 0, size, at);
      start = at;
      bytes = buffer.subarray(0, bytesRead);
    }
    return bytes.subarray(at - start, at - start + wanted);
  };
}

/** Reads no more than it is asked for. */
export function unbuffered(file: FileHandle, { pagesEnd }: Footer): ReadBytes {
  return async (at, length) => {
    const bytes = Buffer.allocUnsafe(Math.max(0, Math.min(length, pagesEnd - at)));
    const { bytesRead } = await file.read(bytes, 0, bytes.length, at);
    return bytes.subarray(0, bytesRead);
  };
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
    const { header, headerBytes } = await readHeader(read, at, chunk);
    const place = `the page at byte ${at}`;
    const { compressedBytes, uncompressedBytes, values } = header;
    const bodyStart = at + headerBytes;
    const bodyEnd = bodyStart + compressedBytes;
    if (compressedBytes < 0 || bodyEnd > pagesEnd) {
      throw new PageFault(chunk, `${place} claims ${compressedBytes} bytes, which the file does not have`);
    }
    if (uncompressedBytes < 0 || uncompressedBytes > chunk.uncompressedBytes) {
      const most = `its column chunk ${chunk.uncompressedBytes}`;
      throw new PageFault(chunk, `${place} claims ${uncompressedBytes} bytes when unpacked, ${most}`);
    }
    if (values < 0) {
      throw new PageFault(chunk, `${place} claims ${values} values`);
    }
    yield { header, place, bodyStart, bodyEnd };
    at = bodyEnd;
  }
}

async function readHeader(
  read: ReadBytes,
  at: number,
  chunk: ColumnChunk,
): Promise<{ header: PageHeader; headerBytes: number }> {
  for (let length = headerGuessBytes; ; length *= 16) {
    const bytes = await read(at, length);
    const cursor = { bytes, at: 0 };
    try {
      return { header: parsePageHeader(cursor), headerBytes: cursor.at };
    } catch (error) {
      const isCut = error instanceof RangeError && bytes.length === length && length < headerLimitBytes;
      if (!isCut) {
        throw new PageFault(chunk, `the page at byte ${at} has a damaged header (${messageOf(error)})`);
      }
    }
  }
}
