import { ifReadable, type TargetState } from "../file-system.js";

/** Where the job's runs with other params are: below `root`, a `RegExp` matches a segment that contains a param. */
export interface OtherFolders {
  readonly root: string;
  readonly pattern: readonly (string | RegExp)[];
}

/** Folders that are searched at each level of a path: the last by name, which are the latest where names are dates. */
export const foldersLimit = 400;
/** Folders that are read at once. In S3, each takes some requests. */
export const foldersAtOnce = 24;

/** Runs `read` for each folder that may hold a run of the job, and collects what it finds. */
export async function searchFolders<T>(
  fs: TargetState,
  folders: OtherFolders,
  read: (folder: string) => Promise<T | undefined>,
): Promise<T[]> {
  const found: T[] = [];
  const all = await expand(fs, folders);
  for (let start = 0; start < all.length; start += foldersAtOnce) {
    const runs = await Promise.all(all.slice(start, start + foldersAtOnce).map(read));
    found.push(...runs.filter((run) => run !== undefined));
  }
  return found;
}

/**
 * Lists the folders that may hold a run of the job, sorted by name: of more than `most`, the last.
 * @param read takes the result of a call: a folder for which it is undefined counts as empty. Default: one that this user
 * may not list, where this user could not finish a run
 */
export async function expand(
  fs: TargetState,
  { root, pattern }: OtherFolders,
  { most = foldersLimit, read = ifReadable }: { readonly most?: number; readonly read?: typeof ifReadable } = {},
): Promise<string[]> {
  if (!pattern.some((segment) => segment instanceof RegExp)) {
    return [];
  }
  let folders = [root];
  for (const segment of pattern) {
    const next: string[] = [];
    for (const folder of folders) {
      if (typeof segment === "string") {
        next.push(`${folder}/${segment}`);
      } else {
        const names = (await read(fs.readdir(folder === "" ? "/" : folder))) ?? [];
        next.push(...names.filter((name) => segment.test(name)).map((name) => `${folder}/${name}`));
      }
    }
    folders = next.toSorted().slice(-most);
  }
  return folders;
}
