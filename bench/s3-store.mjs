// What bench/s3.mjs times against: a store on this machine, with the table in it, and proxies before it.
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, openSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { CreateBucketCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { credentials, findServer, freePort, untilReady } from "../test/support/s3-server.mjs";

export const bucket = "bench";

/** Cleanups that `atExit` registered, which run however this process ends. */
const lasts = [];
process.on("exit", () => {
  for (const last of lasts) {
    last();
  }
});
for (const [signal, code] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
]) {
  process.once(signal, () => process.exit(code));
}

/** Does something when this process ends, if it has not been stopped before. */
export function atExit(last) {
  lasts.push(last);
}

process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = "true"; // for the processes that are timed, too

/**
 * Starts a server and puts files into its bucket, below a folder.
 * @returns {Promise<{ port: number, pid: number, keys: readonly string[], stop: () => Promise<void> }>}
 */
export async function startStore(folder, files) {
  const found = findServer();
  if (found.program === undefined) {
    throw new Error(found.missing);
  }
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-bench-s3-"));
  mkdirSync(join(scratch, "data"));
  const port = await freePort();
  const log = openSync(join(scratch, "log"), "a");
  const env = {
    ...process.env,
    ROOT_ACCESS_KEY: credentials.accessKeyId,
    ROOT_SECRET_KEY: credentials.secretAccessKey,
  };
  const args = ["--port", `127.0.0.1:${port}`, "-q", "--keep-alive", "posix", join(scratch, "data")];
  const child = spawn(found.program, args, { env, stdio: ["ignore", log, log] });
  atExit(() => {
    child.kill("SIGKILL");
    rmSync(scratch, { recursive: true, force: true });
  });
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) {
      const exited = new Promise((done) => child.once("exit", done));
      child.kill("SIGTERM");
      await exited;
    }
    rmSync(scratch, { recursive: true, force: true });
  };
  try {
    await untilReady(child, port, join(scratch, "log"));
    const client = new S3Client({
      region: "us-east-1",
      endpoint: `http://127.0.0.1:${port}`,
      forcePathStyle: true,
      credentials,
    });
    await client.send(new CreateBucketCommand({ Bucket: bucket }));
    const keys = files.map((file) => `${folder}/${basename(file)}`);
    for (const [index, file] of files.entries()) {
      await client.send(new PutObjectCommand({ Bucket: bucket, Key: keys[index], Body: await readFile(file) }));
    }
    client.destroy();
    return { port, pid: child.pid, keys, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** A proxy in a process of its own that holds back each request. @returns {Promise<{ port: number, stop: () => void }>} */
export async function startProxy(port, delayMs) {
  const program = fileURLToPath(new URL("s3-proxy.mjs", import.meta.url));
  const child = spawn(process.execPath, [program, String(port), String(delayMs)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  atExit(() => child.kill());
  const said = await new Promise((done, fail) => {
    child.stdout.setEncoding("utf8").once("data", done);
    child.once("exit", (code) => fail(new Error(`the proxy ended with ${code}`)));
  });
  return { port: Number(said), stop: () => child.kill() };
}
