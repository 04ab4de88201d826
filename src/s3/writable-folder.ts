import { access, constants, lstat, stat } from "node:fs/promises";
import { dirname } from "node:path";
import { errnoOf } from "../util/errors.js";

/**
 * Returns the path itself, or the nearest one above it that exists. A symbolic link exists even if its target does not.
 * @throws system errors
 */
export async function nearestExisting(path: string): Promise<string> {
  const found = await lstat(path).catch((error: unknown) => {
    if (errnoOf(error) !== "ENOENT") {
      throw error;
    }
    return undefined;
  });
  return found === undefined && dirname(path) !== path ? await nearestExisting(dirname(path)) : path;
}

/** Checks that this user may make files in an existing folder. @throws system errors: ENOTDIR, EACCES, EROFS */
export async function requireWritableFolder(path: string): Promise<void> {
  if (!(await stat(path)).isDirectory()) {
    throw Object.assign(new Error(path), { code: "ENOTDIR" });
  }
  await access(path, constants.W_OK | constants.X_OK);
}
