/** Keys of requests, by the first eight bytes of their digests: a million keys take 16 to 32 MiB. */
export interface KeySet {
  /** @param key hex SHA-256 */
  add(key: string): void;
  addAll(keys: KeyList): void;
  has(key: string): boolean;
  /** Returns whether the key was there. */
  delete(key: string): boolean;
  deleteAll(keys: KeyList): void;
}

/** Keys for sets of keys, of eight bytes each. */
export type KeyList = BigUint64Array<ArrayBuffer>;

/** @param keys hex SHA-256 each */
export function keyList(keys: readonly string[]): KeyList {
  const list = new BigUint64Array(keys.length);
  for (const [index, key] of keys.entries()) {
    list[index] = digestOf(key);
  }
  return list;
}

const firstSlots = 1024;
const empty = 0n;
const deleted = 1n;

/** A hash table with linear probing, of which half is empty at least. A digest is its own hash. */
export function createKeySet(): KeySet {
  let slots = new BigUint64Array(firstSlots);
  let used = 0;
  /** Where a digest is, or where it belongs. */
  const slotOf = (digest: bigint): number => {
    let slot = Number(digest & BigInt(slots.length - 1));
    while (slots[slot] !== empty && slots[slot] !== digest) {
      slot = (slot + 1) % slots.length;
    }
    return slot;
  };
  const put = (digest: bigint): void => {
    const slot = slotOf(digest);
    used += slots[slot] === empty ? 1 : 0;
    slots[slot] = digest;
  };
  const add = (digest: bigint): void => {
    if (2 * (used + 1) > slots.length) {
      const digests = slots.filter((one) => one > deleted);
      slots = new BigUint64Array(Math.max(firstSlots, 2 ** Math.ceil(Math.log2(4 * digests.length))));
      used = 0;
      for (const one of digests) {
        put(one);
      }
    }
    put(digest);
  };
  const remove = (digest: bigint): boolean => {
    const slot = slotOf(digest);
    const isThere = slots[slot] !== empty;
    slots[slot] = isThere ? deleted : empty;
    return isThere;
  };
  return {
    add: (key) => add(digestOf(key)),
    addAll(keys) {
      for (const digest of keys) {
        add(digest);
      }
    },
    has(key) {
      return slots[slotOf(digestOf(key))] !== empty;
    },
    delete: (key) => remove(digestOf(key)),
    deleteAll(keys) {
      for (const digest of keys) {
        remove(digest);
      }
    },
  };
}

/** 0 and 1 stand for slots without a key. */
function digestOf(key: string): bigint {
  const digest = BigInt(`0x${key.slice(0, 16)}`);
  return digest > deleted ? digest : deleted + 1n;
}
