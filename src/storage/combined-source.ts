import type { ListedShard } from "../plan/compare.js";
import { isObjectUri } from "../spec/uri.js";
import type { Listing, Source } from "./port.js";

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

function byUri(one: ListedShard, other: ListedShard): number {
  return one.uri === other.uri ? 0 : one.uri < other.uri ? -1 : 1;
}

/** Joins listings into one, whose shards are sorted by URI. */
export function joinListings(parts: readonly Partial<Listing>[]): Listing {
  const all = <K extends keyof Listing>(key: K): Listing[K][number][] =>
    parts.flatMap((part): readonly Listing[K][number][] => part[key] ?? []);
  return {
    shards: all("shards").toSorted(byUri),
    missingFiles: all("missingFiles"),
    folders: all("folders"),
    unmatched: all("unmatched"),
    missingFolders: all("missingFolders"),
    unreadable: all("unreadable"),
    tableRoots: all("tableRoots"),
  };
}
