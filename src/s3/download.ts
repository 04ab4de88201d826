import { writeSync } from "node:fs";
import { open } from "node:fs/promises";
import type { S3Uri } from "../spec/s3-uri.js";
import type { ObjectFacts, S3Store } from "./store.js";

/** Bytes of one request: parallel ones fill a fast line, and one that breaks off costs little. */
const requestBytes = 8 * 1024 * 1024;

/** [start, end) in equal pieces, none larger than a request may be. */
export function inPieces({ start, end }: { start: number; end: number }): { start: number; end: number }[] {
  const count = Math.ceil((end - start) / requestBytes);
  const size = Math.ceil((end - start) / count);
  return Array.from({ length: count }, (_, index) => ({
    start: start + index * size,
    end: Math.min(start + (index + 1) * size, end),
  }));
}

/** Fetches a whole object into a new file. Not durable. @throws JobError as `S3Store.read` does */
export async function download(
  store: S3Store,
  doing: string,
  { object, etag, sizeBytes }: ObjectFacts & { readonly object: S3Uri },
  path: string,
): Promise<void> {
  await using file = await open(path, "wx");
  await file.truncate(sizeBytes);
  const stop = new AbortController();
  const reading = inPieces({ start: 0, end: sizeBytes }).map((piece) =>
    store.read(doing, { object, etag, ...piece }, writingTo(file.fd), stop.signal),
  );
  try {
    await Promise.all(reading);
  } finally {
    stop.abort(new Error("another piece failed"));
    await Promise.allSettled(reading); // none may write any more when the file is closed
  }
}

/**
 * What is written at once, ending where it would in a file of such pieces. Linux gives larger writes larger pages, which
 * come from memory that nobody used lately; for these it has pages at hand that were freed just now.
 */
const writtenBytes = 32 * 1024;

/**
 * Writes pieces to where they are in the object, at once: they hold no longer. It blocks its thread for as long as the
 * disk takes.
 */
export function writingTo(fd: number): (piece: Uint8Array, at: number) => void {
  return (piece, at) => {
    // A single write may take less than it was given.
    for (let done = 0; done < piece.length; ) {
      const room = writtenBytes - ((at + done) % writtenBytes);
      done += writeSync(fd, piece, done, Math.min(room, piece.length - done), at + done);
    }
  };
}
