import { hashWords, createRowHasher } from "../../columns/row-hash.js";
import type { Column, FixedColumn, ColumnType, RecordBatch } from "../../columns/types.js";
import type { Contract } from "../../models/binding/contract.js";
import { sliceColumn } from "../../columns/columns.js";
import type { NamedTensor } from "../../columns/tensor.js";

/**
 * Hashes of rows of an earlier run, which are found by their keys. Plain data in memory that all threads share: one
 * thread fills it, then others read it.
 */
export interface HashTable {
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
export function createStoredTable(rows: number): HashTable {
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
  { slots, hashes }: HashTable,
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
 * @public so that tests see it
 */
export function findStored(
  { slots, hashes }: HashTable,
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

/** Hashes keys for the slots of a `StoredTable`, four words each: keys that follow on each other get slots side by side. */
type KeyHasher = (key: readonly Column[], rows: number) => Int32Array;

/** The bits of a whole number that choose a slot of a group. */
const slotBits = 63;

/** @param seed four words */
export function createKeyHasher(seed: Int32Array): KeyHasher {
  const hasher = createRowHasher(seed, false);
  return (key, rows) => {
    const at = key.findLastIndex(isWhole);
    const column = key[at];
    if (column?.kind !== "fixed") {
      return hasher.columns(key, rows);
    }
    const { data } = column;
    const words = new Int32Array(data.buffer, data.byteOffset, data.byteLength / 4);
    const step = words.length / rows;
    // The low bits come in below: without them, all keys of a group have one hash.
    const upper = words.slice();
    for (let word = 0; word < upper.length; word += step) {
      upper[word] = (upper[word] as number) & ~slotBits;
    }
    const hashes = hasher.columns(key.with(at, columnOfWords(upper, step)), rows);
    for (let row = 0, to = 0, from = 0; row < rows; row += 1, to += hashWords, from += step) {
      const slot = (words[from] as number) & slotBits;
      hashes[to + 1] = (hashes[to + 1] as number) ^ Math.imul(slot, 0x9e3779b1);
      // Not the bits alone: where all keys are multiples of some number, they are the same.
      hashes[to + 3] = (hashes[to + 2] as number) + slot;
    }
    return hashes;
  };
}

/** Whether a column has whole numbers of 4 or 8 bytes, or what is kept as such. */
function isWhole(column: Column): boolean {
  return (
    column.kind === "fixed" &&
    column.elementsPerValue === 1 &&
    (column.data instanceof Int32Array ||
      column.data instanceof Uint32Array ||
      column.data instanceof BigInt64Array ||
      column.data instanceof BigUint64Array)
  );
}

function columnOfWords(words: Int32Array<ArrayBuffer>, step: number): FixedColumn {
  const data = step === 1 ? words : new BigInt64Array(words.buffer);
  return { kind: "fixed", elementsPerValue: 1, data, valid: undefined };
}

/** What the hashes of rows depend on besides their values. Plain data: threads are sent it. */
export interface HashSeeds {
  /** Four words each. Hashes of features and keys together, of keys alone, and of predictions. */
  readonly features: Int32Array;
  readonly key: Int32Array;
  readonly predictions: Int32Array;
}

/** Rows that are hashed, and the rows of an earlier run that they are compared with. */
export interface FeatureHashing {
  readonly seeds: HashSeeds;
  /** undefined: none are known, or they are found in another way. */
  readonly table?: HashTable | undefined;
}

/** What became of rows that were hashed. */
export interface HashedRows {
  /** The hash of each row's features and key, four words each. */
  readonly hashes: Int32Array<ArrayBuffer>;
  /** For each row, the number of the stored row whose prediction it takes, or `noPlace`; undefined: none takes one. */
  readonly places: Int32Array<ArrayBuffer> | undefined;
}

/** Rows that a worker has hashed. */
export interface HashedUnit extends HashedRows {
  /** Milliseconds that it took. */
  readonly ms: number;
}

/** How many rows take stored predictions. */
export function countStored(places: Int32Array): number {
  let count = 0;
  for (const place of places) {
    count += place === noPlace ? 0 : 1;
  }
  return count;
}

interface FeatureHasher {
  /** @param from the row of the batch that the first row of the tensors is */
  hash(tensors: readonly NamedTensor[], batch: RecordBatch, range: { from: number; to: number }): HashedRows;
}

export function createFeatureHasher(
  { passthrough, missing, reuse }: Pick<Contract, "passthrough" | "missing" | "reuse">,
  { seeds, table }: FeatureHashing,
): FeatureHasher {
  const features = createRowHasher(seeds.features, missing === "nan");
  const hashKeys = createKeyHasher(seeds.key);
  const keys = passthrough.flatMap(({ column, source }, index) =>
    reuse?.key.includes(column) === true ? [{ index, type: source.type }] : [],
  );
  let scratch = new Int32Array(0);
  return {
    hash(tensors, { carried }, { from, to }) {
      const rows = to - from;
      scratch = scratch.length < rows * hashWords ? new Int32Array(rows * hashWords) : scratch;
      const columns = keys.map(({ index, type }) => plainBools(type, sliceColumn(carried[index] as Column, from, to)));
      const own = scratch.subarray(0, rows * hashWords);
      features.tensors(tensors, rows, own, 0);
      const hashes = features.columns(columns, rows, own);
      const wanted = table && { keys: hashKeys(columns, rows), rows: hashes };
      return { hashes, places: wanted && findStored(table, wanted, namedRows(columns, rows)) };
    },
  };
}

/** 0 for rows whose key has a NULL; undefined: there are none. */
function namedRows(key: readonly Column[], rows: number): Uint8Array | undefined {
  let isNamed: Uint8Array | undefined;
  for (const { valid } of key) {
    if (valid?.includes(0) === true) {
      isNamed ??= new Uint8Array(rows).fill(1);
      for (let row = 0; row < rows; row += 1) {
        isNamed[row] = (isNamed[row] as number) & (valid[row] as number);
      }
    }
  }
  return isNamed;
}

/** Gives true one byte: models may write another one than a target does. */
export function plainBools(type: ColumnType, column: Column): Column {
  if (type === "bool" && column.kind === "fixed") {
    return { ...column, data: Uint8Array.from(column.data as Uint8Array, (byte) => (byte === 0 ? 0 : 1)) };
  }
  return typeof type === "object" && type.kind === "list" && column.kind === "list"
    ? { ...column, child: plainBools(type.element, column.child) }
    : column;
}

/**
 * Combines the hashes of rows with the hashes of their predictions, in place of the latter. The combined hash is stored
 * with the row. Combining it with the hash of the stored predictions gives the hash of the row again; if a prediction was
 * changed, it gives a hash that no row has.
 */
export function combineHashes(one: Int32Array, other: Int32Array<ArrayBuffer>): Int32Array<ArrayBuffer> {
  for (let word = 0; word < other.length; word += 1) {
    other[word] = (other[word] as number) ^ (one[word] as number);
  }
  return other;
}
