import type { readdir } from "node:fs";
import { readdir as listFolder, realpath } from "node:fs/promises";
import { basename, dirname, isAbsolute, join, relative, sep } from "node:path";
import { callbackify } from "node:util";
import { errnoOf } from "../errors.js";

/** The path without links, as it will be once what is missing of it is there. */
export async function foreseePath(path: string): Promise<string> {
  try {
    return await realpath(path);
  } catch (error) {
    const parent = dirname(path);
    return errnoOf(error) === "ENOENT" && parent !== path ? join(await foreseePath(parent), basename(path)) : path;
  }
}

/** What a walk asks of a folder's entry. */
interface Entry {
  readonly name: string;
  isFile(): boolean;
  isDirectory(): boolean;
  isSymbolicLink(): boolean;
}

/**
 * `fs.readdir` as it will answer once there is a file at `planned` (a path without links), in whatever folders
 * it takes: a glob tells with it whether it would find that file, by its own rules and through its own links.
 */
export function readdirForeseeing(planned: string): typeof readdir {
  const entriesOf = async (path: string, _withFileTypes: object): Promise<Entry[]> => {
    const ahead = entryTowards(await foreseePath(path), planned);
    try {
      const entries: Entry[] = await listFolder(path, { withFileTypes: true });
      return ahead === undefined || entries.some(({ name }) => name === ahead.name) ? entries : [...entries, ahead];
    } catch (error) {
      if (ahead === undefined) {
        throw error;
      }
      return [ahead];
    }
  };
  return callbackify(entriesOf) as unknown as typeof readdir;
}

/** The entry of `folder` that leads to `planned`, or is it. */
function entryTowards(folder: string, planned: string): Entry | undefined {
  const rest = relative(folder, planned);
  const [name = "", ...more] = rest.split(sep);
  if (name === "" || name === ".." || isAbsolute(rest)) {
    return undefined;
  }
  const isFile = more.length === 0;
  return { name, isFile: () => isFile, isDirectory: () => !isFile, isSymbolicLink: () => false };
}
