import { closeSync, fstatSync, openSync, promises } from "node:fs";
import { errnoOf, JobError } from "../../../util/errors.js";
import type { ShardFile } from "../../port.js";
import { rewriteShard } from "../../error-hints.js";
import { readFully, readLimitBytes } from "../../read-fully.js";

/** A shard's bytes, read where they are asked for. */
export interface ShardBytes extends AsyncDisposable {
  readonly file: ShardFile;
  readonly sizeBytes: number;
  /** Reads bytes [start, end) into `lent` or new memory. Bytes that the file does not have yet are fetched first. */
  read(start: number, end: number, lent?: Uint8Array<ArrayBuffer>): Promise<Uint8Array<ArrayBuffer>>;
}

/** @throws JobError DISK */
export async function openBytes(file: ShardFile): Promise<ShardBytes> {
  const handle = await onDisk(file, () => promises.open(file.path));
  try {
    const { size } = await onDisk(file, () => handle.stat());
    return {
      file,
      sizeBytes: size,
      async read(start, end, lent) {
        const bytes = memoryFor(end - start, lent);
        for (let at = 0; at < bytes.length; ) {
          const length = Math.min(bytes.length - at, readLimitBytes);
          const { bytesRead } = await onDisk(file, () => handle.read(bytes, at, length, start + at));
          if (bytesRead === 0) {
            throw endsEarly(file, start + at, end);
          }
          at += bytesRead;
        }
        return bytes;
      },
      [Symbol.asyncDispose]: () => handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/**
 * The same, read by the thread that asks, which waits: what it has read is in its core's cache then. For threads that
 * have nothing else to do.
 */
export function openBytesHere(file: ShardFile): Promise<ShardBytes> {
  const descriptor = openSync(file.path, "r");
  let sizeBytes: number;
  try {
    sizeBytes = fstatSync(descriptor).size;
  } catch (error) {
    closeSync(descriptor);
    throw error;
  }
  return Promise.resolve({
    file,
    sizeBytes,
    read(start, end, lent) {
      const bytes = memoryFor(end - start, lent);
      const bytesRead = readFully(descriptor, bytes, start);
      if (bytesRead < bytes.length) {
        throw endsEarly(file, start + bytesRead, end);
      }
      return Promise.resolve(bytes);
    },
    [Symbol.asyncDispose]() {
      closeSync(descriptor);
      return Promise.resolve();
    },
  });
}

/** Returns memory that is not zeroed and not from Node's pool, since typed arrays must be aligned. */
function memoryFor(length: number, lent: Uint8Array<ArrayBuffer> | undefined): Uint8Array<ArrayBuffer> {
  return lent?.subarray(0, length) ?? new Uint8Array(Buffer.allocUnsafeSlow(length).buffer, 0, length);
}

function endsEarly({ path }: ShardFile, start: number, end: number): JobError {
  return corruptArrow(path, `it ends at byte ${start}, where ${end - start} more are due`);
}

async function onDisk<T>({ path }: ShardFile, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    const errno = errnoOf(error);
    if (errno === undefined || error instanceof JobError) {
      throw error;
    }
    throw new JobError("DISK", `reading ${path}: ${errno}`, { cause: error });
  }
}

export function corruptArrow(path: string, found: string, hint = rewriteShard, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading ${path}: ${found}`, { hint, cause });
}

/** Turns an error from reading damaged bytes into the error about the damage. Other errors are returned unchanged. */
export function damageOf(error: unknown, path: string, place: string, hint = rewriteShard): unknown {
  return error instanceof RangeError
    ? corruptArrow(path, `${place} is damaged (${error.message})`, hint, error)
    : error;
}

/** Reads a part of a file; the error about its damage names it. */
export async function inPlace<T>(path: string, place: string, act: () => Promise<T>): Promise<T> {
  try {
    return await act();
  } catch (error) {
    throw damageOf(error, path, place);
  }
}
