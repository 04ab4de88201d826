import { spawn } from "node:child_process";
import { once } from "node:events";
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { cacheFolder } from "../../support/build-once.mjs";
import { type CliOptions, type CliResult, expectEnd, runCli } from "../../support/cli.js";
import { scratchFolder } from "../../support/job.js";
import { outputRows } from "../../support/output.js";
import { type Row, writeRows } from "../../support/parquet.js";
import { filesTarget } from "../../support/prompt-torture.js";
import { rejectLines } from "../../support/rejects.js";
import { freePort } from "../../support/s3-server.mjs";
import { until } from "../../support/waiting.js";

const folder = cacheFolder("llama-cpp-11434.0.0");
const program = join(folder, "llama-server");

/** Why there is no server of llama.cpp; undefined: there is one. */
const llamaMissing = existsSync(program)
  ? undefined
  : "no llama-server: sh test/support/build-llama-server.sh builds it, in 10 to 20 minutes";

/** A real server of llama.cpp with a tiny random model, called `tiny-random`. */
interface LlamaServer extends AsyncDisposable {
  /** Ends in /v1. */
  readonly url: string;
  readonly key: string;
  /** A counter of its metrics since it was started, such as `tokens_predicted_total`. */
  metric(name: string): Promise<number>;
}

/** Starts a server with two slots, each of which has a context of 512 tokens. A token is a byte. */
async function startLlamaServer(): Promise<LlamaServer> {
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

const timeout = 300_000;
const rows = 40;
/** Longer than the context of a slot. */
const longRow = 11;
const response = { label: { enum: ["yes", "no"] }, score: { type: "integer", minimum: 0, maximum: 9 } };
const sampling = { temperature: 0, seed: 1, max_tokens: 60 };

interface LlamaJob extends AsyncDisposable {
  readonly out: string;
  run(options?: CliOptions): Promise<CliResult>;
}

async function llamaJob(server: LlamaServer, { key = server.key, more = {} } = {}): Promise<LlamaJob> {
  const scratch = await scratchFolder();
  const body = `CASE WHEN i = ${longRow} THEN repeat('long ', 200) ELSE 'text ' || i END`;
  await writeRows(
    join(scratch.path, "texts.parquet"),
    `SELECT i::INTEGER AS id, ${body} AS body FROM range(${rows}) t(i)`,
  );
  const spec = {
    version: 1,
    name: "llama",
    input: { path: "texts.parquet" },
    model: {
      server: { protocol: "openai", url: server.url, name: "tiny-random", token: key, flush_seconds: 1 },
      prompt: { user: "{{body}}" },
      sampling,
      response,
      ...more,
    },
    output: { columns: ["id"], parquet: { path: "out" } },
    on_bad_row: "reject",
    max_rejects: "10%",
    commit_rows: 20,
    retry: { max_seconds: 30 },
  };
  const path = join(scratch.path, "job.yaml");
  await writeFile(path, JSON.stringify(spec));
  return {
    out: join(scratch.path, "out"),
    run: (options = {}) =>
      runCli(["run", path, "--no-progress", "--json"], {
        ...options,
        env: { XDG_CACHE_HOME: join(scratch.path, "cache") },
      }),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

const goodIds = Array.from({ length: rows }, (_, id) => id).filter((id) => id !== longRow);

/** What the server answers to a row, asked without this program. */
async function askDirectly({ url, key }: LlamaServer, id: number): Promise<Row> {
  const schema = {
    type: "object",
    properties: { label: { enum: ["yes", "no"] }, score: { type: "integer", minimum: 0, maximum: 9 } },
    required: ["label", "score"],
    additionalProperties: false,
  };
  const body = {
    model: "tiny-random",
    messages: [{ role: "user", content: `text ${id}` }],
    ...sampling,
    response_format: { type: "json_schema", json_schema: { name: "answer", strict: true, schema } },
  };
  const answer = await fetch(`${url}/chat/completions`, {
    method: "POST",
    headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  const { choices } = (await answer.json()) as { choices: readonly { message: { content: string } }[] };
  return JSON.parse(choices[0]?.message.content ?? "{}") as Row;
}

/** Checks each row: typed values that the schema allows, and those of the same question, asked directly. */
async function expectAnswered(server: LlamaServer, { out }: LlamaJob): Promise<void> {
  const found = await outputRows(out);
  expect(found.map(({ id }) => Number(id))).toEqual(goodIds);
  for (const { id, label, score } of found) {
    expect({ label, score: Number(score) }).toEqual(await askDirectly(server, Number(id)));
  }
  expect((await rejectLines(out)).map(({ row, reason }) => ({ row, reason }))).toEqual([
    { row: longRow, reason: "prompt_too_long" },
  ]);
}

const name = `the server of llama.cpp${llamaMissing === undefined ? "" : ` (skipped: ${llamaMissing})`}`;

describe.skipIf(llamaMissing !== undefined)(name, () => {
  test("a job asks llama.cpp for structured answers, and rejects the row that is longer than the context", {
    timeout,
  }, async () => {
    await using server = await startLlamaServer();
    await using job = await llamaJob(server);

    const ended = await expectEnd(job.run(), 0);
    const { spending } = JSON.parse(ended.stdout) as { spending: { answers: number; completion_tokens: number } };
    expect(spending.answers).toBe(goodIds.length);
    expect(spending.completion_tokens).toBe(await server.metric("tokens_predicted_total"));
    await expectAnswered(server, job);
  });

  test("a key that llama.cpp does not take ends a job with 64, and is not shown", { timeout }, async () => {
    await using server = await startLlamaServer();
    await using job = await llamaJob(server, { key: "sk-wrong-secret" });
    const { stderr, stdout } = await expectEnd(job.run(), 64, "Invalid API Key");
    expect(stderr + stdout).not.toContain("sk-wrong-secret");
  });

  test("a job that is killed while llama.cpp answers asks for no row again whose answer was kept", {
    timeout,
  }, async () => {
    await using server = await startLlamaServer();
    await using job = await llamaJob(server);
    let child: { kill(signal: NodeJS.Signals): boolean } | undefined;
    const killed = job.run({
      onStart(started) {
        child = started;
      },
    });
    const { kept } = filesTarget(dirname(job.out));
    await until(async () => (await kept().catch(() => new Set())).size > 0);
    child?.kill("SIGKILL");
    expect((await killed).signal).toBe("SIGKILL");
    const answers = (await kept()).size;

    const ended = await expectEnd(job.run(), 0);
    const { spending } = JSON.parse(ended.stdout) as { spending: { answers: number; run: { answers: number } } };
    expect(spending).toMatchObject({ answers: goodIds.length - answers, run: { answers: goodIds.length } });
    await expectAnswered(server, job);
  });
});
