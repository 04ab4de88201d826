/**
 * How often 32-bit keys occur, in bins that are as fine as their number allows.
 *
 * A number's key is the upper word of its float64 in an order that keeps that of the numbers: six significant digits. A
 * text's key is its hash. A bin with `shift` s has the keys that agree in all but their last s bits, so bins of numbers
 * have equal relative widths, as in a DDSketch (Masson, Rim and Lee, VLDB 2019), and columns of few different values have
 * a bin for each. Where there are more bins than a limit, each two become one. The shift is the smallest with which the
 * bins are few enough, so it depends on the values alone, neither on who counted them nor on the order.
 */
export interface Histogram {
  readonly shift: number;
  /** Ascending, without those that did not occur: each the upper 32 - shift bits of keys. */
  readonly keys: readonly number[];
  readonly counts: readonly number[];
}

export const emptyHistogram: Histogram = { shift: 0, keys: [], counts: [] };

const single = new Float64Array(1);
const words = new Int32Array(single.buffer);
const upper = new Uint32Array(BigUint64Array.of(1n).buffer)[0] === 1 ? 1 : 0;

export function keyOfNumber(value: number): number {
  single[0] = value + 0; // -0 is 0
  const word = words[upper] as number;
  return (word ^ ((word >> 31) | 0x80000000)) >>> 0;
}

const infiniteWord = 0x7ff00000;

/** The number of a key that is next to zero in its bin of shift 0. */
function numberOfKey(key: number): number {
  const isNegative = key < 0x80000000;
  const word = isNegative ? ~key & 0x7fffffff : key & 0x7fffffff;
  if (word >= infiniteWord) {
    return isNegative ? -Number.MAX_VALUE : Number.MAX_VALUE;
  }
  words[upper] = word;
  words[1 - upper] = 0;
  return isNegative ? -(single[0] as number) : (single[0] as number);
}

/** The numbers that a bin has are between these two. */
export function rangeOfBin(key: number, shift: number): readonly [low: number, high: number] {
  const [first, next] = [key * 2 ** shift, (key + 1) * 2 ** shift];
  const low = first < 0x80000000 ? numberOfKey(Math.max(0, first - 1)) : numberOfKey(first);
  const high = next <= 0x80000000 ? numberOfKey(next - 1) : numberOfKey(Math.min(next, 0xffffffff));
  return [low, high];
}

/** A finite hash of some bytes, for keys of texts: four bytes at a time as FNV-1a takes one, then as MurmurHash3 ends. */
export function keyOfBytes(bytes: Uint8Array, from: number, to: number, salt: number): number {
  let hash = 0x811c9dc5 ^ (to - from) ^ salt;
  let at = from;
  for (; at + 3 < to; at += 4) {
    const low = (bytes[at] as number) | ((bytes[at + 1] as number) << 8);
    const high = (bytes[at + 2] as number) | ((bytes[at + 3] as number) << 8);
    hash = Math.imul(hash ^ low ^ (high << 16), 0x01000193);
    hash ^= hash >>> 15;
  }
  for (; at < to; at += 1) {
    hash = Math.imul(hash ^ (bytes[at] as number), 0x01000193);
  }
  return mixHash(hash);
}

export function mixHash(hash: number): number {
  const first = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  const second = Math.imul(first ^ (first >>> 13), 0xc2b2ae35);
  return (second ^ (second >>> 16)) >>> 0;
}

export interface KeyCounter {
  add(key: number, rows: number): void;
  finish(): Histogram;
}

/** Slots of a table; the upper bits of a key's product say which is its own. */
export const tableSlots = 4096;
const slotBits = 20;
export const mostBins = 1024;

/** What a slot counts to, and no further. */
const mostRows = 2 ** 32 - 1;

/** A hash table of keys without their last bits, which are more the more keys there are. Between two uses it is empty. */
export class BinTable {
  readonly keys: Uint32Array;
  /** How often each key came; 0: the slot is free. */
  readonly counts: Uint32Array;
  /** The slots that have keys. */
  readonly filled: Uint32Array;
  /** How many those are: one number. */
  readonly used: Uint32Array;
  shift = 0;

  constructor(
    keys = new Uint32Array(tableSlots),
    counts = new Uint32Array(tableSlots),
    filled = new Uint32Array(mostBins + 1),
    used = new Uint32Array(1),
  ) {
    [this.keys, this.counts, this.filled, this.used] = [keys, counts, filled, used];
  }

  put(key: number, rows: number): void {
    const { keys, counts, filled, used } = this;
    let slot = Math.imul(key, 0x9e3779b1) >>> slotBits;
    while (counts[slot] !== 0 && keys[slot] !== key) {
      slot = (slot + 1) & (tableSlots - 1);
    }
    if (counts[slot] === 0) {
      keys[slot] = key;
      filled[used[0] as number] = slot;
      used[0] = (used[0] as number) + 1;
    }
    counts[slot] = Math.min((counts[slot] as number) + rows, mostRows);
  }

  /** Leaves out the last bits of keys until they are few enough. */
  limit(bins: number): void {
    if ((this.used[0] as number) > bins) {
      const taken = this.take();
      const bits = bitsToLose(takenKeys.subarray(0, taken).toSorted(), bins);
      this.shift += bits;
      for (let index = 0; index < taken; index += 1) {
        this.put((takenKeys[index] as number) >>> bits, takenRows[index] as number);
      }
    }
  }

  /** Leaves out keys that are not below this. */
  keepBelow(end: number): void {
    const taken = this.take();
    for (let index = 0; index < taken; index += 1) {
      if ((takenKeys[index] as number) < end) {
        this.put(takenKeys[index] as number, takenRows[index] as number);
      }
    }
  }

  /** Moves all keys to `takenKeys` and `takenRows`. @returns how many they are */
  private take(): number {
    const { filled, keys, counts, used } = this;
    const length = used[0] as number;
    for (let index = 0; index < length; index += 1) {
      const slot = filled[index] as number;
      takenKeys[index] = keys[slot] as number;
      takenRows[index] = counts[slot] as number;
      counts[slot] = 0;
    }
    used[0] = 0;
    return length;
  }

  finish(): Histogram {
    const { shift, used } = this;
    // Keys and their slots as numbers, which are sorted without a function to compare them.
    const ordered = new Float64Array(used[0] as number);
    for (let index = 0; index < ordered.length; index += 1) {
      const slot = this.filled[index] as number;
      ordered[index] = (this.keys[slot] as number) * tableSlots + slot;
    }
    ordered.sort();
    const keys: number[] = [];
    const counts: number[] = [];
    for (const place of ordered) {
      const slot = place % tableSlots;
      keys.push(this.keys[slot] as number);
      counts.push(this.counts[slot] as number);
      this.counts[slot] = 0;
    }
    used[0] = 0;
    this.shift = 0;
    return { shift, keys, counts };
  }
}

const takenKeys = new Uint32Array(mostBins + 1);
const takenRows = new Uint32Array(mostBins + 1);

/** The last table that was used, since a span has many pieces. */
let spare: BinTable | undefined;

/** @param bins the most bins of the histogram, at most 1,024 */
export function countKeys(bins: number): KeyCounter {
  const table = spare ?? new BinTable();
  spare = undefined;
  return {
    add(key, rows) {
      table.put(key >>> table.shift, rows);
      table.limit(bins);
    },
    finish() {
      spare = table;
      return table.finish();
    },
  };
}

/** The same counts in bins of this shift, which is no smaller. */
export function coarsen(histogram: Histogram, shift: number): Histogram {
  const by = shift - histogram.shift;
  if (by === 0) {
    return histogram;
  }
  const keys: number[] = [];
  const counts: number[] = [];
  for (const [index, fine] of histogram.keys.entries()) {
    const key = by >= 32 ? 0 : fine >>> by;
    const rows = histogram.counts[index] as number;
    if (keys.at(-1) === key) {
      counts[counts.length - 1] = (counts.at(-1) as number) + rows;
    } else {
      keys.push(key);
      counts.push(rows);
    }
  }
  return { shift, keys, counts };
}

/** The fewest last bits without which there are at most so many different keys, of ascending ones. */
function bitsToLose(keys: ArrayLike<number>, bins: number): number {
  // Neighbours become one as soon as they have lost the bits in which they differ.
  const pairs = new Uint32Array(33);
  for (let index = 1; index < keys.length; index += 1) {
    const differing = 32 - Math.clz32((keys[index - 1] as number) ^ (keys[index] as number));
    pairs[differing] = (pairs[differing] as number) + 1;
  }
  let bits = 0;
  for (let left = keys.length; left > bins; left -= pairs[bits] as number) {
    bits += 1;
  }
  return bits;
}

/** The counts of all, in at most `bins` bins. */
export function mergeHistograms(histograms: readonly Histogram[], bins: number): Histogram {
  const shift = Math.max(0, ...histograms.map((histogram) => histogram.shift));
  const merged = histograms.map((histogram) => coarsen(histogram, shift)).reduce(added, { ...emptyHistogram, shift });
  return coarsen(merged, shift + bitsToLose(merged.keys, bins));
}

/** Adds counts in bins of the same width. */
function added(first: Histogram, second: Histogram): Histogram {
  const keys: number[] = [];
  const counts: number[] = [];
  let [left, right] = [0, 0];
  while (left < first.keys.length || right < second.keys.length) {
    const leftKey = first.keys[left] ?? Number.POSITIVE_INFINITY;
    const rightKey = second.keys[right] ?? Number.POSITIVE_INFINITY;
    let rows = 0;
    if (leftKey <= rightKey) {
      rows += first.counts[left] as number;
      left += 1;
    }
    if (rightKey <= leftKey) {
      rows += second.counts[right] as number;
      right += 1;
    }
    keys.push(Math.min(leftKey, rightKey));
    counts.push(rows);
  }
  return { shift: first.shift, keys, counts };
}

export function rowsIn({ counts }: Histogram): number {
  return counts.reduce((sum, rows) => sum + rows, 0);
}

/** Bins of which each has this or less of a number's width have one value each. */
const exactWidth = 1e-5;

/** undefined: there are none. A bin's numbers are spread evenly over it. @param range smallest and largest number */
export function quantile(
  { keys, counts, shift }: Histogram,
  share: number,
  [least, largest] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY],
): number | undefined {
  const wanted = share * counts.reduce((sum, rows) => sum + rows, 0);
  let below = 0;
  for (const [index, rows] of counts.entries()) {
    if (below + rows >= wanted && rows > 0) {
      const [low, high] = rangeOfBin(keys[index] as number, shift);
      const [from, to] = [Math.max(low, least), Math.min(high, largest)];
      if (low <= 0 && high >= 0 && high - low < Number.MIN_VALUE * 2 ** 64) {
        return 0;
      }
      const between = from + ((to - from) * Math.max(0, wanted - below)) / rows;
      // A float32 such as 18.9 has a key of six digits.
      return Math.abs(high - low) <= exactWidth * Math.abs(high) ? Number(((low + high) / 2).toPrecision(6)) : between;
    }
    below += rows;
  }
  return undefined;
}
