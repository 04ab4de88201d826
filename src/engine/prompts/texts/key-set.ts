/** Keys of requests, by the first eight bytes of their digests: a million keys take 16 MiB. */
export interface KeySet {
  /** @param key hex SHA-256 */
  add(key: string): void;
  /** Returns whether the key was there. */
  delete(key: string): boolean;
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
  return {
    add(key) {
      if (2 * (used + 1) > slots.length) {
        const digests = slots.filter((digest) => digest > deleted);
        slots = new BigUint64Array(Math.max(firstSlots, 2 ** Math.ceil(Math.log2(4 * digests.length))));
        used = 0;
        for (const digest of digests) {
          put(digest);
        }
      }
      put(digestOf(key));
    },
    delete(key) {
      const slot = slotOf(digestOf(key));
      const isThere = slots[slot] !== empty;
      slots[slot] = isThere ? deleted : empty;
      return isThere;
    },
  };
}

/** 0 and 1 stand for slots without a key. */
function digestOf(key: string): bigint {
  const digest = BigInt(`0x${key.slice(0, 16)}`);
  return digest > deleted ? digest : deleted + 1n;
}
