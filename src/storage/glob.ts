import picomatch from "picomatch";
import type { UnreadableMatch } from "./port.js";

/**
 * The matching rules of all patterns, on disk and in S3: `*` stops at a slash, only a pattern that writes a leading dot
 * matches names that start with one, and a leading `!` is a plain character. Flag `s`: names may contain a newline.
 */
const rules = { dot: false, nonegate: true, posix: true, flags: "s" } as const;

/** A compiled pattern. */
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

/** Splits a pattern at its slashes, except for those inside brackets and braces. */
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

/**
 * Whether a pattern matches a folder's own path but no path below it: the files in there would be left out silently.
 * A folder that `**` matches is not such a case, because the files below it match too.
 */
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

/** Describes a folder that a pattern matches as if it were a file. */
export function unreadableFolder(path: string): UnreadableMatch {
  return {
    path,
    finding: "which is a folder",
    hint: `for its files add ${path}/*.parquet to input.path; else write a pattern that does not match it`,
  };
}
