import type { NumberedTexts, Texts } from "./tensor.js";
import type { BytesColumn, Codes } from "./types.js";

/** Longer ones, in bytes, are not looked for: each is an entry, as they seldom repeat. */
const longText = 64;

/** FNV-1a. */
const [hashBase, hashFactor] = [0x811c9dc5, 0x01000193];

/** Finds the texts that differ, in the order in which they come first. */
export function numberTexts({ offsets, bytes }: Pick<BytesColumn, "offsets" | "bytes">): NumberedTexts {
  const count = offsets.length - 1;
  const indices = new BigInt64Array(count);
  const low = new Int32Array(indices.buffer); // all machines that Node supports have the low word first
  // Open addressing: the number of an entry, plus one; 0: free.
  const slots = new Int32Array(tableSize(count));
  const mask = slots.length - 1;
  const firsts = new Uint32Array(count);
  let found = 0;
  for (let index = 0; index < count; index += 1) {
    const from = offsets[index] as number;
    const to = offsets[index + 1] as number;
    let entry = found;
    if (to - from <= longText) {
      let hash = hashBase;
      for (let at = from; at < to; at += 1) {
        hash = Math.imul(hash ^ (bytes[at] as number), hashFactor);
      }
      let slot = (hash ^ (hash >>> 15)) & mask;
      for (; slots[slot] !== 0; slot = (slot + 1) & mask) {
        const other = (slots[slot] as number) - 1;
        if (isSame(bytes, { from, to }, offsets, firsts[other] as number)) {
          entry = other;
          break;
        }
      }
      slots[slot] = entry + 1;
    }
    if (entry === found) {
      firsts[found] = index;
      found += 1;
    }
    low[index * 2] = entry;
  }
  return { entries: takeTexts({ offsets, bytes }, firsts.subarray(0, found)), indices };
}

function tableSize(count: number): number {
  return 2 ** Math.ceil(Math.log2(Math.max(2, count * 2)));
}

function isSame(
  bytes: Uint8Array,
  { from, to }: { readonly from: number; readonly to: number },
  offsets: Uint32Array,
  other: number,
): boolean {
  const start = offsets[other] as number;
  if ((offsets[other + 1] as number) - start !== to - from) {
    return false;
  }
  for (let at = from, there = start; at < to; at += 1, there += 1) {
    if (bytes[at] !== bytes[there]) {
      return false;
    }
  }
  return true;
}

/**
 * Texts that repeat those of a dictionary. They are copied from it when they are first read.
 * @param limit how many bytes they may have
 * @throws RangeError for more
 */
export function codedTexts(codes: Codes, limit = Infinity): BytesColumn {
  const size = limit === Infinity ? 0 : bytesOfCodes(codes, 0, codes.indices.length);
  if (size > limit) {
    throw tooMany(size, codes.indices.length, limit);
  }
  let texts: Texts | undefined;
  const copied = (): Texts => (texts ??= takeTexts(codes.entries, codes.indices));
  return {
    kind: "bytes",
    get offsets() {
      return copied().offsets;
    },
    get bytes() {
      return copied().bytes;
    },
    valid: undefined,
    codes,
  };
}

/** The bytes of values [from, to). */
export function bytesOfCodes({ entries: { offsets }, indices }: Codes, from: number, to: number): number {
  let total = 0;
  for (let row = from; row < to; row += 1) {
    const entry = indices[row] as number;
    total += (offsets[entry + 1] as number) - (offsets[entry] as number);
  }
  return total;
}

/** The entries that occur among values [from, to), in the order in which they come first, and for each value which one it is. */
export function numberCodes({ entries, indices }: Codes, from: number, to: number): NumberedTexts {
  const own = new BigInt64Array(to - from);
  const low = new Int32Array(own.buffer);
  const places = new Int32Array(entries.offsets.length - 1); // plus one; 0: it has not come yet
  const firsts = new Uint32Array(Math.min(places.length, to - from));
  let found = 0;
  for (let row = from; row < to; row += 1) {
    const entry = indices[row] as number;
    if (places[entry] === 0) {
      firsts[found] = entry;
      found += 1;
      places[entry] = found;
    }
    low[(row - from) * 2] = (places[entry] as number) - 1;
  }
  return { entries: takeTexts(entries, firsts.subarray(0, found)), indices: own };
}

/** @throws RangeError for a place that has no entry */
export function spreadTexts({ entries, indices }: NumberedTexts): Texts {
  const last = entries.offsets.length - 1;
  const low = new Int32Array(indices.buffer, indices.byteOffset, indices.length * 2);
  const checked = new Uint32Array(indices.length);
  for (let index = 0; index < indices.length; index += 1) {
    const entry = low[index * 2] as number;
    if (entry < 0 || entry >= last) {
      throw new RangeError(`text ${entry} of ${last} is asked for`);
    }
    checked[index] = entry;
  }
  return takeTexts(entries, checked);
}

/**
 * The texts, or bytes, at some indices.
 * @param options `valid`: 0 takes none; `limit`: how many bytes may come of it
 * @throws RangeError for more
 */
export function takeTexts(
  { offsets: starts, bytes: source }: Pick<BytesColumn, "offsets" | "bytes">,
  indices: Uint32Array,
  { valid, limit = Infinity }: { readonly valid?: Uint8Array | undefined; readonly limit?: number } = {},
): Texts {
  const offsets = new Uint32Array(indices.length + 1);
  let total = 0;
  for (let row = 0; row < indices.length; row += 1) {
    const place = indices[row] as number;
    total += valid?.[row] === 0 ? 0 : (starts[place + 1] as number) - (starts[place] as number);
    if (total > limit) {
      throw tooMany(total, indices.length, limit);
    }
    offsets[row + 1] = total;
  }
  const bytes = new Uint8Array(total);
  for (let row = 0; row < indices.length; row += 1) {
    const at = offsets[row] as number;
    const length = (offsets[row + 1] as number) - at;
    const start = starts[indices[row] as number] as number;
    // Most are short: a call each would cost more.
    if (length > 32) {
      bytes.set(source.subarray(start, start + length), at);
    } else {
      for (let index = 0; index < length; index += 1) {
        bytes[at + index] = source[start + index] as number;
      }
    }
  }
  return { offsets, bytes };
}

function tooMany(bytes: number, rows: number, limit: number): RangeError {
  return new RangeError(`${bytes} bytes of ${rows} rows; at most ${limit} are read at once`);
}
