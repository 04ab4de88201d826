import { writeSync } from "node:fs";
import { open } from "node:fs/promises";
import type { ObjectStat, ObjectVersion, S3Store } from "./store.js";

/** The most bytes that one request asks for: parallel requests fill the network, and a failed one costs little. */
const requestBytes = 8 * 1024 * 1024;

/** Splits [start, end) into equal ranges of at most 8 MiB. */
export function splitRange({ start, end }: { start: number; end: number }): { start: number; end: number }[] {
  const count = Math.ceil((end - start) / requestBytes);
  const size = Math.ceil((end - start) / count);
  return Array.from({ length: count }, (_, index) => ({
    start: start + index * size,
    end: Math.min(start + (index + 1) * size, end),
  }));
}

/** Downloads an object into the new file `path`. The file is not fsynced. @throws JobError as `S3Store.read` does */
export async function download(
  store: S3Store,
  act: string,
  { object, etag, sizeBytes }: ObjectStat & { readonly object: ObjectVersion },
  path: string,
): Promise<void> {
  await using file = await open(path, "wx");
  await file.truncate(sizeBytes);
  const stop = new AbortController();
  const reading = splitRange({ start: 0, end: sizeBytes }).map((range) =>
    store.read(act, { object, etag, ...range }, writeAtOffset(file.fd), stop.signal),
  );
  try {
    await Promise.all(reading);
  } finally {
    stop.abort(new Error("another range failed"));
    await Promise.allSettled(reading); // none may write after the file is closed
  }
}

/**
 * The size of a single write, aligned. For larger writes Linux takes larger pages, which come from memory that was not
 * used lately; for these it has pages that were freed a moment ago.
 */
const writeBytes = 32 * 1024;

/**
 * Makes a function that writes bytes to a file at their offset in the object. It writes synchronously, because the
 * bytes are overwritten after it returns, and blocks its thread during the write.
 */
export function writeAtOffset(fd: number): (bytes: Uint8Array, offset: number) => void {
  return (bytes, offset) => {
    // A single write may write less than it was given.
    for (let written = 0; written < bytes.length; ) {
      const toBoundary = writeBytes - ((offset + written) % writeBytes);
      written += writeSync(fd, bytes, written, Math.min(toBoundary, bytes.length - written), offset + written);
    }
  };
}
