import { createFloatBits, upperWord } from "./float-bits.js";

/**
 * How often finite numbers occur, in bins of equal relative width: a DDSketch whose bins are read from the bits of a
 * float64 (sign, exponent and the upper 10 bits of the fraction), so that no logarithm differs between machines.
 * Masson, Rim and Lee, "DDSketch" (VLDB 2019); the halving is that of UDDSketch (Epicoco et al., 2020).
 *
 * With `shift` s a bin spans a factor of 1 + 2^(s-10) at most: the middle of a bin is within 2^(s-11) of each value in
 * it, relatively; 0.05 % for s = 0, 1.6 % for s = 5. Where there are more bins than `limit`, each two become one. `shift`
 * is the smallest with which the bins are few enough, so it depends on the values alone, not on who added them when.
 */
export interface Histogram {
  readonly shift: number;
  /** Ascending; the bins that hold something. The bin of zero is 0, those of negative numbers are negative. */
  readonly keys: Int32Array;
  /** The number of values in each bin. */
  readonly counts: Float64Array;
}

export const emptyHistogram: Histogram = { shift: 0, keys: new Int32Array(0), counts: new Float64Array(0) };

/** Bits of a float64's upper word that a key leaves out. */
const keyDropsBits = 10;
const single = createFloatBits(1);

/** The numbers of a bin are between these two; the one next to zero may be in it, the other is in the next. */
export function binEdges(key: number, shift: number): readonly [low: number, high: number] {
  return key >= 0
    ? [magnitudeAt(key, shift), magnitudeAt(key + 1, shift)]
    : [-magnitudeAt(~key + 1, shift), -magnitudeAt(~key, shift)];
}

function magnitudeAt(key: number, shift: number): number {
  const word = key * 2 ** (shift + keyDropsBits);
  single.words[upperWord] = Math.min(word, 0x7fefffff);
  single.words[1 - upperWord] = word > 0x7fefffff ? 0xffffffff : 0;
  return single.values[0] as number;
}

/** The key of the bin that a finite number is in. */
export function binOf(value: number, shift: number): number {
  single.values[0] = Math.abs(value);
  const key = (single.words[upperWord] as number) >>> (keyDropsBits + shift);
  return value < 0 ? ~key : key;
}

/** The same values in bins of this shift, which is no smaller. */
export function coarsen(histogram: Histogram, shift: number): Histogram {
  const by = shift - histogram.shift;
  if (by === 0) {
    return histogram;
  }
  const keys = new Int32Array(histogram.keys.length);
  const counts = new Float64Array(keys.length);
  let last = -1;
  for (let index = 0; index < keys.length; index += 1) {
    const key = (histogram.keys[index] as number) >> by;
    if (last < 0 || keys[last] !== key) {
      last += 1;
      keys[last] = key;
    }
    counts[last] = (counts[last] as number) + (histogram.counts[index] as number);
  }
  return { shift, keys: keys.slice(0, last + 1), counts: counts.slice(0, last + 1) };
}

/** The finest histogram of the same values that has at most `limit` bins, at least 2. */
export function fitHistogram(histogram: Histogram, limit: number): Histogram {
  const { shift, keys } = histogram;
  if (keys.length <= limit) {
    return histogram;
  }
  // Two neighbours stay apart until the highest bit in which they differ is gone.
  const partsAt = new Uint32Array(33);
  for (let index = 1; index < keys.length; index += 1) {
    const bits = 32 - Math.clz32((keys[index - 1] as number) ^ (keys[index] as number));
    partsAt[bits] = (partsAt[bits] as number) + 1;
  }
  let [by, bins] = [0, keys.length];
  while (bins > limit) {
    by += 1;
    bins -= partsAt[by] as number;
  }
  return coarsen(histogram, shift + by);
}

/** Merges two histograms into one of at most `limit` bins. */
export function mergeHistograms(one: Histogram, other: Histogram, limit: number): Histogram {
  const shift = Math.max(one.shift, other.shift);
  const [a, b] = [coarsen(one, shift), coarsen(other, shift)];
  const keys = new Int32Array(a.keys.length + b.keys.length);
  const counts = new Float64Array(keys.length);
  const [endA, endB] = [a.keys.length, b.keys.length];
  let at = 0;
  let atA = 0;
  let atB = 0;
  // The key after the last is above all.
  let keyA = a.keys[0] ?? 0x7fffffff;
  let keyB = b.keys[0] ?? 0x7fffffff;
  while (atA < endA || atB < endB) {
    const key = keyA < keyB ? keyA : keyB;
    keys[at] = key;
    if (keyA === key) {
      counts[at] = a.counts[atA] as number;
      atA += 1;
      keyA = atA < endA ? (a.keys[atA] as number) : 0x7fffffff;
    }
    if (keyB === key) {
      counts[at] = (counts[at] as number) + (b.counts[atB] as number);
      atB += 1;
      keyB = atB < endB ? (b.keys[atB] as number) : 0x7fffffff;
    }
    at += 1;
  }
  return fitHistogram({ shift, keys: keys.slice(0, at), counts: counts.slice(0, at) }, limit);
}

function countIn(counts: Float64Array): number {
  let sum = 0;
  for (let index = 0; index < counts.length; index += 1) {
    sum += counts[index] as number;
  }
  return sum;
}

/** Smaller numbers count as zero, in whose bin they are. */
const smallestNormal = 2 ** -1022;

/**
 * The number below which a share of the values is, 0 to 1; spread evenly inside a bin. In the bin of zero it is 0: even with 16
 * bins for all numbers, no other number in that bin exceeds 1e-230. NaN where there is none.
 */
export function quantile(histogram: Histogram, share: number): number {
  const { shift, keys, counts } = histogram;
  const { index, inside } = findQuantile(histogram, share);
  if (index === counts.length) {
    return Number.NaN;
  }
  const key = keys[index] as number;
  const [low, high] = binEdges(key, shift);
  const found = low + inside * (high - low);
  return key === 0 || Math.abs(found) < smallestNormal ? 0 : found;
}

/** The index of the bin that a quantile is in; the number of bins for an empty histogram. */
export function quantileBin(histogram: Histogram, share: number): number {
  return findQuantile(histogram, share).index;
}

/** Finds the bin of a quantile. `inside`: the share of the bin's values that do not exceed the quantile. */
export function findQuantile(
  { counts }: Pick<Histogram, "counts">,
  share: number,
): { readonly index: number; readonly inside: number } {
  const due = share * countIn(counts);
  let below = 0;
  for (let index = 0; index < counts.length; index += 1) {
    const count = counts[index] as number;
    if (below + count >= due) {
      return { index, inside: (due - below) / count };
    }
    below += count;
  }
  return { index: counts.length, inside: 0 };
}
