import { realpath } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, sep } from "node:path";
import { errnoOf } from "../../util/errors.js";

/** The path without links, as it will be once what is missing of it is there. */
export async function plannedPath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    const parent = dirname(path);
    return errnoOf(error) === "ENOENT" && parent !== path ? join(await plannedPath(parent), basename(path)) : path;
  }
}

/** An entry of a folder, as far as a walk asks for it. */
export interface Entry {
  readonly name: string;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/**
 * The entry of `folder` that leads to `planned`, or is it; undefined where that file will lie elsewhere. Both are paths
 * without links. A walk that also takes these entries tells by its own rules, and through its own links, whether its
 * pattern will match that file.
 */
export function entryTowards(folder: string, planned: string): Entry | undefined {
  const rest = relative(folder, planned);
  const [name = "", ...more] = rest.split(sep);
  if (name === "" || name === ".." || isAbsolute(rest)) {
    return undefined;
  }
  const isFile = more.length === 0;
  return { name, isFile: () => isFile, isDirectory: () => !isFile, isSymbolicLink: () => false };
}
