import { type FileHandle, open } from "node:fs/promises";
import { errnoOf, JobError } from "../errors.js";
import type { ByteRange, ShardFile } from "./port.js";

/** A shard's bytes, read where they are asked for. */
export interface ShardBytes extends AsyncDisposable {
  readonly file: ShardFile;
  readonly sizeBytes: number;
  /** Bytes [start, end), in a buffer of their own; fetched before where the file has not all. */
  read(start: number, end: number): Promise<Uint8Array<ArrayBuffer>>;
}

/** Bytes of messages, without their bodies. */
export interface MessageReader {
  read(start: number, end: number): Promise<Uint8Array>;
  fetch(ranges: readonly ByteRange[]): Promise<void>;
}

/** @throws JobError DISK */
export async function openBytes(file: ShardFile): Promise<ShardBytes> {
  const handle = await onDisk(file, () => open(file.path));
  try {
    const { size } = await onDisk(file, () => handle.stat());
    return {
      file,
      sizeBytes: size,
      read: (start, end) => readExactly(handle, file, { start, end }),
      [Symbol.asyncDispose]: () => handle.close(),
    };
  } catch (error) {
    await handle.close();
    throw error;
  }
}

/** One read of the system takes 2 GiB at most. */
const readLimit = 2 ** 30;

async function readExactly(
  handle: FileHandle,
  file: ShardFile,
  { start, end }: ByteRange,
): Promise<Uint8Array<ArrayBuffer>> {
  // Not zeroed, and not from Node's pool: typed arrays want it aligned.
  const bytes = new Uint8Array(Buffer.allocUnsafeSlow(end - start).buffer);
  for (let at = 0; at < bytes.length; ) {
    const length = Math.min(bytes.length - at, readLimit);
    const { bytesRead } = await onDisk(file, () => handle.read(bytes, at, length, start + at));
    if (bytesRead === 0) {
      throw corruptArrow(file.path, `it ends at byte ${start + at}, where ${end - start - at} more are due`);
    }
    at += bytesRead;
  }
  return bytes;
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

export const rewriteArrow = "write the shard again, or take it out of input.path";

export function corruptArrow(path: string, found: string, hint = rewriteArrow, cause?: unknown): JobError {
  return new JobError("SHARD_CORRUPT", `reading ${path}: ${found}`, { hint, cause });
}

/** What a walk over damaged bytes throws, as what it means; all else as it is. */
export function damageOf(error: unknown, path: string, place: string, hint = rewriteArrow): unknown {
  return error instanceof RangeError
    ? corruptArrow(path, `${place} is damaged (${error.message})`, hint, error)
    : error;
}
