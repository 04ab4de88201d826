import * as zlib from "node:zlib";
import { messageOf } from "../../../util/errors.js";
import { unpackLz4Start } from "../../codecs/lz4.js";
import { unpackSnappyStart } from "../../codecs/snappy.js";
import { streamStart } from "../../codecs/stream-start.js";
import { unpackZstdStart } from "../../codecs/zstd.js";
import { codecs } from "./codecs.js";

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
      return whole(target, await streamStart(zlib.createGunzip(), packed, target));
    case codecs.brotli:
      return whole(target, await streamStart(zlib.createBrotliDecompress(), packed, target));
    case codecs.zstd:
      return whole(target, await unpackZstdStart(packed, target));
    default:
      throw new RangeError(`codec ${codec} is not unpacked here`);
  }
}

function whole(target: Uint8Array, filled: number): Uint8Array {
  if (filled < target.length) {
    throw new RangeError(`${filled} bytes, ${target.length} are due`);
  }
  return target;
}
