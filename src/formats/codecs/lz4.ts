import { copyLiterals, copyMatch } from "./block-copy.js";

/**
 * LZ4 frames: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md and, for what is in them,
 * https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md. Checksums are skipped: Arrow's writers leave them out.
 */

const magic = 0x184d2204;
const uncompressedBlock = 0x8000_0000;

/** Unpacks one frame into exactly `target`. @throws RangeError where it is damaged, or of another length */
export function unpackLz4(source: Uint8Array, target: Uint8Array): void {
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
  if (filled !== target.length) {
    throw new RangeError(`an LZ4 frame of ${filled} bytes, ${target.length} are due`);
  }
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
