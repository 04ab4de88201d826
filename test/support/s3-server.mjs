// A real S3 server, versitygw: where its program is, and how it is reached. Tests and benchmarks start it. Plain
// JavaScript: the benchmarks are.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, statSync } from "node:fs";
import { createServer } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const version = "v1.8.0";
const module = "github.com/versity/versitygw/cmd/versitygw";
export const credentials = { accessKeyId: "testkey", secretAccessKey: "testsecret123" };

/** Where the program is, built once by Go into a cache outside of the checkout; or why there is none. */
export function findServer() {
  const given = process.env["INFER_BATCH_VERSITYGW"];
  if (given !== undefined && given !== "") {
    return { program: given };
  }
  const cache = process.env["XDG_CACHE_HOME"] ?? join(homedir(), ".cache");
  const folder = join(cache, "infer-batch-tests", `versitygw-${version}`);
  const program = join(folder, "versitygw");
  if (existsSync(program)) {
    return { program };
  }
  if (spawnSync("go", ["version"]).status !== 0) {
    return { missing: "versitygw is not there (INFER_BATCH_VERSITYGW), nor Go, which would build it" };
  }
  mkdirSync(folder, { recursive: true });
  const lock = join(folder, "building");
  if (!takeLock(lock, program)) {
    return { program }; // another process has built it meanwhile
  }
  console.warn(`building ${module}@${version} into ${folder}: once, about a minute`);
  const making = mkdtempSync(join(folder, "making-"));
  try {
    const env = { ...process.env, GOBIN: making, GOFLAGS: "-buildvcs=false", CGO_ENABLED: "0" };
    const built = spawnSync("go", ["install", `${module}@${version}`], { env, encoding: "utf8" });
    if (built.status !== 0) {
      return { missing: `go install failed: ${built.stderr.slice(-300)}` };
    }
    renameSync(join(making, "versitygw"), program); // another process may run it while this one builds
    return { program };
  } finally {
    rmSync(making, { recursive: true, force: true });
    rmSync(lock, { recursive: true, force: true });
  }
}

/** Whoever holds a lock for longer has died. */
const lockMs = 10 * 60_000;

/** Waits until nobody else builds: two at once take twice as long. @returns false when the program is there by then */
function takeLock(lock, program) {
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
    if (!existsSync(program)) {
      return true;
    }
    rmSync(lock, { recursive: true });
    return false;
  }
}

/** Waits until the server answers. */
export async function untilReady(child, port, log) {
  const deadline = performance.now() + 30_000;
  for (;;) {
    if (child.exitCode !== null || performance.now() > deadline) {
      throw new Error(`the S3 server did not start: ${readFileSync(log, "utf8")}`);
    }
    try {
      await fetch(`http://127.0.0.1:${port}`);
      return;
    } catch {
      await sleep(20);
    }
  }
}

export async function freePort() {
  return await new Promise((done, fail) => {
    const server = createServer();
    server.once("error", fail);
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      server.close(() => {
        done(typeof address === "object" && address !== null ? address.port : 0);
      });
    });
  });
}

/** What a process needs to reach a store at a port of this machine. */
export function s3Env(port) {
  return {
    AWS_ENDPOINT_URL_S3: `http://127.0.0.1:${port}`,
    AWS_ACCESS_KEY_ID: credentials.accessKeyId,
    AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
    AWS_EC2_METADATA_DISABLED: "true",
    AWS_CONFIG_FILE: "/nowhere",
    AWS_SHARED_CREDENTIALS_FILE: "/nowhere",
  };
}
