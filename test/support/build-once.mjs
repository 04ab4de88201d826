// What tests and benchmarks install for themselves: made once, in a cache outside of the checkout.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync } from "node:fs";
import { homedir } from "node:os";
import { basename, dirname, join } from "node:path";

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

/**
 * Installs a program that Go builds from a module.
 * @returns the `program`; or why it is `missing`
 */
export function installGo(module, version) {
  const name = basename(module);
  const folder = cacheFolder(`${name}-${version}`);
  const program = join(folder, name);
  if (existsSync(program)) {
    return { program };
  }
  if (spawnSync("go", ["version"]).status !== 0) {
    return { missing: `${name} is not there, nor Go, which would build it` };
  }
  const failed = buildOnce(program, (making) => {
    console.warn(`building ${module}@${version} into ${folder}: once, about a minute`);
    const env = { ...process.env, GOBIN: making, GOFLAGS: "-buildvcs=false", CGO_ENABLED: "0" };
    const built = spawnSync("go", ["install", `${module}@${version}`], { env, encoding: "utf8" });
    if (built.status !== 0) {
      return `go install failed: ${built.stderr.slice(-300)}`;
    }
    renameSync(join(making, name), program); // another process may run it while this one builds
    return undefined;
  });
  return failed === undefined ? { program } : { missing: failed };
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
