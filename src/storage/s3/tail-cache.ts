import type { ListedShard } from "../../plan/compare.js";

/** The last bytes of an object, from offset `start` to its end. */
export interface Tail {
  readonly start: number;
  readonly bytes: Uint8Array;
}

/** Caches the ends of objects, where their footers are: each file of a shard needs them. */
export interface TailCache {
  get(shard: ListedShard): Tail | undefined;
  /** Adds bytes that reach to the end of the object, or to the cached tail; others are ignored. */
  add(shard: ListedShard, part: Tail): void;
}

/** Makes a cache of at most `limitBytes`; the tails that were used least recently leave first. */
export function createTailCache(limitBytes: number): TailCache {
  /** Tails in the order of their last use. */
  const kept = new Map<string, Tail>();
  let keptBytes = 0;
  const remove = (key: string): Tail | undefined => {
    const tail = kept.get(key);
    kept.delete(key);
    keptBytes -= tail?.bytes.length ?? 0;
    return tail;
  };
  const put = (key: string, tail: Tail): void => {
    kept.set(key, tail);
    keptBytes += tail.bytes.length;
  };
  return {
    get(shard) {
      const tail = remove(keyOf(shard));
      if (tail !== undefined) {
        put(keyOf(shard), tail);
      }
      return tail;
    },
    add(shard, { start, bytes }) {
      const before = remove(keyOf(shard));
      const end = start + bytes.length;
      const joins = end >= (before?.start ?? shard.sizeBytes) && start < (before?.start ?? shard.sizeBytes);
      const tail = joins ? joinTails({ start, bytes }, before) : before;
      if (tail !== undefined && tail.bytes.length <= limitBytes / 4) {
        put(keyOf(shard), tail);
      }
      for (const key of kept.keys()) {
        if (keptBytes <= limitBytes) {
          return;
        }
        remove(key);
      }
    },
  };
}

function keyOf({ uri, fingerprint }: ListedShard): string {
  return `${uri}\n${fingerprint}`;
}

function joinTails({ start, bytes }: Tail, after: Tail | undefined): Tail {
  if (after === undefined) {
    return { start, bytes };
  }
  return { start, bytes: Buffer.concat([bytes.subarray(0, after.start - start), after.bytes]) };
}
