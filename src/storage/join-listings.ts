import type { ListedShard } from "../plan/compare.js";
import type { Listing } from "./port.js";

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
