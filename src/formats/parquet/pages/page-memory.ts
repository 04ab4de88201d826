import { areHere, releaseMemory, takeMemory } from "../../../columns/loops/vectors.js";

/**
 * What memory is for: a page when it is unpacked, the dictionary before it, and what is made of a page's rows. `levels`:
 * those of lists or of a large page, and the packed start of a page; `starts` and `lists`: places and elements of lists.
 */
type Use = "page" | "dictionary" | "valid" | "values" | "levels" | "starts" | "lists";

/** Memory that the pages of a column are unpacked into, one after the other. */
export interface PageMemory {
  /** How many bytes more than `levelBytesOf` says the last page's levels took. The next page's usually take as many. */
  moreLevelBytes: number;
  /** Returns memory of `size` bytes, which is valid until the next call for the same use. */
  memory(use: Use, size: number): Uint8Array<ArrayBuffer>;
  /** Gives all of it back. */
  close(): void;
}

export function openPageMemory(): PageMemory {
  const taken = new Map<Use, Uint8Array<ArrayBuffer>>();
  return {
    moreLevelBytes: 0,
    memory(use, size) {
      let bytes = taken.get(use);
      if (bytes === undefined || bytes.length < size) {
        releaseMemory(bytes === undefined ? [] : [bytes]);
        taken.delete(use); // there may be no memory for more
        bytes = takeMemory(size);
        taken.set(use, bytes);
      }
      return bytes.subarray(0, size);
    },
    close() {
      releaseMemory(taken.values());
      taken.clear();
    },
  };
}

/** Levels in bytes [at, end) of a page where loops reach them: a large page is in other memory. */
export function reachable(
  bytes: Uint8Array,
  { at, end }: { readonly at: number; readonly end: number },
  pageMemory: PageMemory,
): Uint8Array {
  const levels = bytes.subarray(at, end);
  if (areHere([bytes])) {
    return levels;
  }
  const copy = pageMemory.memory("levels", levels.length);
  copy.set(levels);
  return copy;
}
