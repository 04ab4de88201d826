import { mkdir, mkdtemp } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { type CliResult, projectFolder, type RunningCli, runCli } from "./cli.js";
import { identity } from "./faulty.js";
import { httpProxy } from "./http-proxy.js";
import { writeModel } from "./onnx.js";
import { faultsOfFinished, partNames } from "./output.js";
import { readFiles, writeRows } from "./parquet.js";
import { publishedRun } from "./nights.js";
import type { PostgresServer } from "./postgres.js";
import { type S3Server, s3Env } from "./s3.js";
import { mirror } from "./s3-target.js";
import { upload } from "./s3-job.js";

/** Where runs of a test write, what readers find there, and how a process is killed that writes there. */
export interface Place extends AsyncDisposable {
  readonly input: string;
  readonly output: object;
  /** Whether a run without checks shows its rows span by span, instead of all at once. */
  readonly bySpan: boolean;
  /** What a run does to rows of earlier ones: it takes their place, that of those with the same ids, or none. */
  readonly effect: "replaces" | "updates" | "adds";
  /** Makes what a role needs that may not make tables. `run`: carries out the job as another role, which may. */
  readonly prepare?: (run: (output: object) => Promise<void>) => Promise<void>;
  /** The output as a role sees it that may delete rows. */
  readonly eraserOutput: object;
  /** What a reader finds now; undefined: it must not read now. */
  readonly look: () => Promise<Look | undefined>;
  /** What is wrong with a published run beside its rows. */
  readonly faults: (rows: { readonly scored: number; readonly left: number }) => Promise<readonly string[]>;
  /** Calls that a run makes, about, among which moments are drawn. */
  readonly calls: number;
  /** Carries out a command, and kills it at a moment if one is given and comes. */
  readonly run: (args: readonly string[], moment: Moment | undefined) => Promise<CliResult>;
}

export interface Look {
  readonly rows: readonly Found[];
  /** The run that readers are told that the rows are of; undefined: they are not told. */
  readonly told: string | undefined;
}

export interface Found {
  readonly run: string;
  readonly id: number;
  readonly score: number;
}

/** A call that makes something durable, counted from the start of the process; or a time after that. */
export type Moment =
  | { readonly kind: "call"; readonly when: "before" | "amid" | "after"; readonly nth: number }
  | { readonly kind: "time"; readonly ms: number };

/** The night that readers of a life look at, and the one before, which it is compared with. */
export const [nightBefore, night] = ["2026-11-20", "2026-11-21"];

/** Rows of the input, `id` from 0, in two shards; every 97th from 5 on lacks its value and is rejected. */
export const rowsOfInput = 360;
export const isRejected = (id: number): boolean => id % 97 === 5;

/** Writes the input and the model into a folder, once for all lives. */
export async function writeInput(folder: string): Promise<void> {
  await mkdir(join(folder, "in"), { recursive: true });
  const rows = `SELECT i AS id, CASE WHEN i % 97 <> 5 THEN i::DOUBLE END AS v FROM range(${rowsOfInput}) t(i)`;
  await writeRows(join(folder, "in/part-00000.parquet"), `${rows} WHERE i < 200`);
  await writeRows(join(folder, "in/part-00001.parquet"), `${rows} WHERE i >= 200`);
  await writeModel(join(folder, "model.onnx"), identity);
}

const preload = (name: string): string => `--import=${pathToFileURL(join(projectFolder, "test/crash", name)).href}`;

type Env = Readonly<Record<string, string>>;

/** Runs a command, which is killed by a preload at a call, by a time, or not at all. */
async function runAndKill(
  args: readonly string[],
  moment: Moment | undefined,
  { env, script }: { readonly env: Env; readonly script?: string },
): Promise<CliResult> {
  let timer: NodeJS.Timeout | undefined;
  const onStart = (child: RunningCli): void => {
    if (moment?.kind === "time") {
      timer = setTimeout(() => child.kill("SIGKILL"), moment.ms);
    }
  };
  const ended = await runCli(args, { env, onStart, node: script === undefined ? [] : [preload(script)] });
  clearTimeout(timer);
  return ended;
}

/** What a reader of a folder finds who follows `_SUCCESS`. */
async function lookInFolder(folder: string): Promise<Look | undefined> {
  const told = await publishedRun(folder);
  const rows = told === undefined ? undefined : await rowsIn(folder).catch(() => undefined);
  return rows !== undefined && (await publishedRun(folder)) === told ? { rows, told } : undefined;
}

async function rowsIn(folder: string): Promise<Found[]> {
  const rows = await readFiles((await partNames(folder)).map((name) => join(folder, name)));
  return rows.map(({ run_id: run, id, score }) => ({ run: String(run), id: Number(id), score: Number(score) }));
}

export function inFolder(folder: string, shared: string): Promise<Place> {
  const out = join(folder, `out/dt=${night}`);
  const output = { parquet: { path: join(folder, "out/dt=${ds}") } };
  return Promise.resolve({
    input: join(shared, "in/*.parquet"),
    output,
    eraserOutput: output,
    bySpan: false,
    effect: "replaces",
    look: () => lookInFolder(out),
    faults: ({ left }) => faultsOfFinished(out, left),
    calls: 120,
    run(args, moment) {
      const when = moment?.kind === "call" ? `${moment.when === "amid" ? "torn" : moment.when} * #${moment.nth}` : "";
      // It waits before each call, so that readers look at what lies between two of them.
      const env = { CRASH_ROOT: out, CRASH_AT: when, CRASH_PAUSE: "4" };
      return runAndKill(args, moment, { env, script: "preload.mjs" });
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  });
}

export async function inBucket(folder: string, shared: string, server: S3Server): Promise<Place> {
  const bucket = await server.createBucket();
  await upload(bucket, join(shared, "in"), "in/");
  const path = `lake/dt=${night}`;
  const output = { parquet: { path: `s3://${bucket.name}/lake/dt=\${ds}`, spool: { path: join(folder, "spool") } } };
  const copy = async (): Promise<string> => {
    const to = await mkdtemp(join(folder, "mirror-"));
    await mirror(bucket, path, to);
    return to;
  };
  const success = async (): Promise<string> =>
    Buffer.from(await bucket.get(`${path}/_SUCCESS`).catch(() => new Uint8Array())).toString("utf8");
  return {
    input: `s3://${bucket.name}/in/*.parquet`,
    output,
    eraserOutput: output,
    bySpan: false,
    effect: "replaces",
    async look() {
      const before = await success();
      const to = before === "" ? undefined : await copy().catch(() => undefined); // what was listed may be gone
      const found = to === undefined ? undefined : await lookInFolder(to);
      return (await success()) === before ? found : undefined;
    },
    faults: async ({ left }) => await faultsOfFinished(await copy(), left),
    calls: 45,
    async run(args, moment) {
      if (moment?.kind !== "call") {
        return await runAndKill(args, moment, { env: s3Env(server.port) });
      }
      await using proxy = await httpProxy(server.port);
      const onStart = (child: RunningCli): void => {
        let calls = 0;
        proxy.twist = (request) => {
          calls += /^(?:PUT|POST|DELETE) /.test(request) ? 1 : 0;
          const kill = (): void => void child.kill("SIGKILL");
          return calls === moment.nth ? { kind: "hang", after: moment.when !== "before", hung: kill } : undefined;
        };
      };
      return await runCli(args, { env: s3Env(proxy.port), onStart });
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

export type Mode = "append" | "upsert" | "replace" | "delete_insert";

/** `through`: what a pooler makes of the URL. `insertsOnly`: as a role that may only INSERT and SELECT. */
export async function inTable(
  shared: string,
  server: PostgresServer,
  mode: Mode,
  { through = (url: string) => url, insertsOnly = false } = {},
): Promise<Place> {
  const database = await server.createDatabase();
  const reader = await server.open(database.name);
  const role = `scorer_${database.name}`;
  const outputAs = (user?: string): object => ({
    postgres: {
      url: through(server.url(database.name, user)),
      table: "scores.predictions",
      ...(mode === "delete_insert" ? { mode: "replace", swap: mode } : { mode }),
      ...(mode === "upsert" || mode === "delete_insert" ? { key: ["id"] } : {}),
      timeouts: { lock: 1 },
    },
  });
  return {
    input: join(shared, "in/*.parquet"),
    output: outputAs(insertsOnly ? role : undefined),
    eraserOutput: outputAs(),
    bySpan: mode === "append" || mode === "upsert",
    effect: mode === "append" ? "adds" : mode === "upsert" ? "updates" : "replaces",
    ...(insertsOnly
      ? {
          async prepare(run: (output: object) => Promise<void>) {
            await run(outputAs());
            await database.query(
              `CREATE ROLE ${role} LOGIN; GRANT USAGE ON SCHEMA scores, infer_batch TO ${role};
                GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA infer_batch TO ${role}; GRANT INSERT ON scores.predictions TO ${role};
                GRANT CREATE ON SCHEMA infer_batch TO ${role}`,
            );
          },
        }
      : {}),
    async look() {
      const [there] = await reader.query("SELECT to_regclass('scores.predictions') IS NOT NULL AS yes");
      const rows =
        there?.["yes"] === true
          ? await reader.query(
              `SELECT run_id AS run, id, score FROM scores.predictions
                WHERE run_id NOT IN (SELECT run_id FROM infer_batch.runs WHERE params ->> 'ds' = '${nightBefore}')`,
            )
          : [];
      const found = rows.map(({ run, id, score }) => ({ run: String(run), id: Number(id), score: Number(score) }));
      return { rows: found, told: undefined };
    },
    async faults({ scored }) {
      const [told] = await database.query(
        `SELECT sum(rows)::int AS n FROM infer_batch.spans WHERE run_id IN
          (SELECT run_id FROM infer_batch.finishes f WHERE publication = (SELECT max(publication) FROM infer_batch.finishes))`,
      );
      const left = await database.query("SELECT tablename FROM pg_tables WHERE tablename ~ '^(staging|keys)_'");
      return [
        ...(told?.["n"] === scored ? [] : [`spans tell of ${String(told?.["n"])} rows, expected ${scored}`]),
        ...left.map(({ tablename }) => `${String(tablename)} is left`),
      ];
    },
    calls: 28,
    run(args, moment) {
      const when =
        moment?.kind === "call" ? `${moment.when === "amid" ? "sent" : moment.when} COMMIT #${moment.nth}` : "";
      return runAndKill(args, moment, { env: { CRASH_AT: when }, script: "pg-preload.mjs" });
    },
    async [Symbol.asyncDispose]() {
      await reader[Symbol.asyncDispose]();
      await database[Symbol.asyncDispose]();
    },
  };
}
