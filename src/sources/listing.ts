import picomatch from "picomatch";
import type { ListedShard } from "../run/plan/compare.js";
import { unwatched } from "../run/plan/plan.js";
import type { Listing, Source, UnreadableMatch } from "./source.js";
import { isObjectUri } from "../job/jobfile/uri.js";

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
    published: () => Promise.resolve(unwatched),
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

export function joinListings(parts: readonly Partial<Listing>[]): Listing {
  const all = <K extends Exclude<keyof Listing, "table" | "changes">>(key: K): Listing[K][number][] =>
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

/** On disk and in S3: `*` stops at a slash, a leading `!` is plain. Flag `s`: names may contain a newline. */
const rules = { dot: false, nonegate: true, posix: true, flags: "s" } as const;

export interface Glob {
  readonly pattern: string;
  matches(path: string): boolean;
  /** Whether a path below `folder` may match. `folder` is the list of names from where the pattern starts. */
  mayMatchBelow(folder: readonly string[]): boolean;
}

/** Whether a pattern has a wildcard, so that it is not just a path. */
export function hasWildcards(pattern: string): boolean {
  return picomatch.scan(pattern).isGlob;
}

/** Compiles a pattern, which is not empty and has `/` between names. */
export function compileGlob(pattern: string): Glob {
  const matches = picomatch(pattern, rules);
  const parts = splitPattern(pattern).map((text) => ({
    text,
    matches: text === "" ? (name: string) => name === "" : picomatch(text, rules), // "in//x" has an empty name between
  }));
  // A part with a dot at the start of a name, or a negation, may match hidden names.
  const hasHiddenParts = parts.some(({ text }) => /!\(|(?:^|[{(|,[])[\\@+]*\./.test(text));
  return {
    pattern,
    matches: (path) => matches(path),
    mayMatchBelow(folder) {
      for (const [index, part] of parts.entries()) {
        if (part.text.includes("/")) {
          return true; // braces that span several names
        }
        if (part.text === "**") {
          return hasHiddenParts || folder.slice(index).every((name) => !name.startsWith("."));
        }
        const name = folder[index];
        if (name === undefined) {
          return true;
        }
        if (!part.matches(name)) {
          return false;
        }
      }
      return false;
    },
  };
}

/** Whether a path without wildcards can only be a folder, even if nothing is there yet: `in/`, `in/dt=2026-01-31`. */
export function isFolderName(path: string): boolean {
  return /\/$|(?:^|\/)[^/=]+=[^/]*$/.test(path);
}

/**
 * Matches the files below a folder as Spark and pyarrow read it: all but those whose name, or folder, marks what is no
 * data. Files of `_temporary` match, since planning refuses them: a part of the folder's rows may still be in there.
 * @param prefix with which the paths of these files start
 */
export function folderGlob(prefix: string): Glob {
  return {
    pattern: prefix,
    matches: (path) => path.startsWith(prefix) && areData(path.slice(prefix.length).split("/")),
    mayMatchBelow: areData,
  };
}

function areData(names: readonly string[]): boolean {
  return names.every((name) => !/^\.|^_[^=]*$/.test(name) || name === "_temporary");
}

function splitPattern(pattern: string): string[] {
  const parts: string[] = [];
  let part = "";
  let depth = 0;
  for (let at = 0; at < pattern.length; at += 1) {
    const char = pattern.charAt(at);
    if (char === "/" && depth === 0) {
      parts.push(part);
      part = "";
      continue;
    }
    part += char;
    if (char === "\\") {
      at += 1;
      part += pattern.charAt(at);
    } else if ("{([".includes(char)) {
      depth += 1;
    } else if ("})]".includes(char)) {
      depth = Math.max(0, depth - 1);
    }
  }
  return [...parts, part];
}

/** The text before the first wildcard, with which every matching path starts. */
export function literalPrefix(pattern: string): string {
  return pattern.slice(0, /[\\*?[{(]|[!+@]\(/.exec(pattern)?.index ?? pattern.length);
}

/** Splits a pattern into the folder that all matches are below, and the pattern below that folder. */
export function splitStaticFolder(pattern: string): { readonly folder: string; readonly rest: string } {
  const slash = literalPrefix(pattern).lastIndexOf("/");
  return { folder: slash < 0 ? "" : pattern.slice(0, slash + 1), rest: pattern.slice(slash + 1) };
}

/** Then files in there would be left out silently, unless `**` matches them, too. */
export function matchesFolderOnly(glob: Glob, folder: string): boolean {
  const name = folder.slice(folder.lastIndexOf("/") + 1);
  return glob.matches(folder) && !isMetadataName(name) && !glob.matches(`${folder}/x`);
}

/** Drops unreadable folders that have files in `files`: those are read after all. */
export function withoutFoldersOfFiles<T extends UnreadableMatch>(
  unread: readonly T[],
  files: () => readonly string[],
): T[] {
  if (unread.length === 0) {
    return [];
  }
  const all = files();
  return unread.filter(({ path }) => !all.some((file) => file.startsWith(`${path}/`)));
}

/** The folder at the top of an ext file system that `fsck` uses; only root may list it. */
export const diskRepairFolder = "lost+found";

/** Whether a name marks metadata, by the conventions of Spark, Hive and this program. */
function isMetadataName(name: string): boolean {
  return name.startsWith("_") || name.startsWith(".") || name === diskRepairFolder;
}

export function unreadableFolder(path: string): UnreadableMatch {
  return {
    path,
    finding: "which is a folder",
    hint: `for its files add ${path}/*.parquet to input.path; else write a pattern that does not match it`,
  };
}
