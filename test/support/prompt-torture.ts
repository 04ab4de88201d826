import { createHash } from "node:crypto";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { answersIn } from "#src/targets/parquet/ledger.js";
import { type CliResult, runCli, runHere } from "./cli.js";
import { scratchFolder } from "./job.js";
import { outputRows } from "./output.js";
import { type Row, writeRows } from "./parquet.js";
import type { Database } from "./pg-database.js";
import type { PromptServer } from "./prompt-server.js";
import { rejectLines } from "./rejects.js";
import { type Bucket, s3Env } from "./s3.js";
import { mirror } from "./s3-target.js";
import { until } from "./waiting.js";

export interface PromptTarget {
  /** `output` of the spec, without columns. */
  readonly output: object;
  readonly env: Readonly<Record<string, string>>;
  readonly rows: () => Promise<Row[]>;
  /** Rejected rows, as `id reason`. */
  readonly rejects: () => Promise<string[]>;
  readonly kept: () => Promise<Set<string>>;
}

async function rejectsIn(folder: string): Promise<string[]> {
  return (await rejectLines(folder)).map(
    ({ columns, reason }) => `${(columns as { id: string }).id} ${String(reason)}`,
  );
}

/** Records of a journal that are no answers have no reason why a text ends. */
const isAnswer = ({ answer }: { readonly answer: string }): boolean => answer.includes('"finish":');

const keysIn = (text: string): string[] => [...answersIn(text)].filter(isAnswer).map(({ request }) => request);

export function filesTarget(folder: string): PromptTarget {
  const out = join(folder, "out");
  return {
    output: { parquet: { path: "out" } },
    env: {},
    rows: () => outputRows(out),
    rejects: () => rejectsIn(out),
    async kept() {
      const names = await readdir(out, { recursive: true });
      const texts = await Promise.all(
        names.filter((name) => /\/answers\/./.test(name)).map((name) => readFile(join(out, name), "utf8")),
      );
      return new Set(texts.flatMap(keysIn));
    },
  };
}

export function s3PromptTarget(folder: string, { bucket, port }: { bucket: Bucket; port: number }): PromptTarget {
  let looks = 0;
  const look = async <T>(read: (folder: string) => Promise<T>): Promise<T> => {
    looks += 1;
    const here = join(folder, `look-${looks}`);
    await mirror(bucket, "lake/out", here);
    return await read(here);
  };
  return {
    output: { parquet: { path: `s3://${bucket.name}/lake/out`, spool: { path: "spool" } } },
    env: s3Env(port),
    rows: () => look(outputRows),
    rejects: () => look(rejectsIn),
    async kept() {
      const keys = (await bucket.keys()).filter((key) => key.includes("/answers/"));
      const texts = await Promise.all(keys.map(async (key) => Buffer.from(await bucket.get(key)).toString("utf8")));
      return new Set(texts.flatMap(keysIn));
    },
  };
}

export function postgresTarget(database: Database): PromptTarget {
  return {
    output: { postgres: { url: database.url, table: "scores.labels", mode: "append" } },
    env: {},
    rows: async () => [...(await database.query("SELECT * FROM scores.labels ORDER BY id"))],
    rejects: async () => {
      const rows = await database.query(
        "SELECT columns ->> 'id' AS id, reason FROM infer_batch.rejects ORDER BY (columns ->> 'id')::int",
      );
      return rows.map(({ id, reason }) => `${String(id)} ${String(reason)}`);
    },
    async kept() {
      const [table] = await database.query("SELECT relname FROM pg_class WHERE relname ~ '^answers_[0-9a-f]{12}$'");
      const rows =
        table === undefined
          ? []
          : await database.query(
              `SELECT encode(request, 'hex') AS request FROM infer_batch.${String(table["relname"])} WHERE strpos(answer, '"finish":') > 0`,
            );
      return new Set(rows.map(({ request }) => String(request)));
    },
  };
}

/** Rows of a table of tickets: of each `every`, some are bad, each in its way; with 0, none is. */
export interface Tickets {
  readonly rows: number;
  readonly every: number;
}

const labels = ["billing", "bug", "other"];
/** Longer prompts are refused by the server. */
const contextTokens = 400;

/** Spreads bad rows over the table, so that they do not meet the rows that a run asks first. */
const stride = 7919;

/** Rows that no answer is right for, by their number within `every`, and their reject reasons. */
const bad: Readonly<Record<number, readonly [sql: string, reason: string]>> = {
  7: ["'POISON ' || i", "answer_refused"],
  8: ["'REFUSE ' || i", "answer_refused"],
  9: ["NULL", "null"],
  10: ["repeat('long ', 400) || i", "prompt_too_long"],
};

function selectOf({ rows, every }: Tickets): string {
  const cases = Object.entries(bad).map(([at, [sql]]) => `WHEN (i * ${stride}) % ${every} = ${at} THEN ${sql}`);
  return `SELECT i::INTEGER AS id, CASE ${cases.join(" ")} ELSE 'ticket ' || i END AS body FROM range(${rows}) t(i)`;
}

/** What the mock server must answer to each good row, computed here once more. */
export function rightRows({ rows, every }: Tickets): Row[] {
  const ids = Array.from({ length: rows }, (_, id) => id).filter((id) => bad[(id * stride) % every] === undefined);
  return ids.map((id) => {
    const [first = 0, second = 0] = createHash("sha256").update(`ticket ${id}`).digest();
    return { id, label: labels[first % 3], sure: second / 255 };
  });
}

export function rightRejects({ rows, every }: Tickets): string[] {
  const ids = Array.from({ length: rows }, (_, id) => id);
  return ids.flatMap((id) => {
    const [, reason] = bad[(id * stride) % every] ?? [];
    return reason === undefined ? [] : [`${id} ${reason}`];
  });
}

const price = { input: 0.15, cached_input: 0.075, output: 0.6 };

export const ticketServer = { context: contextTokens, price };

export interface TicketJob extends AsyncDisposable {
  readonly folder: string;
  readonly target: PromptTarget;
  rewrite(budget: object): Promise<void>;
  /** Runs a command on its spec in this process. */
  here(command: string, ...args: readonly string[]): Promise<CliResult>;
  run(
    args: readonly string[],
    onStart?: (child: { kill(signal: NodeJS.Signals): boolean }) => void,
  ): Promise<CliResult>;
}

export interface TicketJobOptions {
  readonly tickets: Tickets;
  readonly server: PromptServer;
  readonly targetIn: (folder: string) => PromptTarget;
  readonly concurrency: number;
  readonly commitRows: number;
  readonly budget?: object;
  /** More keys of `model.server`. */
  readonly ofServer?: object;
  readonly retrySeconds?: number;
  readonly ofModel?: object;
}

export async function ticketJob(options: TicketJobOptions): Promise<TicketJob> {
  const { tickets, targetIn, budget = {} } = options;
  const scratch = await scratchFolder();
  const target = targetIn(scratch.path);
  await writeRows(join(scratch.path, "tickets.parquet"), selectOf(tickets));
  const spec = join(scratch.path, "job.yaml");
  const rewrite = (changed: object): Promise<void> =>
    writeFile(spec, JSON.stringify(specOf(options, target.output, changed)));
  await rewrite(budget);
  const envOf = (): Record<string, string> => ({ ...target.env, XDG_CACHE_HOME: join(scratch.path, "cache") });
  return {
    folder: scratch.path,
    target,
    rewrite,
    here: (command, ...args) => runHere([command, spec, ...args], { env: envOf() }),
    run: (args, onStart) =>
      runCli(["run", spec, "--no-progress", "--json", ...args], {
        env: envOf(),
        ...(onStart === undefined ? {} : { onStart }),
      }),
    [Symbol.asyncDispose]: () => scratch[Symbol.asyncDispose](),
  };
}

const system = "You classify tickets of customers, and say how sure you are. Answer in JSON, and nothing else.";
const maxTokens = 60;

function specOf(
  { server, concurrency, commitRows, ofServer, ofModel, retrySeconds = 120 }: TicketJobOptions,
  output: object,
  budget: object,
): object {
  return {
    version: 1,
    name: "tickets",
    input: { path: "tickets.parquet" },
    model: {
      server: { protocol: "openai", url: server.url, name: "mock-1", concurrency, flush_seconds: 1, ...ofServer },
      prompt: { system, user: "{{body}}" },
      sampling: { max_tokens: maxTokens },
      response: { label: { enum: labels }, sure: { type: "number", minimum: 0, maximum: 1 } },
      budget: { price, ...budget },
      ...ofModel,
    },
    output: { columns: ["id"], ...output },
    on_bad_row: "reject",
    max_rejects: "10%",
    commit_rows: commitRows,
    retry: { max_seconds: retrySeconds },
  };
}

const tokens = (text: string): number => Math.ceil(Buffer.byteLength(text) / 4);

/** What the mock server bills for all tickets, each once, computed here once more. */
export function costOfTickets({ rows, every }: Tickets): number {
  const cached = Math.floor(tokens(system) / 16) * 16;
  let cost = 0;
  for (const { id, label, sure } of rightRows({ rows, every })) {
    const prompt = 3 + 3 + tokens(system) + 3 + tokens(`ticket ${String(id)}`);
    const completion = tokens(JSON.stringify({ label, sure }));
    cost += (prompt - cached) * price.input + cached * price.cached_input + completion * price.output;
  }
  return cost / 1e6;
}

/** Ends a run of the job with SIGKILL when `isDue`, unless it ends before. @param everyMs how often `isDue` is asked */
export async function killWhen(job: TicketJob, isDue: () => Promise<boolean>, everyMs?: number): Promise<CliResult> {
  let child: { kill(signal: NodeJS.Signals): boolean } | undefined;
  let ended = false;
  const run = job.run([], (started) => {
    child = started;
  });
  void run.finally(() => {
    ended = true;
  });
  await until(async () => ended || (await isDue()), everyMs);
  child?.kill("SIGKILL");
  return await run;
}
