// What tests and benchmarks install for themselves: made once, in a cache outside of the checkout.
import { existsSync, mkdirSync, mkdtempSync, rmSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { dirname, join } from "node:path";

export function cacheFolder(name) {
  return join(process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache"), "infer-batch-tests", name);
}

/**
 * Has `build` make the file `made` unless it is there; other processes wait for it meanwhile: two at once take twice
 * as long. `build` gets an empty folder beside it, which is gone afterwards.
 * @returns what `build` returns, undefined when it was there
 */
export function buildOnce(made, build) {
  if (existsSync(made)) {
    return undefined;
  }
  const folder = dirname(made);
  mkdirSync(folder, { recursive: true });
  const lock = join(folder, "building");
  if (!takeLock(lock, made)) {
    return undefined; // another process has built it meanwhile
  }
  const making = mkdtempSync(join(folder, "making-"));
  try {
    return build(making);
  } finally {
    rmSync(making, { recursive: true, force: true });
    rmSync(lock, { recursive: true, force: true });
  }
}

/** A process that holds a lock for longer has died. */
const lockMs = 10 * 60_000;

/** Waits until no other process builds. @returns false if the build is there by then */
function takeLock(lock, made) {
  for (;;) {
    try {
      mkdirSync(lock);
    } catch (error) {
      if (error.code !== "EEXIST") {
        throw error;
      }
      const taken = statSync(lock, { throwIfNoEntry: false });
      if (taken !== undefined && Date.now() - taken.mtimeMs > lockMs) {
        rmSync(lock, { recursive: true, force: true });
      }
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 200); // the caller is synchronous
      continue;
    }
    if (!existsSync(made)) {
      return true;
    }
    rmSync(lock, { recursive: true });
    return false;
  }
}
