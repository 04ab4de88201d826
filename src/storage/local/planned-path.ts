import { realpath } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, sep } from "node:path";
import { errnoOf } from "../../util/errors.js";

/** Resolves links in a path of which the last parts may not exist yet. */
export async function plannedPath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    const parent = dirname(path);
    return errnoOf(error) === "ENOENT" && parent !== path ? join(await plannedPath(parent), basename(path)) : path;
  }
}

/** The part of a `Dirent` that a walk needs. */
export interface FolderEntry {
  readonly name: string;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/**
 * The entry of `folder` through which a path leads to `planned`, a file that may not exist yet; undefined when the file
 * is not below `folder`. Both are paths without links. A walk that visits this entry too finds out, by its own rules and
 * through its own links, whether its pattern will match that file.
 */
export function entryTowards(folder: string, planned: string): FolderEntry | undefined {
  const rest = relative(folder, planned);
  const [name = "", ...more] = rest.split(sep);
  if (name === "" || name === ".." || isAbsolute(rest)) {
    return undefined;
  }
  const isFile = more.length === 0;
  return { name, isFile: () => isFile, isDirectory: () => !isFile, isSymbolicLink: () => false };
}
