import { mkdirSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { cacheFolder } from "#src/base/cache-folder.js";
import { errnoOf } from "#src/base/errors.js";

/** The cache of code that all processes of the tests share. */
const shared = cacheFolder("code");

/**
 * Has the processes with this `XDG_CACHE_HOME` share compiled code with all others: a process that compiles the
 * program takes a third more CPU time. All else in that folder is its own.
 */
export function shareCode(cache: string): void {
  mkdirSync(join(cache, "infer-batch"), { recursive: true });
  try {
    symlinkSync(shared, join(cache, "infer-batch/code"));
  } catch (error) {
    if (errnoOf(error) !== "EEXIST") {
      throw error;
    }
  }
}
