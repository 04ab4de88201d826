import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type ChatServer, serveChat } from "./chat-server.js";
import { type CliResult, runHere } from "./cli.js";
import { scratchFolder } from "./job.js";
import { outputRows } from "./output.js";
import { type Row, writeRows } from "./parquet.js";

/** A job whose rows a language model answers. */
export interface PromptJob extends AsyncDisposable {
  readonly folder: string;
  readonly server: ChatServer;
  readonly spec: string;
  readonly out: string;
  rewrite(keys: PromptKeys): Promise<void>;
  command(...args: readonly string[]): Promise<CliResult>;
  run(...args: readonly string[]): Promise<CliResult & { readonly report: Readonly<Record<string, unknown>> }>;
  rows(): Promise<readonly Row[]>;
}

/** Keys of the spec over those of the job. */
export interface PromptKeys {
  readonly model?: object;
  readonly server?: object;
  readonly input?: object;
  readonly [key: string]: unknown;
}

export interface PromptJobOptions extends PromptKeys {
  readonly reply?: ChatServer["reply"];
  /** The rows of the shard, as a SELECT. Default: 20 rows of `id` and `body`, "text 0" and so on. */
  readonly select?: string;
}

const texts = "SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(20) t(i)";

/** Writes a table and a spec that asks a server of the test for each of its rows. */
export async function promptJob({ reply, select = texts, ...keys }: PromptJobOptions = {}): Promise<PromptJob> {
  const scratch = await scratchFolder();
  const server = await serveChat(reply);
  const [spec, out] = [join(scratch.path, "job.yaml"), join(scratch.path, "out")];
  await writeRows(join(scratch.path, "texts.parquet"), select);
  const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
  const rewrite = async ({ model, server: ofServer, input, ...others }: PromptKeys): Promise<void> => {
    const text = {
      version: 1,
      name: "labels",
      input: { path: "texts.parquet", ...input },
      model: {
        server: { protocol: "openai", url: server.url, name: "m", ...ofServer },
        prompt: { user: "{{body}}" },
        ...model,
      },
      output: { columns: ["id"], parquet: { path: "out" } },
      retry: { max_seconds: 10 },
      ...others,
    };
    await writeFile(spec, JSON.stringify(text));
  };
  await rewrite(keys);
  return {
    folder: scratch.path,
    server,
    spec,
    out,
    rewrite: (changed) => rewrite({ ...keys, ...changed }),
    command: (...args) => runHere(args, { env }),
    async run(...args) {
      const result = await runHere(["run", spec, "--no-progress", "--json", ...args], { env });
      const report = result.stdout === "" ? {} : (JSON.parse(result.stdout) as Record<string, unknown>);
      return { ...result, report };
    },
    rows: () => outputRows(out),
    async [Symbol.asyncDispose]() {
      await server[Symbol.asyncDispose]();
      await scratch[Symbol.asyncDispose]();
    },
  };
}
