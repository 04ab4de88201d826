import { copyLiterals, copyMatch } from "./block-copy.js";
import { unpackSnappyHere } from "../../columnar/memory/page-loops.js";

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
