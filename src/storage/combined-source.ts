import { isObjectUri } from "../spec/object-uri.js";
import { joinListings } from "./join-listings.js";
import type { Source } from "./port.js";

/** Combines a disk source and one of a store of objects: each URI and pattern goes to the one that it names. */
export function combineSources({ disk, objects }: { readonly disk: Source; readonly objects: Source }): Source {
  const of = (uri: string): Source => (isObjectUri(uri) ? objects : disk);
  return {
    readAhead: objects.readAhead,
    async list(patterns) {
      const listings = [
        await disk.list(patterns.filter((pattern) => !isObjectUri(pattern))),
        ...(patterns.some(isObjectUri) ? [await objects.list(patterns.filter(isObjectUri))] : []),
      ];
      return joinListings(listings);
    },
    listNames: (folder) => of(folder).listNames(folder),
    exists: (uri) => of(uri).exists(uri),
    open: (shard) => of(shard.uri).open(shard),
    async [Symbol.asyncDispose]() {
      await disk[Symbol.asyncDispose]();
      await objects[Symbol.asyncDispose]();
    },
  };
}
