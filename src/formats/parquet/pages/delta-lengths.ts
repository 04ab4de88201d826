/**
 * Whole numbers as DELTA_BINARY_PACKED writes them, as far as lengths need it: from 0 to 2^31 - 1.
 * https://github.com/apache/parquet-format/blob/master/Encodings.md#DELTAENC
 */
import type { Cursor } from "../../../util/thrift.js";
import { readNumber } from "./runs.js";

/** Wider deltas make numbers that are no lengths. */
const widestBits = 32;
const lengthLimit = 2 ** 31;

/** Reads the numbers at the cursor, and moves it behind them. @throws RangeError where they are no lengths */
export function readLengths(cursor: Cursor, most: number): Int32Array {
  const blockValues = readNumber(cursor);
  const miniblocks = readNumber(cursor);
  const count = readNumber(cursor);
  const perMiniblock = blockValues / miniblocks;
  if (count > most || !(perMiniblock >= 8) || perMiniblock % 8 !== 0) {
    throw new RangeError(`${count} lengths in blocks of ${blockValues}, ${most} are due`);
  }
  const lengths = new Int32Array(count);
  let value = signed(readNumber(cursor));
  put(lengths, 0, value);
  for (let filled = 1; filled < count; ) {
    const least = signed(readNumber(cursor));
    const widths = take(cursor, miniblocks);
    for (let miniblock = 0; miniblock < miniblocks && filled < count; miniblock += 1) {
      const width = widths[miniblock] as number;
      if (width > widestBits) {
        throw new RangeError(`lengths that differ by numbers of ${width} bits`);
      }
      const packed = take(cursor, (perMiniblock / 8) * width);
      const end = Math.min(count, filled + perMiniblock);
      for (let index = 0; filled < end; index += 1, filled += 1) {
        value += least + unpacked(packed, index * width, width);
        put(lengths, filled, value);
      }
    }
  }
  return lengths;
}

function put(lengths: Int32Array, index: number, value: number): void {
  if (index < lengths.length) {
    if (!(value >= 0 && value < lengthLimit)) {
      throw new RangeError(`a length of ${value}`);
    }
    lengths[index] = value;
  }
}

function signed(value: number): number {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
}

function take(cursor: Cursor, size: number): Uint8Array {
  const { bytes, at } = cursor;
  if (at + size > bytes.length) {
    throw new RangeError("lengths end in the middle");
  }
  cursor.at += size;
  return bytes.subarray(at, at + size);
}

/** `width` bits from bit `from` on, the lowest first. */
function unpacked(bytes: Uint8Array, from: number, width: number): number {
  let value = 0;
  let scale = 1;
  for (let bit = from; bit < from + width; ) {
    const inByte = bit & 7;
    const taken = Math.min(8 - inByte, from + width - bit);
    value += (((bytes[bit >> 3] as number) >> inByte) & ((1 << taken) - 1)) * scale;
    scale *= 2 ** taken;
    bit += taken;
  }
  return value;
}
