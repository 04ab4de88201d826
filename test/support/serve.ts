import { type ChildProcess, spawn } from "node:child_process";
import { join } from "node:path";
import { onTestFinished } from "vitest";
import { projectFolder } from "./cli.js";
import { query } from "./parquet.js";
import { until } from "./waiting.js";

/** A server of a job, in a process of its own, which ends with the test. */
export interface Served {
  readonly url: string;
  readonly child: ChildProcess;
  readonly stderr: () => string;
  /** Resolves with the exit code. */
  readonly ended: Promise<number | null>;
  get(path: string, headers?: Readonly<Record<string, string>>): Promise<Response>;
  post(path: string, body: unknown, headers?: Readonly<Record<string, string>>): Promise<Response>;
  predict(rows: readonly unknown[]): Promise<readonly Readonly<Record<string, unknown>>[]>;
}

/** Starts a server on a free port, and waits until it says `until`. */
export async function startServing(
  spec: string,
  { args = [], says = /serving run/, env = {} }: { args?: readonly string[]; says?: RegExp; env?: object } = {},
): Promise<Served> {
  const child = spawn(process.execPath, [join(projectFolder, "bin/infer-batch.js"), "serve", spec, ...args], {
    env: { ...process.env, NO_COLOR: "1", ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text: string) => {
    stderr += text;
  });
  let isOver = false;
  const ended = new Promise<number | null>((resolve) => {
    child.once("close", (code) => {
      isOver = true;
      resolve(code);
    });
  });
  onTestFinished(async () => {
    child.kill("SIGKILL");
    await ended;
  });
  await until(() => says.test(stderr) || isOver);
  const [, url = ""] = /listening on (\S+)/.exec(stderr) ?? [];
  if (isOver) {
    throw new Error(stderr);
  }
  const post: Served["post"] = (path, body, headers) => {
    const isRaw = typeof body === "string" || body instanceof Uint8Array;
    return fetch(`${url}${path}`, {
      method: "POST",
      body: (isRaw ? body : JSON.stringify(body)) as string,
      ...(headers && { headers }),
    });
  };
  return {
    url,
    child,
    ended,
    stderr: () => stderr,
    post,
    get: (path, headers = {}) => fetch(`${url}${path}`, { headers }),
    async predict(rows) {
      const texts = rows.map((row) => (typeof row === "string" ? row : JSON.stringify(row)));
      const response = await post("/predict", `{"rows":[${texts.join(",")}]}`);
      const text = await response.text();
      if (response.status !== 200) {
        throw new Error(`${response.status} ${text}`);
      }
      return (exactJson(text) as { predictions: Readonly<Record<string, unknown>>[] }).predictions;
    },
  };
}

/** Parses JSON. Integers of more digits than a number has become BigInts. */
function exactJson(text: string): unknown {
  return JSON.parse(text.replaceAll(/(?<=[:,[])-?\d{16,}(?=[,}\]])/g, '"$&n"'), (_, value: unknown) =>
    typeof value === "string" && /^-?\d+n$/.test(value) ? BigInt(value.slice(0, -1)) : value,
  );
}

/** Rows as texts of JSON. @param select SQL */
export async function jsonRows(select: string): Promise<string[]> {
  const rows = await query(`SELECT to_json(t)::VARCHAR AS row FROM (${select}) t`);
  return rows.map(({ row }) => String(row));
}
