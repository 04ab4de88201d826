import * as zlib from "node:zlib";
import type { Transform } from "node:stream";
import { Decompress } from "fzstd";
import { messageOf } from "../../../util/errors.js";
import { unpackLz4Start } from "../../codecs/lz4.js";
import { codecs } from "./codecs.js";
import { unpackSnappyStart } from "../../codecs/snappy.js";

/** Node has it since 22.15. */
const { createZstdDecompress } = zlib as { createZstdDecompress?: () => Transform };

/** Bytes of a page that are given to a decompressor at once where it does not ask for them itself. */
const pieceBytes = 64 * 1024;

/** Whether the start of a page of this codec can be unpacked here. */
export function hasReadableStart(codec: number): boolean {
  return Object.values(codecs).includes(codec);
}

/**
 * The first `length` bytes of a page that has `wholeBytes` when it is unpacked; what comes after them is left packed.
 * @throws RangeError where they are not there
 */
export async function unpackStart(
  codec: number,
  packed: Uint8Array,
  size: { readonly length: number; readonly wholeBytes: number },
): Promise<Uint8Array> {
  try {
    return await start(codec, packed, size);
  } catch (error) {
    throw new RangeError(`it cannot be unpacked: ${messageOf(error)}`, { cause: error });
  }
}

async function start(
  codec: number,
  packed: Uint8Array,
  { length, wholeBytes }: { readonly length: number; readonly wholeBytes: number },
): Promise<Uint8Array> {
  const target = new Uint8Array(length);
  switch (codec) {
    case codecs.snappy:
      unpackSnappyStart(packed, target, wholeBytes);
      return target;
    case codecs.lz4Raw:
      unpackLz4Start(packed, target);
      return target;
    case codecs.gzip:
      return await streamStart(zlib.createGunzip(), packed, target);
    case codecs.brotli:
      return await streamStart(zlib.createBrotliDecompress(), packed, target);
    case codecs.zstd:
      return createZstdDecompress === undefined
        ? zstdStart(packed, target)
        : await streamStart(createZstdDecompress(), packed, target);
    default:
      throw new RangeError(`codec ${codec} is not unpacked here`);
  }
}

async function streamStart(stream: Transform, packed: Uint8Array, target: Uint8Array): Promise<Uint8Array> {
  let filled = 0;
  stream.end(packed);
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    filled = fill(target, filled, chunk);
    if (filled === target.length) {
      break; // which ends the stream
    }
  }
  return whole(target, filled);
}

function zstdStart(packed: Uint8Array, target: Uint8Array): Uint8Array {
  let filled = 0;
  const stream = new Decompress((chunk) => {
    filled = fill(target, filled, chunk);
  });
  for (let at = 0; at < packed.length && filled < target.length; at += pieceBytes) {
    stream.push(packed.subarray(at, at + pieceBytes), at + pieceBytes >= packed.length);
  }
  return whole(target, filled);
}

function fill(target: Uint8Array, filled: number, chunk: Uint8Array): number {
  const part = chunk.subarray(0, target.length - filled);
  target.set(part, filled);
  return filled + part.length;
}

function whole(target: Uint8Array, filled: number): Uint8Array {
  if (filled < target.length) {
    throw new RangeError(`${filled} bytes, ${target.length} are due`);
  }
  return target;
}
