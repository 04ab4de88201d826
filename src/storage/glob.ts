import picomatch from "picomatch";
import type { UnreadMatch } from "./port.js";

/**
 * The rules of all patterns, on a disk and in S3: `*` stops at a slash, names that begin with a dot are matched by a
 * pattern that writes the dot only, a leading `!` is a character. `s`: a name may hold a newline.
 */
const rules = { dot: false, nonegate: true, posix: true, flags: "s" } as const;

export interface Glob {
  readonly pattern: string;
  matches(path: string): boolean;
  /** Whether something below this folder may match; the folder as names from where the pattern starts. */
  mayMatchBelow(folder: readonly string[]): boolean;
}

export function hasWildcards(pattern: string): boolean {
  return picomatch.scan(pattern).isGlob;
}

/** @param pattern not empty, with `/` between names */
export function compileGlob(pattern: string): Glob {
  const matches = picomatch(pattern, rules);
  const parts = splitPattern(pattern).map((text) => ({ text, matches: picomatch(text, rules) }));
  // One that writes a dot where a name begins, or excludes others than those.
  const hasHiddenParts = parts.some(({ text }) => /!\(|(?:^|[{(|,[])[\\@+]*\./.test(text));
  return {
    pattern,
    matches: (path) => matches(path),
    mayMatchBelow(folder) {
      for (const [index, part] of parts.entries()) {
        if (part.text.includes("/")) {
          return true; // braces around several names
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

/** Splits at slashes, except for those inside brackets and braces. */
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

/** What every path that matches begins with: the text before the first wildcard. */
export function literalStart(pattern: string): string {
  return pattern.slice(0, /[\\*?[{(]|[!+@]\(/.exec(pattern)?.index ?? pattern.length);
}

/** The folder that all matches lie in, as the pattern names it, and the pattern below it. */
export function splitStaticFolder(pattern: string): { readonly folder: string; readonly rest: string } {
  const slash = literalStart(pattern).lastIndexOf("/");
  return { folder: slash < 0 ? "" : pattern.slice(0, slash + 1), rest: pattern.slice(slash + 1) };
}

/**
 * Whether a pattern matches a folder's own path as if it were a file, and none below it: its rows would be left out
 * without a word. Where any name below a folder matches (`**`), its own name says nothing.
 */
export function isFolderLeftOut(glob: Glob, folder: string): boolean {
  const name = folder.slice(folder.lastIndexOf("/") + 1);
  return glob.matches(folder) && !isMetadataName(name) && !glob.matches(`${folder}/x`);
}

/** Those that are not folders of files that are read. */
export function withoutFoldersOf<T extends UnreadMatch>(unread: readonly T[], files: () => readonly string[]): T[] {
  if (unread.length === 0) {
    return [];
  }
  const all = files();
  return unread.filter(({ path }) => !all.some((file) => file.startsWith(`${path}/`)));
}

/** A disk has it at its top, for its own repair; it is closed to all but root. */
export const diskRepairFolder = "lost+found";

/** Spark, Hive and this program keep what is no data under such names. */
function isMetadataName(name: string): boolean {
  return name.startsWith("_") || name.startsWith(".") || name === diskRepairFolder;
}

/** A folder that a pattern matches as if it were a file. */
export function folderUnread(path: string): UnreadMatch {
  return {
    path,
    finding: "which is a folder",
    hint: `for its files add ${path}/*.parquet to input.path; else write a pattern that does not match it`,
  };
}
