import { nextRun, openRuns, repeatedValue, type Runs } from "./runs.js";

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
  const runs = openRuns(bytes, { at, end, width: 32 - Math.clz32(most) });
  let first = -1;
  let counted = 0;
  let zeros = 0;
  while (counted < count) {
    if (runs.at >= end || !nextRun(runs, count - counted)) {
      throw new RangeError(`it has levels for ${counted} values, its header promises ${count}`);
    }
    const found = runs.isPacked ? countPacked(runs, most) : countRepeated(runs, most);
    first = first < 0 ? found.first : first;
    zeros += found.zeros;
    counted += runs.length;
  }
  return { first, zeros };
}

function countRepeated(runs: Runs, most: number): { first: number; zeros: number } {
  const value = repeatedValue(runs);
  requireAtMost(value, most);
  return { first: value, zeros: value === 0 ? runs.length : 0 };
}

/** The lowest bit first. */
function countPacked({ bytes, width, valuesAt: at, length }: Runs, most: number): { first: number; zeros: number } {
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
