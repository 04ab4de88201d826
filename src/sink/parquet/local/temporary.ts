import { join } from "node:path";
import { errnoOf } from "../../../util/errors.js";
import { ensureFolder } from "./durable.js";
import { type FileSystem, ifThere } from "../common/file-system.js";

/** Folders of one run; out of them, files become visible to others by link or rename only. */
export interface Temporary {
  readonly fs: FileSystem;
  /** Whoever finishes this run, or one after it, removes them. */
  readonly folders: readonly string[];
  /** Throws when the run that they were for is no more. */
  readonly check: () => Promise<unknown>;
}

/** More than attempts that could finish one run within the same few milliseconds. */
const clearedAwayLimit = 100;

/**
 * Does `work` with the folders there. Whoever finishes the run clears them away, from under the hands of attempts
 * beside it: they do their step again, which is safe for every step. Anything else that is gone was removed by
 * somebody who should not have, and stays gone.
 *
 * This is a fence, too. A run that comes after this one first writes its plan, then removes these folders, then
 * publishes. Whatever `work` gives a final name has a temporary name that no other attempt uses, and is there before
 * `work` looks for a later plan (`check`). So either that look found the plan, or the file was there before the folder
 * was removed and is gone. That the folder is there says nothing: any attempt may have made it again meanwhile.
 */
export async function inTemporary<T>({ fs, folders, check }: Temporary, work: () => Promise<T>): Promise<T> {
  for (let cleared = 0; ; cleared += 1) {
    try {
      for (const folder of folders) {
        await ensureFolder(fs, folder);
      }
      await check();
      return await work();
    } catch (error) {
      if (errnoOf(error) === "ENOENT") {
        await check(); // where the whole folder was removed, that is what has to be told
      }
      if (!isCleared(error, folders) || cleared === clearedAwayLimit) {
        throw error;
      }
    }
  }
}

function isCleared(error: unknown, folders: readonly string[]): boolean {
  // Of the two names of a link or rename the error does not say which is not there.
  const paths = error instanceof Error ? [Reflect.get(error, "path"), Reflect.get(error, "dest")] : [];
  return errnoOf(error) === "ENOENT" && folders.some((folder) => paths.some((path) => String(path).startsWith(folder)));
}

/** Removes a folder with all that is in it, whatever is written into it meanwhile. */
export async function clearFolder(fs: FileSystem, folder: string): Promise<void> {
  for (let written = 0; ; written += 1) {
    try {
      await fs.removeFolder(folder);
      return;
    } catch (error) {
      if (errnoOf(error) !== "ENOTEMPTY" || written === clearedAwayLimit) {
        throw error;
      }
    }
  }
}

export interface LeftoverRules {
  /** This attempt's own files stay. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
}

/** Temporary files of attempts that died. Their names say whose they are; those of the living stay. */
export async function removeLeftovers(fs: FileSystem, folder: string, rules: LeftoverRules): Promise<void> {
  for (const name of await fs.readdir(folder)) {
    const owner = name.slice(name.indexOf(".") + 1); // every name here is `<what>.<writer>`
    if (owner !== rules.writer && rules.isDead(owner)) {
      await ifThere(fs.unlink(join(folder, name)));
    }
  }
}
