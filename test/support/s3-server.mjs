// A real S3 server, versitygw: where its program is, and how it is reached. Tests and benchmarks start it. Plain
// JavaScript: the benchmarks are.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { homedir } from "node:os";
import { join } from "node:path";

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
  console.warn(`building ${module}@${version} into ${folder}: once, about a minute`);
  mkdirSync(folder, { recursive: true });
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
