import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Shares of requests, from 0 to 1: see prompt-server/fates.mjs. */
export interface PromptFaults {
  readonly limited?: number;
  readonly limitedSilently?: number;
  readonly failed?: number;
  readonly overloaded?: number;
  readonly cut?: number;
  readonly reset?: number;
  readonly slow?: number;
  readonly poison?: number;
  readonly garbled?: number;
}

/** Options of the mock server: see prompt-server/options.mjs. */
export interface PromptServerOptions {
  readonly seed?: number;
  readonly port?: number;
  readonly faults?: PromptFaults;
  readonly latencyMs?: number;
  readonly keys?: readonly string[];
  readonly models?: readonly string[];
  readonly answersAs?: string;
  readonly context?: number;
  readonly structured?: "honoured" | "ignored" | "refused";
  readonly modern?: boolean;
  readonly price?: { readonly input?: number; readonly cached_input?: number; readonly output?: number };
  readonly quota?: number;
  readonly limit?: {
    readonly requestsPerMinute?: number;
    readonly tokensPerMinute?: number;
    readonly burstSeconds?: number;
  };
  readonly dimensions?: number;
  readonly changes?: readonly {
    readonly after: number;
    readonly set?: Partial<PromptServerOptions>;
    readonly restartMs?: number;
  }[];
}

export interface Billed {
  readonly requests: number;
  readonly prompt_tokens: number;
  readonly cached_tokens: number;
  readonly completion_tokens: number;
  readonly cost: number;
}

export interface Books {
  readonly received: number;
  readonly in_flight: number;
  readonly peak_in_flight: number;
  readonly cut: number;
  readonly resets: number;
  /** Answers whose client was gone. */
  readonly gone: number;
  readonly garbled: number;
  readonly statuses: Readonly<Record<string, number>>;
  readonly billed: Billed;
  /** Of that, what was billed for requests that had been billed before. */
  readonly billed_again: Billed;
  readonly distinct: number;
  /** What was taken of the rate limit, and what could have been; null: there is no limit. */
  readonly limits: Readonly<Record<"requests" | "tokens", { readonly taken: number; readonly offered: number | null }>>;
}

/** A request that was billed: each time, in milliseconds of the wall clock, and whether the client could read the answer. */
export interface BilledRequest {
  readonly request: string;
  readonly times: readonly { readonly at: number; readonly how: "whole" | "cut" | "gone" }[];
  readonly usage: Omit<Billed, "requests" | "cost">;
}

/** A mock server of OpenAI's protocol in a process of its own. */
export interface PromptServer extends AsyncDisposable {
  /** Ends in /v1. */
  readonly url: string;
  books(): Promise<Books>;
  requests(): Promise<readonly BilledRequest[]>;
  /** Changes options while it runs. */
  control(set: Partial<PromptServerOptions> & { readonly restartMs?: number }): Promise<void>;
}

const program = fileURLToPath(new URL("prompt-server/main.mjs", import.meta.url));

export async function startPromptServer(options: PromptServerOptions = {}): Promise<PromptServer> {
  const child = spawn(process.execPath, [program, JSON.stringify(options)], { stdio: ["ignore", "pipe", "inherit"] });
  const base = `http://127.0.0.1:${await portOf(child)}`;
  const get = async (path: string): Promise<string> => await (await fetch(`${base}/_mock/${path}`)).text();
  return {
    url: `${base}/v1`,
    books: async () => JSON.parse(await get("books")) as Books,
    requests: async () =>
      (await get("requests"))
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as BilledRequest),
    async control(set) {
      await (await fetch(`${base}/_mock/control`, { method: "POST", body: JSON.stringify(set) })).text();
    },
    async [Symbol.asyncDispose]() {
      child.kill("SIGKILL");
      await (child.exitCode === null && child.signalCode === null ? once(child, "close") : undefined);
    },
  };
}

async function portOf(child: ChildProcess): Promise<number> {
  if (child.stdout === null) {
    throw new Error("the mock server has no stdout");
  }
  for await (const line of createInterface({ input: child.stdout })) {
    const [, port] = /^READY (\d+)$/.exec(line) ?? [];
    if (port !== undefined) {
      return Number(port);
    }
  }
  throw new Error("the mock server ended before it was ready");
}
