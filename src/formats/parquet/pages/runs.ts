import { messageOf } from "../../../base/errors.js";
import { type Cursor, readVarint } from "../../../base/thrift.js";

/**
 * Runs of small numbers, repeated or packed to bits: repetition and definition levels, and places in a dictionary.
 * https://github.com/apache/parquet-format/blob/master/Encodings.md#RLE
 */

/** Wider ones would not fit into what unpacking holds; no dictionary has as many entries. */
const widestBits = 24;
/** Readers that count in 32 bits would lose the rest of a longer run. */
const longestRun = 2 ** 31 - 1;

/**
 * Fills `target[0, count)` from bytes [at, end), numbers of `width` bits each.
 * @throws RangeError where there are fewer, or more than the last run of packed ones has, which some writers fill up
 */
export function readRuns(
  bytes: Uint8Array,
  { at, end, width }: { readonly at: number; readonly end: number; readonly width: number },
  target: Uint8Array | Uint32Array,
  count: number,
): void {
  const runs = openRuns(bytes, { at, end, width });
  for (let filled = 0; filled < count; filled += runs.length) {
    nextWholeRun(runs, count - filled);
    if (runs.isPacked) {
      unpackBits(runs.bytes, { at: runs.valuesAt, width }, target, { from: filled, to: filled + runs.length });
    } else {
      target.fill(fittingValue(runs), filled, filled + runs.length);
    }
  }
  // Some writers leave an empty run for pages without values.
  if (count > 0) {
    requireEnd(runs);
  }
}

/** The first number of runs of one bit. @throws RangeError where there is none */
export function firstBit(bytes: Uint8Array, { at, end }: { readonly at: number; readonly end: number }): number {
  const runs = openRuns(bytes, { at, end, width: 1 });
  nextWholeRun(runs, longestRun);
  return runs.isPacked ? (bytes[runs.valuesAt] as number) & 1 : fittingValue(runs);
}

function nextWholeRun(runs: Runs, due: number): void {
  if (!nextRun(runs, due) || runs.repeats > longestRun) {
    throw new RangeError("runs end in the middle");
  }
  const { bytes, isPacked, repeats, length, valuesAt, width } = runs;
  // Of packed ones the last eight may not all be there; what only fills a run up must be.
  const isLonger = isPacked ? repeats * 8 >= length + 8 && valuesAt + repeats * width > bytes.length : repeats > length;
  if (isLonger) {
    throw new RangeError(`a run of ${repeats}, and ${length} numbers are due`);
  }
}

function fittingValue(runs: Runs): number {
  const value = repeatedValue(runs);
  if (value >= 1 << runs.width) {
    throw new RangeError(`the number ${value} in ${runs.width} bits`);
  }
  return value;
}

function requireEnd({ at, bytes }: Runs): void {
  if (at < bytes.length) {
    throw new RangeError(`${bytes.length - at} bytes behind the last run`);
  }
}

/** Runs, up to where the bytes end; and the one that was found last. One object for all: there may be millions. */
interface Runs extends Cursor {
  /** Bits of a number. */
  readonly width: number;
  /** Packed to bits, by eights; else one number, repeated. */
  isPacked: boolean;
  /** What the run's head says: how many times the number is repeated, or how many eights are packed. */
  repeats: number;
  /** The number of the run's numbers that are read. */
  length: number;
  valuesAt: number;
}

function openRuns(
  bytes: Uint8Array,
  { at, end, width }: { readonly at: number; readonly end: number; readonly width: number },
): Runs {
  if (width > widestBits || end > bytes.length) {
    throw new RangeError(`numbers of ${width} bits up to byte ${end} of ${bytes.length}`);
  }
  return { bytes: bytes.subarray(0, end), at, width, isPacked: false, repeats: 0, length: 0, valuesAt: at };
}

function readNumber(cursor: Cursor): number {
  try {
    return readVarint(cursor);
  } catch (error) {
    throw error instanceof RangeError ? error : new RangeError(messageOf(error), { cause: error });
  }
}

/** At most `due` of its numbers are read. False: there is no further run, or its bytes are incomplete. */
function nextRun(runs: Runs, due: number): boolean {
  const head = readNumber(runs);
  const { bytes, at, width } = runs;
  const isPacked = head % 2 === 1;
  const repeats = Math.floor(head / 2);
  const length = Math.min(due, isPacked ? repeats * 8 : repeats);
  const bytesDue = Math.ceil(((isPacked ? length : 1) * width) / 8);
  runs.isPacked = isPacked;
  runs.repeats = repeats;
  runs.length = length;
  runs.valuesAt = at;
  runs.at = at + (isPacked ? repeats * width : bytesDue);
  return length > 0 && at + bytesDue <= bytes.length;
}

function repeatedValue({ bytes, width, valuesAt }: Runs): number {
  let value = 0;
  for (let index = 0; index * 8 < width; index += 1) {
    value |= (bytes[valuesAt + index] as number) << (index * 8);
  }
  return value;
}

/** Whether all numbers, of up to eight bits, are `value` and form one run, as in a page without NULLs. */
export function isOneRun(
  bytes: Uint8Array,
  { at, end, value }: { readonly at: number; readonly end: number; readonly value: number },
  count: number,
): boolean {
  const cursor = { bytes: bytes.subarray(0, end), at };
  const head = readNumber(cursor);
  return head === count * 2 && cursor.at === end - 1 && cursor.bytes[cursor.at] === value;
}

/** Fills `target[from, to)` with the first numbers of a packed run: the lowest bit is first. */
function unpackBits(
  bytes: Uint8Array,
  { at: start, width }: { readonly at: number; readonly width: number },
  target: Uint8Array | Uint32Array,
  { from, to }: { readonly from: number; readonly to: number },
): void {
  const mask = (1 << width) - 1;
  let [at, bits, held] = [start, 0, 0];
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

const levelsAtOnce = 1024;

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
  const levels = new Uint32Array(levelsAtOnce);
  let [first, counted, zeros] = [-1, 0, 0];
  const add = (level: number, times: number): void => {
    if (level > most) {
      throw new RangeError(`it has the level ${level}, where ${most} is the highest`);
    }
    first = first < 0 ? level : first;
    zeros += level === 0 ? times : 0;
  };
  while (counted < count) {
    if (runs.at >= end || !nextRun(runs, count - counted)) {
      throw new RangeError(`it has levels for ${counted} values, its header promises ${count}`);
    }
    const { isPacked, length, valuesAt, width } = runs;
    if (!isPacked) {
      add(repeatedValue(runs), length);
      counted += length;
      continue;
    }
    for (let from = 0; from < length; from += levelsAtOnce) {
      const some = Math.min(levelsAtOnce, length - from);
      unpackBits(bytes, { at: valuesAt + (from * width) / 8, width }, levels, { from: 0, to: some });
      for (let index = 0; index < some; index += 1) {
        add(levels[index] as number, 1);
      }
    }
    counted += length;
  }
  return { first, zeros };
}

/**
 * Whole numbers as DELTA_BINARY_PACKED writes them, as far as lengths need it: from 0 to 2^31 - 1.
 * https://github.com/apache/parquet-format/blob/master/Encodings.md#DELTAENC
 */

/** Wider deltas make numbers that are no lengths. */
const widestDelta = 32;
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
      if (width > widestDelta) {
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
