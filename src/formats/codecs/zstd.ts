import * as zlib from "node:zlib";
import type { Transform } from "node:stream";
import { Decompress } from "fzstd";
import { messageOf } from "../../util/errors.js";
import { streamStart } from "./stream-start.js";

type Unpack = (data: Uint8Array, options: { maxOutputLength: number; finishFlush?: number }) => Buffer<ArrayBuffer>;

/** Node has them since 22.15. */
const { zstdDecompressSync, createZstdDecompress } = zlib as {
  zstdDecompressSync?: Unpack;
  createZstdDecompress?: () => Transform;
};

/** Whether frames are unpacked by native code. */
export const isZstdNative = zstdDecompressSync !== undefined;

/** Bytes that fzstd is given at once: it unpacks all that it is given. */
const pieceBytes = 64 * 1024;

/** Unpacks a frame of exactly `length` bytes. @throws RangeError where it is damaged, or of another length */
export function unpackZstd(packed: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  try {
    const found = zstdDecompressSync?.(packed, { maxOutputLength: Math.max(1, length) }) ?? unpackHere(packed, length);
    if (found.length !== length) {
      throw new RangeError(`${found.length} bytes, ${length} are due`);
    }
    return found;
  } catch (error) {
    throw new RangeError(`a zstd frame is damaged: ${messageOf(error)}`, { cause: error });
  }
}

/** The number of `ZSTD_e_flush`, which typings do not have: a frame that is cut off is no error. */
const flush = 1;

/** Unpacks the blocks, of up to 128 KiB each, that are whole in the first bytes of a frame; none where Node cannot. */
export function unpackZstdBlocks(packed: Uint8Array, mostBytes: number): Uint8Array {
  try {
    const options = { finishFlush: flush, maxOutputLength: Math.max(1, mostBytes) };
    return zstdDecompressSync?.(packed, options) ?? new Uint8Array(0);
  } catch {
    return new Uint8Array(0); // when the frame is unpacked as a whole, what is wrong with it is reported
  }
}

/** Decompresses chunk by chunk, because fzstd reports the number of bytes only then. */
function unpackHere(packed: Uint8Array, length: number): Uint8Array<ArrayBuffer> {
  const target = new Uint8Array(length);
  let filled = 0;
  const stream = new Decompress((chunk) => {
    target.set(chunk, filled); // beyond its end this throws
    filled += chunk.length;
  });
  stream.push(packed, true);
  return target.subarray(0, filled);
}

/** Fills `target` with the first bytes of a frame; returns how many there were. */
export async function unpackZstdStart(packed: Uint8Array, target: Uint8Array): Promise<number> {
  if (createZstdDecompress !== undefined) {
    return await streamStart(createZstdDecompress(), packed, target);
  }
  let filled = 0;
  const stream = new Decompress((chunk) => {
    const part = chunk.subarray(0, target.length - filled);
    target.set(part, filled);
    filled += part.length;
  });
  for (let at = 0; at < packed.length && filled < target.length; at += pieceBytes) {
    stream.push(packed.subarray(at, at + pieceBytes), at + pieceBytes >= packed.length);
  }
  return filled;
}
