import { hashWords } from "../columnar/row-hash.js";

/**
 * Hashes of rows of an earlier run, which are found by their keys. Plain data in memory that all threads share: one
 * thread fills it, then others read it.
 */
export interface StoredTable {
  /** Two words a slot: the number of a row plus one, then a part of its key's hash. 0: the slot is free. */
  readonly slots: Int32Array<SharedArrayBuffer>;
  /** Four words a row, as `FeatureHasher` makes them. */
  readonly hashes: Int32Array<SharedArrayBuffer>;
}

/** In a slot: the key came more than once. */
const repeated = -1;
/** In the list of places: no row was found. */
export const noPlace = -1;

/** Slots for each row: a row is found after about two. */
const slotsPerRow = 1.4;
/** Slots side by side: keys that follow on each other share a group, so that tables in order are read in order. */
const groupSlots = 64;
const groupWords = groupSlots * 2;

/** Bytes of a table for each row. */
export const tableRowBytes = slotsPerRow * 8 + hashWords * 4;

/** @param rows rows of the table, at most */
export function createStoredTable(rows: number): StoredTable {
  const slots = Math.ceil((rows * slotsPerRow + 1) / groupSlots) * groupSlots;
  return {
    slots: new Int32Array(new SharedArrayBuffer(slots * 8)),
    hashes: new Int32Array(new SharedArrayBuffer(rows * hashWords * 4)),
  };
}

/**
 * Adds rows, of which the first gets number `from`. Of a key that came before, neither row is found from now on: their
 * hashes become zeros, which no row of this run has but by a chance of 2^-128.
 * @param keys hashes of their keys
 * @returns how many more keys there are that came once
 */
export function addStored(
  { slots, hashes }: StoredTable,
  from: number,
  { keys, rows }: { readonly keys: Int32Array; readonly rows: Int32Array },
): number {
  let found = 0;
  hashes.set(rows, from * hashWords);
  for (let at = 0, place = from; at < keys.length; at += hashWords, place += 1) {
    const tag = keys[at + 1] as number;
    const slot = slotOf(slots, keys, at);
    const row = slots[slot] as number;
    if (row === 0) {
      slots[slot] = place + 1;
      slots[slot + 1] = tag;
      found += 1;
      continue;
    }
    hashes.fill(0, place * hashWords, (place + 1) * hashWords);
    if (row !== repeated) {
      hashes.fill(0, (row - 1) * hashWords, row * hashWords);
      slots[slot] = repeated;
      found -= 1;
    }
  }
  return found;
}

/**
 * Finds rows that have these hashes, and their keys once.
 * @param keys hashes of the keys of the rows that are looked for
 * @param isNamed 0 for rows without a key; undefined: all have one
 * @returns the number of the row that was found, or `noPlace`, for each
 */
export function findStored(
  { slots, hashes }: StoredTable,
  { keys, rows }: { readonly keys: Int32Array; readonly rows: Int32Array },
  isNamed: Uint8Array | undefined,
): Int32Array<ArrayBuffer> {
  const places = new Int32Array(keys.length / hashWords).fill(noPlace);
  // Most tables have the same order each night: the row behind the one that was found last is near.
  let next = -1;
  for (let row = 0, at = 0; row < places.length; row += 1, at += hashWords) {
    if (isNamed?.[row] === 0) {
      continue;
    }
    let place = next;
    if (next < 0 || !isSame(hashes, next, rows, at)) {
      const slot = slotOf(slots, keys, at);
      place = (slots[slot] as number) - 1;
      if (place < 0) {
        continue;
      }
    }
    next = (place + 1) * hashWords < hashes.length ? place + 1 : -1;
    if (isSame(hashes, place, rows, at)) {
      places[row] = place;
    }
  }
  return places;
}

/** The slot that a key has, or would get: the first word of its hash chooses a group, the last one the place in it. */
function slotOf(slots: Int32Array, keys: Int32Array, at: number): number {
  const { length } = slots;
  const tag = keys[at + 1];
  const group = Math.floor(((keys[at] as number) >>> 0) * (length / groupWords / 2 ** 32));
  let slot = group * groupWords + ((keys[at + 3] as number) & (groupSlots - 1)) * 2;
  while (slots[slot] !== 0 && slots[slot + 1] !== tag) {
    slot += groupWords;
    // Behind the last group come the next slots of all groups.
    slot = slot < length ? slot : (slot - length + 2) % length;
  }
  return slot;
}

function isSame(hashes: Int32Array, place: number, rows: Int32Array, at: number): boolean {
  const from = place * hashWords;
  return (
    hashes[from] === rows[at] &&
    hashes[from + 1] === rows[at + 1] &&
    hashes[from + 2] === rows[at + 2] &&
    hashes[from + 3] === rows[at + 3]
  );
}
