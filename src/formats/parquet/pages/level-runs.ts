import { readVarint } from "../footer/thrift.js";

/** Bits that are set, by byte. */
const ones = Uint8Array.from({ length: 256 }, (_, byte) => {
  let count = 0;
  for (let bits = byte; bits > 0; bits >>= 1) {
    count += bits & 1;
  }
  return count;
});

/**
 * Counts the zeros of `count` levels, 0 to `most` (at least 1) each, which are runs in bytes [at, end). More levels than
 * these, or bytes behind them, are no fault: writers fill the last run up.
 * https://github.com/apache/parquet-format/blob/master/Encodings.md#RLE
 * @throws RangeError where there are fewer, or where one is above `most`
 */
export function countLevels(
  bytes: Uint8Array,
  { at, end, most }: { readonly at: number; readonly end: number; readonly most: number },
  count: number,
): { readonly first: number; readonly zeros: number } {
  const width = 32 - Math.clz32(most);
  const cursor = { bytes: bytes.subarray(0, end), at };
  let first = -1;
  let counted = 0;
  let zeros = 0;
  while (counted < count) {
    if (cursor.at >= end) {
      throw new RangeError(`it has levels for ${counted} values, its header promises ${count}`);
    }
    const head = readVarint(cursor);
    const repeats = Math.floor(head / 2);
    const isPacked = head % 2 === 1;
    const length = Math.min(count - counted, isPacked ? repeats * 8 : repeats);
    const size = Math.ceil(((isPacked ? length : 1) * width) / 8);
    if (length === 0 || cursor.at + size > end) {
      throw new RangeError(`it has levels for ${counted} values, its header promises ${count}`);
    }
    const run = { at: cursor.at, width, most };
    const found = isPacked ? countPacked(bytes, run, length) : repeated(bytes, run, length);
    first = first < 0 ? found.first : first;
    zeros += found.zeros;
    counted += length;
    cursor.at += isPacked ? repeats * width : size;
  }
  return { first, zeros };
}

interface Run {
  readonly at: number;
  /** Bits of a level. */
  readonly width: number;
  readonly most: number;
}

function repeated(bytes: Uint8Array, { at, width, most }: Run, length: number): { first: number; zeros: number } {
  let value = 0;
  for (let index = 0; index * 8 < width; index += 1) {
    value += (bytes[at + index] as number) * 256 ** index;
  }
  requireAtMost(value, most);
  return { first: value, zeros: value === 0 ? length : 0 };
}

/** The lowest bit first. */
function countPacked(bytes: Uint8Array, { at, width, most }: Run, length: number): { first: number; zeros: number } {
  const mask = 2 ** width - 1;
  const first = (bytes[at] as number) & mask;
  if (width === 1) {
    let set = 0;
    for (let index = 0; index < length >> 3; index += 1) {
      set += ones[bytes[at + index] as number] as number;
    }
    if ((length & 7) !== 0) {
      set += ones[(bytes[at + (length >> 3)] as number) & ((1 << (length & 7)) - 1)] as number;
    }
    return { first, zeros: length - set };
  }
  let zeros = 0;
  let [held, bits, next] = [0, 0, at];
  for (let index = 0; index < length; index += 1) {
    while (bits < width) {
      held |= (bytes[next] as number) << bits;
      next += 1;
      bits += 8;
    }
    const level = held & mask;
    requireAtMost(level, most);
    zeros += level === 0 ? 1 : 0;
    held >>>= width;
    bits -= width;
  }
  return { first, zeros };
}

function requireAtMost(level: number, most: number): void {
  if (level > most) {
    throw new RangeError(`it has the level ${level}, where ${most} is the highest`);
  }
}
