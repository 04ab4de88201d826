import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type CliResult, projectFolder, runCli, type RunningCli } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { identity } from "../support/faulty.js";
import { httpProxy } from "../support/http-proxy.js";
import { scratchFolder } from "../support/job.js";
import { publishedRun } from "../support/nights.js";
import { writeModel } from "../support/onnx.js";
import { faultsOfFinished, partNames } from "../support/output.js";
import { readFiles, writeRows } from "../support/parquet.js";
import { findPgBouncer, type PgBouncer, startPgBouncer } from "../support/pgbouncer.js";
import { type PostgresServer, usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { upload } from "../support/s3-job.js";
import { mirror } from "../support/s3-target.js";
import { s3Env, type S3Server, useS3 } from "../support/s3.js";
import { torture } from "../support/torture.js";

/** Where runs of a test write, what readers find there, and how a process is killed that writes there. */
interface Place extends AsyncDisposable {
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
  readonly run: (args: readonly string[], moment: Moment | undefined) => Promise<CliResult>;
}

interface Look {
  readonly rows: readonly Found[];
  /** The run that readers are told that the rows are of; undefined: they are not told. */
  readonly told: string | undefined;
}

interface Found {
  readonly run: string;
  readonly id: number;
  readonly score: number;
}

/** A call that makes something durable, counted from the start of the process; or a time after that. */
type Moment =
  | { readonly kind: "call"; readonly when: "before" | "amid" | "after"; readonly nth: number }
  | { readonly kind: "time"; readonly ms: number };

/** The night that readers of a life look at, and the one before, which it is compared with. */
const [nightBefore, night] = ["2026-11-20", "2026-11-21"];

/** Rows of the input, `id` from 0, in two shards; every 97th from 5 on lacks its value and is rejected. */
const rowsOfInput = 360;
const isRejected = (id: number): boolean => id % 97 === 5;

async function writeInput(folder: string): Promise<void> {
  await mkdir(join(folder, "in"), { recursive: true });
  const rows = `SELECT i AS id, CASE WHEN i % 97 <> 5 THEN i::DOUBLE END AS v FROM range(${rowsOfInput}) t(i)`;
  await writeRows(join(folder, "in/part-00000.parquet"), `${rows} WHERE i < 200`);
  await writeRows(join(folder, "in/part-00001.parquet"), `${rows} WHERE i >= 200`);
  await writeModel(join(folder, "model.onnx"), identity);
}

const preload = (name: string): string => `--import=${pathToFileURL(join(projectFolder, "test/crash", name)).href}`;

type Env = Readonly<Record<string, string>>;

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

async function lookInFolder(folder: string): Promise<Look | undefined> {
  const told = await publishedRun(folder);
  const rows = told === undefined ? undefined : await rowsIn(folder).catch(() => undefined);
  return rows !== undefined && (await publishedRun(folder)) === told ? { rows, told } : undefined;
}

async function rowsIn(folder: string): Promise<Found[]> {
  const rows = await readFiles((await partNames(folder)).map((name) => join(folder, name)));
  return rows.map(({ run_id: run, id, score }) => ({ run: String(run), id: Number(id), score: Number(score) }));
}

function inFolder(folder: string, shared: string): Promise<Place> {
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

async function inBucket(folder: string, shared: string, server: S3Server): Promise<Place> {
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

type Mode = "append" | "upsert" | "replace" | "delete_insert";

let roles = 0;

/** `through`: what a pooler makes of the URL. `insertsOnly`: as a role that may only INSERT and SELECT. */
async function inTable(
  shared: string,
  server: PostgresServer,
  mode: Mode,
  { through = (url: string) => url, insertsOnly = false } = {},
): Promise<Place> {
  const database = await server.createDatabase();
  const reader = await server.open(database.name);
  roles += 1;
  const role = `scorer_${roles}`; // it outlives its database, which others use again
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

/*
 * Lives of a night, each from a seed: it is scored, scored again, held and decided on where it has checks, and two
 * erasures of it run at once. One to four processes do each of these, and are killed at random moments and at random
 * durable calls, and started again, while a reader polls. Every row that the reader finds must be right, and the rows
 * together those of a state that the night was in.
 *
 *   INFER_BATCH_SEEDS=1-200 npx vitest run test/crash/kills.test.ts
 */

const s3 = useS3();
const postgres = usePostgres();
const poolerProgram = findPgBouncer();
/** Server sessions of the pooler: fewer than the processes of two lives ask for. */
const pooledSessions = 8;
const livesAtOnce = 2;
const commitRows = 60;
/** Between two looks of a reader, which cost more than what it looks at in a folder of few rows. */
const pauseMs = torture ? 20 : 60;
/** Of each process of a stage, before it is left alone. */
const mostKills = torture || process.env["INFER_BATCH_SEEDS"] !== undefined ? 4 : 1;

type Open = (folder: string, shared: string) => Promise<Place>;

let pooler: PgBouncer | undefined;
const pooled = { through: (url: string): string => pooler?.through(url) ?? url };

const places: readonly (readonly [name: string, open: Open])[] = [
  ["files", inFolder],
  ["S3", (folder, shared) => inBucket(folder, shared, s3.server())],
  ["upsert behind PgBouncer", (_, shared) => inTable(shared, postgres.server(), "upsert", pooled)],
  ["append, INSERT only", (_, shared) => inTable(shared, postgres.server(), "append", { insertsOnly: true })],
  ["replace", (_, shared) => inTable(shared, postgres.server(), "replace")],
  ["append", (_, shared) => inTable(shared, postgres.server(), "append")],
  ["upsert", (_, shared) => inTable(shared, postgres.server(), "upsert")],
  ["append behind PgBouncer", (_, shared) => inTable(shared, postgres.server(), "append", pooled)],
  ["replace by rows", (_, shared) => inTable(shared, postgres.server(), "delete_insert")],
];

/** Faults by their kind; anything else that goes wrong ends the life with an error. */
type Faults = Record<"lost" | "doubled" | "wrong" | "torn", string[]>;

/** Rows that a run has: by what it multiplies each value with, which tells it from others. */
interface RunRows {
  readonly factor: number;
  readonly ids: ReadonlySet<number>;
}

/** What readers may find: one of the states of a level, and never again one of a level before. */
type State = readonly RunRows[];

const ids = Array.from({ length: rowsOfInput }, (_, id) => id).filter((id) => !isRejected(id));
const allIds = new Set(ids);
const fewIds = new Set(ids.filter((id) => id < 40));
const texts = new WeakMap<RunRows, string>();

function textOf(run: RunRows): string {
  const text = texts.get(run) ?? `${run.factor}: ${[...run.ids].toSorted((a, b) => a - b).join(" ")}`;
  texts.set(run, text);
  return text;
}

const stateText = (state: State): string => state.map(textOf).join("\n");

function withoutIds(state: State, gone: ReadonlySet<number>): State {
  const left = state.map(({ factor, ids: some }) => ({
    factor,
    ids: new Set([...some].filter((id) => !gone.has(id))),
  }));
  return left.filter(({ ids: some }) => some.size > 0);
}

const numberOf = (run: string): number => Number(/-r(\d+)$/.exec(run)?.[1] ?? 1);

/** Rows by runs, the oldest first; notes faults. What an erasure has left is of an earlier run than is told. */
function runsIn({ rows, told }: Look, faults: Faults): RunRows[] {
  const runs = new Map<string, { factor: number; ids: Set<number> }>();
  for (const { run, id, score } of rows) {
    const factor = id === 0 ? undefined : score / id;
    const known = runs.get(run) ?? { factor: factor ?? 0, ids: new Set() };
    runs.set(run, known);
    known.factor ||= factor ?? 0;
    if (score !== known.factor * id || !allIds.has(id)) {
      faults.wrong.push(`${run}: the score of ${id} is ${score}`);
    }
    if (known.ids.has(id)) {
      faults.doubled.push(`${run}: ${id} is there twice`);
    }
    if (told !== undefined && numberOf(run) > numberOf(told)) {
      faults.torn.push(`${id} is of ${run}, where _SUCCESS names ${told}`);
    }
    known.ids.add(id);
  }
  return [...runs].toSorted(([a], [b]) => numberOf(a) - numberOf(b)).map(([, found]) => found);
}

interface Watch {
  readonly faults: Faults;
  readonly reads: number;
  /** The states that become visible next, any of them; said before that begins. */
  due(...states: readonly State[]): void;
  /** Looks once more, when a state must be there; none of those before may come again. */
  settle(state: State): Promise<void>;
  stop(): Promise<void>;
}

/** `bySpan`: a state may be visible in part, as long as each span is there as a whole or not at all. */
function watchPlace({ look }: Place, bySpan: boolean): Watch {
  const faults: Faults = { lost: [], doubled: [], wrong: [], torn: [] };
  /** From the state that was seen last to the one that is due last. */
  let levels: (readonly State[])[] = [[[]]];
  let reads = 0;
  const reader = { isStopped: false };

  const judge = (found: State): void => {
    const text = stateText(found);
    const level = levels.findIndex((states) => states.some((state) => stateText(state) === text));
    if (level >= 0) {
      levels = levels.slice(level);
    } else if (!bySpan || !isOfWholeSpans(found, levels.flat().flat())) {
      faults.torn.push(`a reader found\n${text}`);
    } else {
      const there = new Set(found.flatMap(({ ids: some }) => [...some]));
      const before = levels[0]?.[0]?.flatMap(({ ids: some }) => [...some]) ?? [];
      faults.lost.push(...before.filter((id) => !there.has(id)).map((id) => `${id} was gone for a while`));
    }
  };

  const poll = async (): Promise<void> => {
    while (!reader.isStopped) {
      const found = await look();
      reads += 1;
      if (found !== undefined) {
        judge(runsIn(found, faults));
      }
      await sleep(pauseMs);
    }
  };
  const polling = poll();

  return {
    faults,
    get reads() {
      return reads;
    },
    due(...states) {
      levels.push(states);
    },
    async settle(state) {
      const found = runsIn((await look()) ?? { rows: [], told: undefined }, faults);
      const lost = state.flatMap(({ ids: some }, run) => [...some].filter((id) => found[run]?.ids.has(id) !== true));
      faults.lost.push(...lost.map((id) => `${id} is not there at the end of a stage`));
      if (lost.length === 0 && stateText(found) !== stateText(state)) {
        faults.wrong.push(`at the end of a stage a reader found\n${stateText(found)}`);
      }
      levels = [[state]];
    },
    async stop() {
      reader.isStopped = true;
      await polling;
    },
  };
}

/** Whether each span of each run is there as in a state that is due, or not at all. */
function isOfWholeSpans(found: State, due: State): boolean {
  const ofSpan = (some: ReadonlySet<number>, span: number): string =>
    [...some]
      .filter((id) => Math.floor(id / commitRows) === span)
      .toSorted((a, b) => a - b)
      .join();
  const spans = Array.from({ length: Math.ceil(rowsOfInput / commitRows) }, (_, span) => span);
  return found.every(({ factor, ids: there }) =>
    spans.every((span) => {
      const now = ofSpan(there, span);
      return now === "" || due.some((run) => run.factor === factor && ofSpan(run.ids, span) === now);
    }),
  );
}

interface Life {
  readonly seed: number;
  readonly name: string;
  readonly place: Place;
  readonly workers: number;
  readonly hasChecks: boolean;
  readonly random: () => number;
  readonly folder: string;
  readonly watch: Watch;
  kills: number;
}

/** What a command takes here, about: times of kills are drawn from a little more. */
let commandMs = 700;

/** Draws moments now, so that a seed draws the same ones whoever comes first later. */
function momentsOf({ place, random }: Life): (() => Moment)[] {
  return Array.from({ length: Math.ceil(random() * mostKills) }, () => {
    const [isCall, when, share] = [random() < 0.5, random(), random()];
    const call = {
      kind: "call",
      when: when < 0.4 ? "before" : when < 0.7 ? "amid" : "after",
      nth: 1 + Math.floor(share * place.calls),
    } as const;
    return () => (isCall ? call : { kind: "time", ms: share * 1.1 * commandMs });
  });
}

/** Carries out a command, which is killed at a moment if one is given. Fails unless it is killed, or ends as it may. */
async function attempt(
  life: Life,
  args: readonly string[],
  codes: readonly number[],
  moment?: Moment,
): Promise<CliResult> {
  const startMs = performance.now();
  const ended = await life.place.run(args, moment);
  if (ended.signal === "SIGKILL") {
    life.kills += 1;
  } else if (!codes.includes(ended.code ?? -1)) {
    throw new Error(`${args.join(" ")} ended with ${ended.code}: ${ended.stdout}${ended.stderr}`);
  } else {
    commandMs = 0.8 * commandMs + 0.2 * (performance.now() - startMs);
  }
  return ended;
}

/** Kills a command at each of these moments, then lets it end. */
async function repeated(
  life: Life,
  args: readonly string[],
  codes: readonly number[],
  moments: readonly (() => Moment)[],
): Promise<void> {
  for (const moment of moments) {
    await attempt(life, args, codes, moment());
  }
  await attempt(life, args, codes);
}

const argsOf = ({ folder }: Life, command: string, ...more: string[]): string[] => [
  command,
  join(folder, "job.yaml"),
  "--param",
  `ds=${night}`,
  ...more,
];

/** Writes the spec. `factor` multiplies each value; `few`: the checks hold the run; `output`: as another role has it. */
async function writeJob(
  { place, folder, hasChecks }: Life,
  { factor, few = false, output = place.output }: { factor: number; few?: boolean; output?: object },
): Promise<void> {
  const spec = {
    version: 1,
    name: "night",
    params: { ds: { type: "date", default: nightBefore } },
    input: {
      path: place.input,
      spool: { path: "spool" },
      columns: { x: `v * ${factor}` },
      ...(few ? { where: "id < 40" } : {}),
    },
    model: { path: join(shared, "model.onnx") },
    on_bad_row: "reject",
    max_rejects: "10%",
    commit_rows: commitRows,
    engine: { threads: 1, batch_size: 16 },
    retry: { max_seconds: 60 },
    ...(hasChecks ? { checks: { rejects: "10%" } } : {}),
    output: { columns: ["id"], lineage: true, ...output },
  };
  await writeFile(join(folder, "job.yaml"), JSON.stringify(spec));
}

/** Has all workers carry the run to its end, which is this exit code. */
async function crew(life: Life, code: number): Promise<void> {
  const shares = Array.from({ length: life.workers }, (_, worker) =>
    life.workers === 1 ? [] : ["--worker", `${worker}/${life.workers}`],
  );
  const working = shares.map((share) => repeated(life, argsOf(life, "run", ...share), [0, code], momentsOf(life)));
  await Promise.all(working);
  await attempt(life, argsOf(life, "run"), [code]);
}

async function newRun(life: Life, code: number): Promise<void> {
  const args = argsOf(life, "run", "--new-run", ...(life.place.effect === "adds" ? ["--allow-duplicates"] : []));
  const moments = momentsOf(life);
  // Once the run is planned, another --new-run would open one more if the killed command had got to its end.
  for (let isPlanned = false; !isPlanned; ) {
    const { stderr } = await attempt(life, args, [0, code], moments.pop()?.());
    isPlanned = stderr.includes("planned run");
  }
  await crew(life, code);
}

async function eraseTwo(life: Life, keys: readonly number[]): Promise<void> {
  await writeJob(life, { factor: 1, output: life.place.eraserOutput });
  const erasing = keys.map(async (key) => {
    const moments = momentsOf(life);
    const list = join(life.folder, `key-${key}.txt`);
    await writeFile(list, String(key));
    const args = argsOf(life, "erase", "--keys", list);
    for (let tries = 0; tries < 20; tries += 1) {
      const { code } = await attempt(life, args, [0, 67], moments.pop()?.()); // 67: the other one came first, again
      if (code === 0) {
        return;
      }
    }
    throw new Error(`the erasure of ${key} does not come to an end`);
  });
  await Promise.all(erasing);
}

async function live(life: Life): Promise<void> {
  const { place, random, hasChecks, watch } = life;
  const before = async (output: object): Promise<void> => {
    await writeJob(life, { factor: 1, output });
    await attempt(life, ["run", join(life.folder, "job.yaml")], [0]);
  };
  await (place.prepare ?? (hasChecks ? async (run) => await run(place.output) : undefined))?.(before);

  let state: State = [];
  const publish = async (rows: RunRows, work: () => Promise<void>): Promise<void> => {
    const earlier = { adds: state, updates: withoutIds(state, rows.ids), replaces: [] }[place.effect];
    state = [...earlier, rows];
    watch.due(state);
    await work();
    await watch.settle(state);
  };

  await writeJob(life, { factor: 1 });
  await publish({ factor: 1, ids: allIds }, () => crew(life, 0));

  if (hasChecks) {
    await writeJob(life, { factor: 1.125, few: true });
    await newRun(life, 67);
    const end = random();
    if (end < 0.33) {
      await publish({ factor: 1.125, ids: fewIds }, () =>
        repeated(life, argsOf(life, "approve"), [0], momentsOf(life)),
      );
    } else if (end < 0.67) {
      await repeated(life, argsOf(life, "discard", "--reason", "too few"), [0], momentsOf(life));
    }
  }

  await writeJob(life, { factor: 1.25 });
  await publish({ factor: 1.25, ids: allIds }, () => newRun(life, 0));

  const [first = 0, second = 0] = [Math.floor(random() * 50), 100 + Math.floor(random() * 90)].map((at) => ids[at]);
  const erased = withoutIds(state, new Set([first, second]));
  watch.due(withoutIds(state, new Set([first])), withoutIds(state, new Set([second])));
  watch.due(erased);
  await eraseTwo(life, [first, second]);
  await watch.settle(erased);

  const status = JSON.parse((await attempt(life, argsOf(life, "status", "--json"), [0])).stdout) as Record<
    string,
    unknown
  >;
  expect(status).toMatchObject({ status: "published", damage: [], rows_rejected: rowsOfInput - ids.length });
  watch.faults.torn.push(...(await place.faults({ scored: ids.length, left: ids.length - 2 })));
}

interface Ended {
  readonly seed: number;
  readonly name: string;
  readonly kills: number;
  readonly reads: number;
  readonly faults: Faults;
}

async function lifeOf(seed: number): Promise<Ended> {
  const [name, open] = places[seed % places.length] ?? expect.fail("no place");
  const random = randomOf(seed);
  await using scratch = await scratchFolder();
  await using place = await open(scratch.path, shared);
  const hasChecks = ((seed % places.length) + Math.floor(seed / places.length)) % 2 === 0;
  const watch = watchPlace(place, place.bySpan && !hasChecks);
  const workers = 1 + Math.floor(random() * 4);
  const life: Life = { seed, name, place, workers, hasChecks, random, folder: scratch.path, watch, kills: 0 };
  try {
    await live(life);
  } finally {
    await watch.stop();
  }
  return { seed, name, kills: life.kills, reads: watch.reads, faults: watch.faults };
}

function shown(faults: Faults): string[] {
  return Object.entries(faults).flatMap(([kind, all]) =>
    all.slice(0, 3).map((text) => `${kind} (1 of ${all.length}): ${text.slice(0, 2000)}`),
  );
}

function seedsOf(range: string): number[] {
  const [first = 1, last = first] = range.split("-").map(Number);
  return Array.from({ length: last - first + 1 }, (_, index) => first + index);
}

const range = process.env["INFER_BATCH_SEEDS"] ?? (torture ? "0-44" : undefined);
/** The short form: over files, and upsert behind PgBouncer. Other tests kill a process at each request to S3. */
const seeds = range === undefined ? [27, 29] : seedsOf(range);
let shared = "";

beforeAll(async () => {
  shared = await mkdtemp(join(tmpdir(), "infer-batch-lives-"));
  await writeInput(shared);
  if (poolerProgram !== undefined) {
    pooler = await startPgBouncer(poolerProgram, postgres.server().port, pooledSessions);
  }
});

afterAll(async () => {
  await pooler?.[Symbol.asyncDispose]();
  await rm(shared, { recursive: true, force: true });
});

s3.describe("over files, S3 and Postgres,", () => {
  postgres.describe("", () => {
    test(`one to four processes that are killed, and two erasures at once, lose, double and tear no row: ${seeds.length} lives`, {
      timeout: 4 * 3_600_000,
    }, async () => {
      const lives: Ended[] = [];
      const how = { limit: livesAtOnce, name: (seed: number) => `seed ${seed}` };
      const failures = await failuresOf(seeds, how, async (seed) => {
        const ended = await lifeOf(seed);
        lives.push(ended);
        // A harness that kills nobody, or whose reader sees nothing, finds nothing.
        expect(ended.kills, `kills of seed ${seed}`).toBeGreaterThan(0);
        expect(ended.reads, `reads of seed ${seed}`).toBeGreaterThan(0);
        const faults = shown(ended.faults);
        if (faults.length > 0) {
          throw new Error([ended.name, ...faults].join("\n"));
        }
      });
      const sum = (count: (life: Ended) => number): number => lives.reduce((total, life) => total + count(life), 0);
      const faultsOf = (kind: keyof Faults): string => `${sum(({ faults }) => faults[kind].length)} ${kind}`;
      console.info(
        [
          `${sum(({ kills }) => kills)} kills in ${lives.length} lives, ${sum(({ reads }) => reads)} reads:`,
          `${(["lost", "doubled", "wrong", "torn"] as const).map(faultsOf).join(", ")}, ${failures.length} lives failed`,
        ].join(" "),
      );
      expect(failures).toEqual([]);
    });
  });
});
