import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { openConnectionPool } from "#src/base/http/connections.js";
import type { RetryTools } from "#src/base/retry.js";
import { type ModelServer, placeAt } from "#src/models/served/server.js";
import { writeModel } from "./onnx.js";

/** Tools of retries whose pauses take no time, but move their clock. */
export interface RetryClock extends RetryTools {
  readonly warnings: string[];
}

export function retryClock(more: Partial<RetryTools> = {}): RetryClock {
  const warnings: string[] = [];
  let clockMs = 0;
  return {
    maxSeconds: 60,
    nowMs: () => clockMs,
    random: () => 0.5,
    sleep(ms) {
      clockMs += ms;
      return Promise.resolve();
    },
    warn: (message) => void warnings.push(message),
    warnings,
    warnedMs: new Map(),
    ...more,
  };
}

/** A server of the model `m`. Whoever asks for it closes its connections. */
export function modelServerAt(url: string, retry: RetryTools, most: number): ModelServer {
  return {
    ...placeAt(url),
    model: "m",
    headers: {},
    timeoutMs: 10_000,
    most,
    retry,
    signal: new AbortController().signal,
    findProxy: () => undefined,
    connections: openConnectionPool(60_000),
    tls: {},
  };
}

/** The bytes of a model whose weights are at `location`, of another one with the same weights, and of the weights. */
export async function modelWithWeights(
  folder: string,
  location: string,
): Promise<{ readonly model: Uint8Array; readonly other: Uint8Array; readonly weights: Uint8Array }> {
  const path = join(folder, "net.onnx");
  const write = async (op: string): Promise<Uint8Array> => {
    await writeModel(path, {
      inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
      outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
      constants: [{ name: "bias", length: 1, location }],
      nodes: [{ op, from: ["x", "bias"], to: "score" }],
    });
    return await readFile(path);
  };
  return { model: await write("Add"), other: await write("Mul"), weights: new Uint8Array([0, 0, 128, 63]) };
}
