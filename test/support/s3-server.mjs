// A real S3 server, versitygw: where its program is, and how it is reached. Tests and benchmarks start it. Plain
// JavaScript: the benchmarks are.
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { installGo } from "./build-once.mjs";

const version = "v1.8.0";
const module = "github.com/versity/versitygw/cmd/versitygw";
export const credentials = { accessKeyId: "testkey", secretAccessKey: "testsecret123" };

/** Where the program is, built once by Go into a cache outside of the checkout; or why there is none. */
export function findServer() {
  const given = process.env["INFER_BATCH_VERSITYGW"];
  return given !== undefined && given !== "" ? { program: given } : installGo(module, version);
}

/** Waits until the server answers: this one, and none that another process has started at the same port meanwhile. */
export async function untilReady(child, port, log) {
  const deadline = performance.now() + 60_000;
  for (let answers = 0; ; ) {
    if (child.exitCode !== null || performance.now() > deadline) {
      throw new Error(`the server did not start: ${readFileSync(log, "utf8")}`);
    }
    try {
      await fetch(`http://127.0.0.1:${port}`);
      answers += 1;
      if (answers === 2) {
        return;
      }
    } catch {
      // It does not listen yet.
    }
    await sleep(50); // a program whose port is taken ends by then
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
