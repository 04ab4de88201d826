import { fitHistogram, type Histogram } from "./histogram.js";

/** Counts by the upper bits of numbers: a block of 1,024 entries for each sign and exponent. */
export interface BinCounts {
  readonly counts: Uint32Array;
  /** By sign and exponent, 1 where something may have been counted. */
  readonly seen: Uint8Array;
}

/** Bits of the fraction that tell entries of a block apart. */
export const binFractionBits = 10;
const blockLength = 2 ** binFractionBits;

/** `exponentBits`: 8 for float32, 11 for float64. Memory is touched where numbers are. */
export function createBinCounts(exponentBits: number): BinCounts {
  const blocks = 2 ** (1 + exponentBits);
  return { counts: new Uint32Array(blocks * blockLength), seen: new Uint8Array(blocks) };
}

/** Empties the counts into a histogram of at most `limit` bins. `keyOfBlock`: the key of a block's first entry. */
export function takeHistogram(
  { counts, seen }: BinCounts,
  limit: number,
  keyOfBlock: (exponent: number) => number,
): Histogram {
  const half = seen.length / 2;
  const negative = seenIn(seen, half, seen.length).toReversed();
  const positive = seenIn(seen, 0, half);
  const keys = new Int32Array((negative.length + positive.length) * blockLength);
  const found = new Float64Array(keys.length);
  let length = 0;
  const put = (key: number, count: number): void => {
    keys[length] = key;
    found[length] = count;
    length += count > 0 ? 1 : 0;
  };
  for (const block of negative) {
    for (let at = blockLength - 1; at >= 0; at -= 1) {
      put(~(keyOfBlock(block - half) + at), counts[block * blockLength + at] as number);
    }
  }
  for (const block of positive) {
    for (let at = 0; at < blockLength; at += 1) {
      put(keyOfBlock(block) + at, counts[block * blockLength + at] as number);
    }
  }
  clearBins({ counts, seen });
  return fitHistogram({ shift: 0, keys: keys.subarray(0, length), counts: found.subarray(0, length) }, limit);
}

function seenIn(seen: Uint8Array, from: number, to: number): number[] {
  const found: number[] = [];
  for (let block = from; block < to; block += 1) {
    if (seen[block] === 1) {
      found.push(block);
    }
  }
  return found;
}

export function clearBins({ counts, seen }: BinCounts): void {
  for (const block of seenIn(seen, 0, seen.length)) {
    counts.fill(0, block * blockLength, (block + 1) * blockLength);
  }
  seen.fill(0);
}
