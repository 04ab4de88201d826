/**
 * Runs of small numbers, repeated or packed to bits: definition levels, and places in a dictionary.
 * https://github.com/apache/parquet-format/blob/master/Encodings.md#RLE
 */
import { readVarint } from "../footer/thrift.js";

/** Wider ones would not fit into what unpacking holds; no dictionary has as many entries. */
const widestBits = 24;
/** Readers that count in 32 bits would lose the rest of a longer run. */
const longestHead = 2 ** 32 - 1;

/**
 * Fills `target[0, count)` from bytes [at, end), numbers of `width` bits each.
 * @throws RangeError where there are fewer, or more than the last run of packed ones has, which some writers fill up
 */
export function readRuns(
  bytes: Uint8Array,
  { at: start, end, width }: { readonly at: number; readonly end: number; readonly width: number },
  target: Uint8Array | Uint32Array,
  count: number,
): void {
  if (width > widestBits || end > bytes.length) {
    throw new RangeError(`numbers of ${width} bits up to byte ${end} of ${bytes.length}`);
  }
  const cursor = { bytes: bytes.subarray(0, end), at: start };
  let filled = 0;
  while (filled < count) {
    const head = readVarint(cursor);
    const { at } = cursor;
    const isPacked = head % 2 === 1;
    const repeats = Math.floor(head / 2);
    const length = Math.min(count - filled, isPacked ? repeats * 8 : repeats);
    const size = isPacked ? Math.ceil((length * width) / 8) : Math.ceil(width / 8);
    if (length === 0 || at + size > end || head > longestHead) {
      throw new RangeError("runs end in the middle");
    }
    // Of packed ones the last eight may not all be there; what only fills a run up must be.
    const isLonger = isPacked ? repeats * 8 >= length + 8 && at + repeats * width > end : repeats > length;
    if (isLonger) {
      throw new RangeError(`a run of ${repeats}, and ${length} numbers are due`);
    }
    if (isPacked) {
      unpackBits(bytes, at, width, target, { from: filled, to: filled + length });
      cursor.at = at + repeats * width;
    } else {
      let value = 0;
      for (let index = 0; index < size; index += 1) {
        value |= (bytes[at + index] as number) << (index * 8);
      }
      if (value >= 1 << width) {
        throw new RangeError(`the number ${value} in ${width} bits`);
      }
      target.fill(value, filled, filled + length);
      cursor.at = at + size;
    }
    filled += length;
  }
  // Where nothing is due, some writers leave an empty run.
  if (count > 0 && cursor.at < end) {
    throw new RangeError(`${end - cursor.at} bytes behind the last run`);
  }
}

/** Whether numbers of one bit are all `value`, and written as one run: as they are where nothing is NULL. */
export function isOneRun(
  bytes: Uint8Array,
  { at, end, value }: { readonly at: number; readonly end: number; readonly value: number },
  count: number,
): boolean {
  const cursor = { bytes: bytes.subarray(0, end), at };
  const head = readVarint(cursor);
  return head === count * 2 && cursor.at === end - 1 && cursor.bytes[cursor.at] === value;
}

/** Fills `target[from, to)` with numbers of `width` bits, the lowest bit first. */
function unpackBits(
  bytes: Uint8Array,
  start: number,
  width: number,
  target: Uint8Array | Uint32Array,
  { from, to }: { readonly from: number; readonly to: number },
): void {
  const mask = (1 << width) - 1;
  let at = start;
  let held = 0;
  let bits = 0;
  for (let index = from; index < to; index += 1) {
    while (bits < width) {
      held |= (bytes[at] as number) << bits;
      at += 1;
      bits += 8;
    }
    target[index] = held & mask;
    held >>>= width;
    bits -= width;
  }
}
