import type { Texts } from "./tensor.js";

/** Texts as those that differ, and for each which one it is. */
export interface NumberedTexts {
  readonly entries: Texts;
  readonly places: BigInt64Array;
}

/** Longer ones, in bytes, are not looked for: each is an entry, as they seldom repeat. */
const longText = 64;

/** FNV-1a. */
const [hashBase, hashFactor] = [0x811c9dc5, 0x01000193];

/** Of [texts] all that are different, in the order in which they come first. */
export function numberTexts({ offsets, bytes }: Texts): NumberedTexts {
  const count = offsets.length - 1;
  const places = new BigInt64Array(count);
  const low = new Int32Array(places.buffer); // all machines that Node supports have the low word first
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
  return { entries: pick({ offsets, bytes }, firsts.subarray(0, found)), places };
}

/** At most half full. */
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

function pick({ offsets, bytes }: Texts, wanted: Uint32Array): Texts {
  const picked = new Uint32Array(wanted.length + 1);
  let length = 0;
  for (const [place, index] of wanted.entries()) {
    length += (offsets[index + 1] as number) - (offsets[index] as number);
    picked[place + 1] = length;
  }
  const target = new Uint8Array(length);
  for (const [place, index] of wanted.entries()) {
    copyText(target, picked[place] as number, bytes, offsets[index] as number, offsets[index + 1] as number);
  }
  return { offsets: picked, bytes: target };
}

/** @throws RangeError for a place that has no entry */
export function spreadTexts({ entries, places }: NumberedTexts): Texts {
  const low = new Int32Array(places.buffer, places.byteOffset, places.length * 2);
  const offsets = new Uint32Array(places.length + 1);
  const last = entries.offsets.length - 1;
  let length = 0;
  for (let index = 0; index < places.length; index += 1) {
    const entry = low[index * 2] as number;
    if (entry < 0 || entry >= last) {
      throw new RangeError(`text ${entry} of ${last} is asked for`);
    }
    length += (entries.offsets[entry + 1] as number) - (entries.offsets[entry] as number);
    offsets[index + 1] = length;
  }
  const bytes = new Uint8Array(length);
  for (let index = 0; index < places.length; index += 1) {
    const entry = low[index * 2] as number;
    const from = entries.offsets[entry] as number;
    copyText(bytes, offsets[index] as number, entries.bytes, from, entries.offsets[entry + 1] as number);
  }
  return { offsets, bytes };
}

/** A call takes as long as this many bytes here. */
const shortText = 32;

function copyText(target: Uint8Array, to: number, source: Uint8Array, from: number, end: number): void {
  if (end - from > shortText) {
    target.set(source.subarray(from, end), to);
    return;
  }
  for (let at = from, there = to; at < end; at += 1, there += 1) {
    target[there] = source[at] as number;
  }
}
