import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, openSync, closeSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { cacheFolder } from "./build-once.mjs";
import { freePort } from "./s3-server.mjs";

const folder = cacheFolder("llama-cpp-11434.0.0");
const program = join(folder, "llama-server");

/** Why there is no server of llama.cpp; undefined: there is one. */
export const llamaMissing = existsSync(program)
  ? undefined
  : "no llama-server: sh test/support/build-llama-server.sh builds it, in 10 to 20 minutes";

/** A real server of llama.cpp with a tiny random model, called `tiny-random`. */
export interface LlamaServer extends AsyncDisposable {
  /** Ends in /v1. */
  readonly url: string;
  readonly key: string;
  /** A counter of its metrics since it was started, such as `tokens_predicted_total`. */
  metric(name: string): Promise<number>;
}

/** Starts a server with two slots, each of which has a context of 512 tokens. A token is a byte. */
export async function startLlamaServer(): Promise<LlamaServer> {
  const scratch = mkdtempSync(join(tmpdir(), "infer-batch-llama-"));
  const log = join(scratch, "log");
  const output = openSync(log, "a");
  const port = await freePort();
  const [key, base] = ["sk-test-secret", `http://127.0.0.1:${port}`];
  const args = ["-m", join(folder, "tiny.gguf"), "--host", "127.0.0.1", "--port", String(port), "-t", "1", "--offline"];
  const slots = ["-c", "1024", "-np", "2", "--metrics", "--api-key", key, "--alias", "tiny-random"];
  const child = spawn(program, [...args, ...slots], { stdio: ["ignore", output, output] });
  closeSync(output);
  const headers = { authorization: `Bearer ${key}` };
  while ((await fetch(`${base}/health`).catch(() => undefined))?.ok !== true) {
    if (child.exitCode !== null) {
      throw new Error(`llama-server did not start: ${readFileSync(log, "utf8").slice(-2000)}`);
    }
    await sleep(50);
  }
  return {
    url: `${base}/v1`,
    key,
    async metric(name) {
      const text = await (await fetch(`${base}/metrics`, { headers })).text();
      return Number(new RegExp(`^llamacpp:${name} (\\S+)$`, "m").exec(text)?.[1]);
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await (child.exitCode === null && child.signalCode === null ? once(child, "close") : undefined);
      rmSync(scratch, { recursive: true, force: true });
    },
  };
}
