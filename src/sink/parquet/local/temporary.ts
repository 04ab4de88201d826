import { join } from "node:path";
import { errnoOf } from "../../../util/errors.js";
import { ensureFolder } from "./durable.js";
import { type FileSystem, ifThere } from "../common/file-system.js";

/** Working folders of one run. A file in them becomes visible to others only by a link or a rename. */
export interface Temporary {
  readonly fs: FileSystem;
  /** Removed by the attempt that finishes this run, or a later one. */
  readonly folders: readonly string[];
  /** Throws when the run was superseded, or its plan is another one. */
  readonly check: () => Promise<unknown>;
}

/** More than the attempts that can finish one run within a few milliseconds. */
const retriesLimit = 100;

/**
 * Runs `work` with the folders in place. An attempt that finishes the run removes them, also while others work in them:
 * those repeat their step, which is safe for every step. Where anything else is missing, another program removed it,
 * which is an error.
 *
 * The folders are a fence, too. A later run first stores its plan, then removes these folders, then publishes. A file
 * that `work` publishes has a temporary name of this attempt only, and exists before `work` checks for a later plan
 * (`check`). So either the check finds the plan, or the file existed before the folder was removed, and is gone. That
 * the folder exists proves nothing: any attempt may have made it again.
 */
export async function withFolders<T>({ fs, folders, check }: Temporary, work: () => Promise<T>): Promise<T> {
  for (let cleared = 0; ; cleared += 1) {
    try {
      for (const folder of folders) {
        await ensureFolder(fs, folder);
      }
      await check();
      return await work();
    } catch (error) {
      if (errnoOf(error) === "ENOENT") {
        await check(); // where all of the output was removed, this reports it
      }
      if (!isCleared(error, folders) || cleared === retriesLimit) {
        throw error;
      }
    }
  }
}

function isCleared(error: unknown, folders: readonly string[]): boolean {
  // The error does not say which of the two names of a link or rename is missing.
  const paths = error instanceof Error ? [Reflect.get(error, "path"), Reflect.get(error, "dest")] : [];
  return errnoOf(error) === "ENOENT" && folders.some((folder) => paths.some((path) => String(path).startsWith(folder)));
}

/** Removes a folder and its contents, even while attempts write into it. */
export async function clearFolder(fs: FileSystem, folder: string): Promise<void> {
  for (let written = 0; ; written += 1) {
    try {
      await fs.removeFolder(folder);
      return;
    } catch (error) {
      if (errnoOf(error) !== "ENOTEMPTY" || written === retriesLimit) {
        throw error;
      }
    }
  }
}

export interface LeftoverRules {
  /** The writer whose files stay: this attempt's. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
}

/** Removes temporary files of attempts that died, which are identified by the names. Files of running attempts stay. */
export async function removeLeftovers(fs: FileSystem, folder: string, rules: LeftoverRules): Promise<void> {
  for (const name of await fs.readdir(folder)) {
    const owner = name.slice(name.indexOf(".") + 1); // every name here is `<what>.<writer>`
    if (owner !== rules.writer && rules.isDead(owner)) {
      await ifThere(fs.unlink(join(folder, name)));
    }
  }
}
