// What the benchmarks of prompts share: the mock server of the tests in a process of its own, tables of tickets, the job.
import { spawn } from "node:child_process";
import { fileURLToPath } from "node:url";

const path = (relative) => fileURLToPath(new URL(relative, import.meta.url));

/** The built command. */
export const program = path("../../bin/infer-batch.js");

export const system = "You classify tickets of customers, and say how sure you are. Answer in JSON, and nothing else.";
/** A prompt and its answer take about 60 tokens, of which a limit counts 80. */
export const maxTokens = 30;
export const labels = ["billing", "bug", "other"];

/** SQL of a table of tickets. */
export const ticketsSql = (rows) => `SELECT i::INTEGER AS id, 'ticket ' || i AS body FROM range(${rows}) t(i)`;

/** The spec of a job that asks the server about each ticket. `keys` stand beside those of the job. */
export function specOf({ url, table, out, ...keys }) {
  return {
    version: 1,
    name: "tickets",
    input: { path: table },
    model: {
      server: { protocol: "openai", url, name: "mock-1" },
      prompt: { system, user: "{{body}}" },
      sampling: { max_tokens: maxTokens },
      response: { label: { enum: labels }, sure: { type: "number", minimum: 0, maximum: 1 } },
    },
    output: { columns: ["id"], parquet: { path: out } },
    ...keys,
  };
}

/**
 * Starts a mock server. `given`: as test/support/prompt-server/options.mjs
 * @returns {Promise<{ base: string, get: (path: string) => Promise<string>, stop: () => void }>} `get` reads its books
 */
export function startServer(given) {
  const child = spawn(process.execPath, [path("../../test/support/prompt-server/main.mjs"), JSON.stringify(given)], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  const stop = () => {
    process.off("exit", stop);
    child.kill();
  };
  process.on("exit", stop);
  return new Promise((done, fail) => {
    child.once("exit", () => fail(new Error("the mock server did not start")));
    child.stdout.once("data", (text) => {
      const base = `http://127.0.0.1:${/READY (\d+)/.exec(String(text))?.[1]}`;
      const get = async (name) => (await fetch(`${base}/_mock/${name}`)).text();
      done({ base, get, stop });
    });
  });
}
