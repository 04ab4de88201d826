import { fitHistogram, type Histogram } from "./histogram.js";

/** Counts by the upper bits of float64 numbers: a block of 1,024 entries for each sign and exponent. */
export interface BinCounts {
  readonly counts: Uint32Array;
  /** By sign and exponent, 1 where something may have been counted. */
  readonly seen: Uint8Array;
}

/** Bits of the fraction that tell entries of a block apart. */
const fractionBits = 10;
const blockLength = 2 ** fractionBits;
/** The number of combinations of a sign and an exponent. */
const blocks = 2 ** 12;

/** Makes empty counts. The system provides memory only for blocks that get numbers. */
export function createBinCounts(): BinCounts {
  return { counts: new Uint32Array(blocks * blockLength), seen: new Uint8Array(blocks) };
}

/** Empties the counts into a histogram of at most `limit` bins. */
export function takeHistogram({ counts, seen }: BinCounts, limit: number): Histogram {
  const half = blocks / 2;
  const negative = seenIn(seen, half, blocks).toReversed();
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
      put(~((block - half) * blockLength + at), counts[block * blockLength + at] as number);
    }
  }
  for (const block of positive) {
    for (let at = 0; at < blockLength; at += 1) {
      put(block * blockLength + at, counts[block * blockLength + at] as number);
    }
  }
  for (const block of [...negative, ...positive]) {
    counts.fill(0, block * blockLength, (block + 1) * blockLength);
  }
  seen.fill(0);
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
