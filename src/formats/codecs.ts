import { unpackSnappyHere } from "../columns/loops/page-loops.js";
import * as zlib from "node:zlib";
import { Decompress } from "fzstd";
import { messageOf } from "../base/errors.js";

/** Longer runs are copied by the engine. */
const longRun = 32;

function copyLiterals(target: Uint8Array, filled: number, source: Uint8Array, at: number, length: number): void {
  if (length >= longRun) {
    target.set(source.subarray(at, at + length), filled);
    return;
  }
  for (let index = 0; index < length; index += 1) {
    target[filled + index] = source[at + index] as number;
  }
}

function copyMatch(target: Uint8Array, filled: number, distance: number, length: number): void {
  if (distance >= length && length >= longRun) {
    target.copyWithin(filled, filled - distance, filled - distance + length);
    return;
  }
  for (let index = filled; index < filled + length; index += 1) {
    target[index] = target[index - distance] as number;
  }
}

/**
 * LZ4 frames: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md and, for what is in them,
 * https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md. Checksums are skipped: Arrow's writers leave them out.
 */

const magic = 0x184d2204;
const uncompressedBlock = 0x8000_0000;

/** Unpacks one frame into exactly `target`. @throws RangeError where it is damaged, or of another length */
export function unpackLz4(source: Uint8Array, target: Uint8Array): void {
  const filled = fillFromLz4(source, target);
  if (filled !== target.length) {
    throw new RangeError(`an LZ4 frame of ${filled} bytes, ${target.length} are due`);
  }
}

/** Unpacks one frame that does not say how long it is. @throws RangeError where it is damaged, or longer than that */
export function unpackLz4Frame(source: Uint8Array, mostBytes: number): Uint8Array {
  const view = new DataView(source.buffer, source.byteOffset, source.byteLength);
  const blockBytes = 2 ** (8 + 2 * ((view.getUint8(5) >> 4) & 7));
  const [head, checksum] = [7 + ((view.getUint8(4) & 8) === 0 ? 0 : 8), (view.getUint8(4) & 0x10) === 0 ? 0 : 4];
  let blocks = 0;
  for (let at = head; view.getUint32(at, true) !== 0; blocks += 1) {
    at += 4 + (view.getUint32(at, true) & ~uncompressedBlock) + checksum;
  }
  const target = new Uint8Array(Math.min(mostBytes, blocks * blockBytes));
  return target.subarray(0, fillFromLz4(source, target));
}

/** Unpacks one frame, and returns how long it is. */
function fillFromLz4(source: Uint8Array, target: Uint8Array): number {
  const view = new DataView(source.buffer, source.byteOffset, source.byteLength);
  if (view.getUint32(0, true) !== magic) {
    throw new RangeError("no LZ4 frame");
  }
  const flags = view.getUint8(4);
  const hasDictionary = (flags & 1) !== 0;
  if (flags >> 6 !== 1 || hasDictionary) {
    throw new RangeError("an LZ4 frame of another version, or with a dictionary");
  }
  const checksumBytes = (flags & 0x10) === 0 ? 0 : 4;
  let at = 7 + ((flags & 8) === 0 ? 0 : 8);
  let filled = 0;
  for (;;) {
    const size = view.getUint32(at, true);
    at += 4;
    if (size === 0) {
      break;
    }
    const length = size & ~uncompressedBlock;
    const end = at + length;
    if (length < 0 || end > source.length) {
      throw new RangeError("an LZ4 block reaches outside");
    }
    if ((size & uncompressedBlock) === 0) {
      filled = unpackBlock(source, { at, end }, target, filled);
    } else {
      if (filled + length > target.length) {
        throw new RangeError("an LZ4 frame is longer than it says");
      }
      target.set(source.subarray(at, end), filled);
      filled += length;
    }
    at = end + checksumBytes;
  }
  return filled;
}

/** Fills `target` with the first bytes of a block that is in no frame. @throws RangeError where it is damaged before */
export function unpackLz4Start(source: Uint8Array, target: Uint8Array): void {
  const filled = unpackBlock(source, { at: 0, end: source.length, isStart: true }, target, 0);
  if (filled < target.length) {
    throw new RangeError(`an LZ4 block of ${filled} bytes, ${target.length} are due`);
  }
}

/** `isStart`: the block may have more than fills the target. */
function unpackBlock(
  source: Uint8Array,
  { at: start, end, isStart = false }: { at: number; end: number; isStart?: boolean },
  target: Uint8Array,
  from: number,
): number {
  let at = start;
  let filled = from;
  const fitting = (length: number): number => (isStart ? Math.min(length, target.length - filled) : length);
  const fullAt = isStart ? target.length : Number.POSITIVE_INFINITY;
  while (at < end && filled < fullAt) {
    const token = source[at] as number;
    at += 1;
    let literals = token >> 4;
    for (let more = literals === 15 ? 255 : 0; more === 255; at += 1) {
      more = at < end ? (source[at] as number) : 256;
      literals += more;
    }
    const taken = fitting(literals);
    if (at + literals > end || filled + taken > target.length) {
      throw new RangeError("an LZ4 block's literals reach outside");
    }
    copyLiterals(target, filled, source, at, taken);
    at += literals;
    filled += taken;
    if (at === end) {
      break; // the last sequence has no match
    }
    const distance = at + 1 < end ? (source[at] as number) | ((source[at + 1] as number) << 8) : 0;
    at += 2;
    let length = (token & 15) + 4;
    for (let more = length === 19 ? 255 : 0; more === 255; at += 1) {
      more = at < end ? (source[at] as number) : 256;
      length += more;
    }
    length = fitting(length);
    if (distance === 0 || distance > filled || at > end || filled + length > target.length) {
      throw new RangeError("an LZ4 block's match reaches outside");
    }
    copyMatch(target, filled, distance, length);
    filled += length;
  }
  return filled;
}

/** Unpacks one block of Snappy into exactly `target`: https://github.com/google/snappy/blob/main/format_description.txt
 * @throws RangeError where it is damaged, or of another length
 */
export function unpackSnappy(source: Uint8Array, target: Uint8Array): void {
  const elements = skipLength(source, target.length);
  if (!unpackSnappyHere(source.subarray(elements), target)) {
    unpackElements(source, elements, target, { isStart: false }); // a damaged block is reported here
  }
}

/** Fills `target` with the first bytes of a block of `wholeBytes`. @throws RangeError where it is damaged before */
export function unpackSnappyStart(source: Uint8Array, target: Uint8Array, wholeBytes: number): void {
  unpackElements(source, skipLength(source, wholeBytes), target, { isStart: true });
}

/** `isStart`: the block may have more than fills the target. */
function unpackElements(
  source: Uint8Array,
  start: number,
  target: Uint8Array,
  { isStart }: { readonly isStart: boolean },
): void {
  let at = start;
  let filled = 0;
  const fitting = (length: number): number => (isStart ? Math.min(length, target.length - filled) : length);
  const fullAt = isStart ? target.length : Number.POSITIVE_INFINITY;
  while (at < source.length && filled < fullAt) {
    const tag = source[at] as number;
    at += 1;
    if ((tag & 3) === 0) {
      let length = tag >> 2;
      if (length >= longLiteral) {
        const bytes = length - longLiteral + 1;
        length = littleEndian(source, at, bytes);
        at += bytes;
      }
      length += 1;
      const taken = fitting(length);
      if (at + length > source.length || filled + taken > target.length) {
        throw new RangeError("a Snappy block's literals reach outside");
      }
      copyLiterals(target, filled, source, at, taken);
      at += length;
      filled += taken;
      continue;
    }
    const isShort = (tag & 3) === 1;
    const length = fitting(isShort ? ((tag >> 2) & 7) + 4 : (tag >> 2) + 1);
    const bytes = isShort ? 1 : (tag & 3) === 2 ? 2 : 4;
    const distance = littleEndian(source, at, bytes) + (isShort ? (tag >> 5) * 256 : 0);
    at += bytes;
    if (distance === 0 || distance > filled || filled + length > target.length) {
      throw new RangeError("a Snappy block's match reaches outside");
    }
    copyMatch(target, filled, distance, length);
    filled += length;
  }
  if (filled !== target.length) {
    throw new RangeError(`a Snappy block of ${filled} bytes, ${target.length} are due`);
  }
}

/** From this value on, the tag says how many bytes the length has. */
const longLiteral = 60;
const lengthBytes = 5;

/** A block begins with its length, as a varint; returns where its elements begin. */
function skipLength(source: Uint8Array, due: number): number {
  let length = 0;
  for (let at = 0; at < lengthBytes; at += 1) {
    const byte = source[at];
    if (byte === undefined) {
      break;
    }
    length += (byte & 127) * 128 ** at;
    if (byte < 128) {
      if (length !== due) {
        throw new RangeError(`a Snappy block of ${length} bytes, ${due} are due`);
      }
      return at + 1;
    }
  }
  throw new RangeError("a Snappy block without its length");
}

function littleEndian(source: Uint8Array, at: number, bytes: number): number {
  if (at + bytes > source.length) {
    throw new RangeError("a Snappy block ends in the middle");
  }
  let value = source[at] as number;
  if (bytes > 1) {
    value |= (source[at + 1] as number) << 8;
  }
  if (bytes > 2) {
    value |= (source[at + 2] as number) << 16;
  }
  return bytes > 3 ? value + (source[at + 3] as number) * 2 ** 24 : value;
}

type Unpack = (data: Uint8Array, options: { maxOutputLength: number; finishFlush?: number }) => Buffer<ArrayBuffer>;

/** Node has them since 22.15. */
const { zstdDecompressSync } = zlib as { zstdDecompressSync?: Unpack };

/** Whether frames are unpacked by native code. */
export const isZstdNative = zstdDecompressSync !== undefined;

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

/** Unpacks a frame that does not say how long it is. @throws RangeError where it is damaged, or longer than that */
export function unpackZstdFrame(packed: Uint8Array, mostBytes: number): Uint8Array {
  try {
    return zstdDecompressSync?.(packed, { maxOutputLength: mostBytes }) ?? unpackFrameHere(packed, mostBytes);
  } catch (error) {
    throw new RangeError(`a zstd frame is damaged: ${messageOf(error)}`, { cause: error });
  }
}

function unpackFrameHere(packed: Uint8Array, mostBytes: number): Uint8Array {
  const chunks: Uint8Array[] = [];
  let filled = 0;
  const stream = new Decompress((chunk) => {
    filled += chunk.length;
    if (filled > mostBytes) {
      throw new RangeError(`it has more than ${mostBytes} bytes`);
    }
    chunks.push(chunk.slice());
  });
  stream.push(packed, true);
  return Buffer.concat(chunks);
}

/** Unpacks a block of Snappy, which begins with its length. @throws RangeError where it is damaged, or longer than that */
export function unpackSnappyBlock(source: Uint8Array, mostBytes: number): Uint8Array {
  let length = 0;
  for (let at = 0; at < lengthBytes; at += 1) {
    const byte = source[at] ?? 0;
    length += (byte & 127) * 128 ** at;
    if (byte < 128) {
      break;
    }
  }
  if (length > mostBytes) {
    throw new RangeError(`a Snappy block of ${length} bytes`);
  }
  const target = new Uint8Array(length);
  unpackSnappy(source, target);
  return target;
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
