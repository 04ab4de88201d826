import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { pathToFileURL } from "node:url";
import { beforeAll, describe, expect, test } from "vitest";
import { type ChatServer, serveChat } from "../support/chat-server.js";
import { type CliOptions, type CliResult, projectFolder, type RunningCli, runCli, runHere } from "../support/cli.js";
import { httpProxy } from "../support/http-proxy.js";
import { scratch } from "../support/job.js";
import {
  keepBucket,
  keepDatabase,
  keepDisk,
  layoutBucket,
  layoutFolder,
  type LayoutJob,
  loadBucket,
  loadDatabase,
  loadDisk,
  makeInput,
} from "../support/layout.js";
import { outputRows } from "../support/output.js";
import type { Row } from "../support/parquet.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { type Bucket, s3Env, useS3 } from "../support/s3.js";
import { mirror } from "../support/s3-target.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";

const s3 = useS3();
const postgres = usePostgres();

/** `npm run layout`: writes the fixture. */
const making = process.env["INFER_BATCH_LAYOUT"] === "make";

/** When a process is killed: its first span is committed, the run is approved, or answers are kept. */
type Moment = "first span" | "decision" | "answers";

/** Where the fixture is made. */
interface Maker {
  readonly outputOf: (job: LayoutJob) => object | undefined;
  readonly env: Readonly<Record<string, string>>;
  /** Has commands stand still behind a moment of this run from now on; returns what waits until one does. */
  readonly stall: (moment: "first span" | "decision", job: LayoutJob, date: string) => Promise<Stall>;
  readonly keep: () => Promise<void>;
}

interface Stall {
  readonly env: Readonly<Record<string, string>>;
  reached(): Promise<void>;
  end(): Promise<void>;
}

/** Long enough for what was under way beside a call that stands still. */
const settlingMs = 1500;

const dateOf = (day: number): string => `2026-01-0${day}`;

/** What the fixture must not tell of the machine that it is made on. */
const nobody = `data:text/javascript,${encodeURIComponent(`
  import os from "node:os";
  import { syncBuiltinESMExports } from "node:module";
  os.hostname = () => "host";
  os.userInfo = () => ({ username: "maker" });
  syncBuiltinESMExports();
`)}`;

const preload = pathToFileURL(join(projectFolder, "test/crash/preload.mjs")).href;

/** Brings runs of the jobs into all states, by commands alone, some of which are killed. */
async function make(folder: string, { outputOf, env, stall, keep }: Maker): Promise<void> {
  await using chat = await serveChat(({ number }) =>
    number <= 5 ? { content: `answer ${number}` } : new Promise(() => undefined),
  );
  await layoutFolder(folder, chat.url, outputOf);
  const run = (args: readonly string[], more: CliOptions = {}): Promise<CliResult> =>
    runCli(args, {
      cwd: folder,
      node: [`--import=${nobody}`, `--import=${preload}`],
      ...more,
      env: { ...env, ...more.env },
    });
  const step = async (due: number, job: LayoutJob, command: string, day: number, ...more: string[]): Promise<void> => {
    const { code, stdout, stderr } = await run([command, `${job}.yaml`, "--param", `ds=${dateOf(day)}`, ...more]);
    expect(code, stdout + stderr).toBe(due);
  };
  const killed = async (moment: Moment, job: LayoutJob, day: number): Promise<void> => {
    const stalled = moment === "answers" ? undefined : await stall(moment, job, dateOf(day));
    let child: RunningCli | undefined;
    const running = run(["run", `${job}.yaml`, "--param", `ds=${dateOf(day)}`], {
      env: stalled?.env ?? {},
      onStart: (started) => {
        child = started;
      },
    });
    await (stalled === undefined ? until(() => chat.requests.length > 5) : stalled.reached());
    await sleep(settlingMs);
    child?.kill("SIGKILL");
    const { signal, stderr } = await running;
    await stalled?.end();
    expect(signal, stderr).toBe("SIGKILL");
  };
  await step(0, "nightly", "run", 1);
  await step(0, "nightly", "run", 2);
  await step(0, "nightly", "prune", 2, "--keep", "1");
  await step(0, "nightly", "erase", 2, "--keys", "keys.txt");
  await step(0, "nightly", "run", 3);
  await step(67, "nightly", "run", 4);
  await killed("decision", "nightly", 5);
  await killed("first span", "nightly", 6);
  await step(67, "nightly", "run", 7);
  await step(67, "nightly", "run", 7, "--new-run");
  await step(0, "nightly", "discard", 7, "--reason", "too few");
  await step(0, "plain", "run", 1);
  await killed("first span", "plain", 2);
  await killed("answers", "answers", 1);
  if (outputOf("swapped") !== undefined) {
    await step(0, "swapped", "run", 1);
    await step(0, "swapped", "run", 2);
  }
  await keep();
}

/** `root`: of paths, which are relative on a disk. */
const filesBelow =
  (root: string) =>
  (job: LayoutJob): object | undefined => {
    const spool = root === "" ? {} : { spool: { path: "spool" } };
    return job === "swapped" ? undefined : { parquet: { path: `${root}lake/${job}/dt=\${ds}`, ...spool } };
  };

const inTables =
  (url: string) =>
  (job: LayoutJob): object => {
    const mode =
      job === "nightly" ? { mode: "upsert", key: ["id"] } : { mode: job === "swapped" ? "replace" : "append" };
    return { lineage: true, postgres: { url, table: `scores.${job}`, ...mode } };
  };

/** Has the next INSERT of such a row into a control table wait. */
async function stallInserts(database: Database, table: string, when: string): Promise<void> {
  await database.query(`CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(30); RETURN NEW; END $$;
    CREATE TRIGGER wait BEFORE INSERT ON infer_batch.${table} FOR EACH ROW WHEN (${when}) EXECUTE FUNCTION wait()`);
}

describe.runIf(making)("the fixture is made:", () => {
  beforeAll(makeInput);

  test("files", async () => {
    const folder = scratch.path;
    await make(folder, {
      outputOf: filesBelow(""),
      env: {},
      async stall(moment, job, date) {
        const held = join(folder, "held");
        const call =
          moment === "decision"
            ? "rename _SUCCESS"
            : job === "plain"
              ? "link part-00001"
              : "link control/parts/part-00001";
        const root = join(folder, `lake/${job}/dt=${date}`);
        return Promise.resolve({
          env: { CRASH_ROOT: root, CRASH_AT: `hold ${call} #1`, CRASH_HOLD: held },
          reached: () => until(() => existsSync(held)),
          end: () => rm(held),
        });
      },
      keep: () => keepDisk(folder),
    });
  });

  s3.describe("in S3,", () => {
    test("objects", async () => {
      await using proxy = await httpProxy(s3.server().port);
      const bucket = await s3.server().createBucket(layoutBucket);
      await make(scratch.path, {
        outputOf: filesBelow(`s3://${layoutBucket}/`),
        env: s3Env(proxy.port),
        stall: (moment) => {
          let isReached = false;
          const call = moment === "decision" ? /^PUT .*_SUCCESS/ : /^PUT .*part-00001/;
          proxy.twist = (request) =>
            call.test(request)
              ? {
                  kind: "hang",
                  after: false,
                  hung: () => {
                    isReached = true;
                  },
                }
              : undefined;
          return Promise.resolve({
            env: {},
            reached: () => until(() => isReached),
            end: () => {
              proxy.twist = undefined;
              return Promise.resolve();
            },
          });
        },
        keep: () => keepBucket(s3.server(), bucket),
      });
    });
  });

  postgres.describe("in Postgres,", () => {
    test("a dump", async () => {
      await using database = await postgres.server().createDatabase();
      await make(scratch.path, {
        outputOf: inTables(database.url),
        env: {},
        async stall(moment, job) {
          const ofRun = `NEW.run_id LIKE '${job}-%'`;
          await (moment === "decision"
            ? stallInserts(database, "finishes", ofRun)
            : stallInserts(database, "spans", `${ofRun} AND NEW.span = 1`));
          return {
            env: {},
            reached: () =>
              until(async () => {
                const waiting = await database.query(
                  "SELECT FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()",
                );
                return waiting.length > 0;
              }),
            async end() {
              await database.query(`SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
                WHERE datname = current_database() AND pid <> pg_backend_pid();`);
              await database.query("DROP FUNCTION wait() CASCADE");
            },
          };
        },
        keep: () => keepDatabase(database),
      });
    });
  });
});

/** Where the fixture is read. */
interface Place {
  readonly outputOf: Maker["outputOf"];
  readonly env: Readonly<Record<string, string>>;
  /** Rows that readers have of a job's run for a date. */
  rows(job: LayoutJob, date: string): Promise<readonly Row[]>;
  /** Whether all runs share one table: rows are erased where they are, and a later run's rows take the place of others. */
  readonly shared: boolean;
}

interface Layout extends AsyncDisposable {
  readonly place: Place;
  readonly chat: ChatServer;
  /** Carries out a command for a day of a job. */
  readonly command: (job: LayoutJob, command: string, day: number, ...more: string[]) => Promise<Answer>;
  /** The ids of the rows that readers have; each has its own score. */
  readonly ids: (job: LayoutJob, day: number) => Promise<number[]>;
}

interface Answer {
  readonly code: number | null;
  /** All that the command printed. */
  readonly said: string;
  /** The last line of stdout. */
  readonly json: Readonly<Record<string, unknown>>;
}

async function openLayout(place: Place): Promise<Layout> {
  const chat = await serveChat(({ text }) => ({ content: text }));
  const folder = scratch.path;
  await layoutFolder(folder, chat.url, place.outputOf);
  return {
    place,
    chat,
    async command(job, command, day, ...more) {
      const args = [command, `${job}.yaml`, "--param", `ds=${dateOf(day)}`, "--json", ...more];
      const { code, stdout, stderr } = await runHere(args, { cwd: folder, env: place.env });
      const line = stdout.trimEnd().split("\n").at(-1) ?? "";
      return { code, said: stdout + stderr, json: (line.startsWith("{") ? JSON.parse(line) : {}) as Answer["json"] };
    },
    async ids(job, day) {
      const rows = await place.rows(job, dateOf(day));
      expect(rows.filter(({ id, score }) => job !== "answers" && score !== -Number(id) / 4)).toEqual([]);
      return rows.map(({ id }) => Number(id)).toSorted((a, b) => a - b);
    },
    [Symbol.asyncDispose]: () => chat[Symbol.asyncDispose](),
  };
}

/** Rows 3 and 8 are rejected; few: of the nights that are held. */
const [allRows, few] = [[0, 1, 2, 4, 5, 6, 7, 9, 10], [2]];
const withoutErased = allRows.filter((id) => id !== 9);

/** The end of a run's id that counts the runs of its params. */
const endOf = (runId: unknown): string => /(-r\d+)?$/.exec(String(runId))?.[0] ?? "";

/** What a part of a run's life looks like to commands that change nothing. */
async function expectRead({ place: { shared }, command, ids }: Layout): Promise<void> {
  const states = [
    [1, "pruned", "", 0],
    [2, "published", shared ? "" : "-r2", 2],
    [3, "published", "", 2],
    [4, "held", "", 2],
    [5, "approved", "", 2],
    [6, "unfinished", "", 1],
    [7, "discarded", "-r2", shared ? 2 : 0],
  ] as const;
  for (const [day, status, end, spans] of states) {
    const { code, json } = await command("nightly", "status", day);
    expect([code, json["status"], endOf(json["run_id"]), json["spans_committed"], json["damage"]]).toEqual([
      0,
      status,
      end,
      spans,
      [],
    ]);
  }

  const { runs = [] } = (await command("nightly", "history", 1)).json as { runs?: Record<string, unknown>[] };
  expect(
    runs.map(({ params, run_id: id, status, rows }) => [Object.values(params ?? {})[0], endOf(id), status, rows]),
  ).toEqual([
    ["2026-01-07", "-r2", "discarded", 1],
    ["2026-01-07", "", "superseded", 1],
    ["2026-01-06", "", "unfinished", shared ? 5 : null],
    ["2026-01-05", "", "approved", 9],
    ["2026-01-04", "", "held", 1],
    ["2026-01-03", "", "published", 9],
    ...(shared ? [] : [["2026-01-02", "-r2", "published", 8]]),
    ["2026-01-02", "", "published", 9],
    ["2026-01-01", "", "pruned", 9],
  ]);
  expect(runs.filter(({ decision }) => JSON.stringify(decision).includes('"by":"maker"')).length).toBe(2);

  expect(await ids("nightly", 3)).toEqual(allRows);
  expect(await ids("nightly", 2)).toEqual(shared ? [] : withoutErased);
  const rejects = await command("nightly", "rejects", 3);
  expect(rejects.said.match(/"row":\d+|"reason":"\w+"/g)).toEqual([
    '"row":3',
    '"reason":"null"',
    '"row":2',
    '"reason":"null"',
  ]);
  expect((await command("nightly", "stats", 3)).json).toMatchObject({
    rows: 9,
    rejected: 2,
    outputs: { score: { rows: 9 } },
  });
  if (!shared) {
    const diff = await command("nightly", "diff", 3, "--against", "ds=2026-01-02");
    expect(diff.json).toMatchObject({ rows_a: 8, rows_b: 9, rows_added: 1, rows_compared: 8, rows_changed: 0 });
  }
  expect((await command("plain", "status", 2)).json).toMatchObject({
    status: "unfinished",
    spans_committed: 1,
    rows: 5,
  });
  expect((await command("answers", "status", 1)).json).toMatchObject({
    status: "unfinished",
    paid: { kept: { answers: 5 } },
  });
}

/** Commands go on from each state as if the version that left it had gone on. */
async function expectGoesOn({ place: { shared, outputOf }, command, ids, chat }: Layout): Promise<void> {
  const step = async (job: LayoutJob, line: string, day: number, code: number, due: object): Promise<void> => {
    const [verb = "", ...more] = line.split(" ");
    const { code: ended, said, json } = await command(job, verb, day, ...more);
    expect(ended, `${line} ${day}: ${said}`).toBe(code);
    expect(json, said).toMatchObject(due);
  };
  await step("nightly", "run", 1, 67, { code: "PRUNED" });
  await step("nightly", "run", 2, 0, { status: "already_complete" });
  await step("nightly", "run", 3, 0, { status: "already_complete" });
  await step("nightly", "run", 4, 67, { status: "held" });
  await step("nightly", "approve --reason fine", 4, 0, {
    status: "published",
    rows: 1,
    rows_rejected: 1,
    rows_filtered: 9,
  });
  expect(await ids("nightly", 4)).toEqual(few);
  await step("nightly", "run", 5, 0, { status: "complete", rows_scored: 0, spans_resumed: 2 });
  expect(await ids("nightly", 5)).toEqual(allRows);
  await step("nightly", "run", 6, 0, { status: "complete", rows_scored: 4, rows_rejected: 1, spans_resumed: 1 });
  expect(await ids("nightly", 6)).toEqual(allRows);
  await step("nightly", "run", 7, 67, { status: "discarded" });
  await step("plain", "run", 2, 0, { status: "complete", rows_scored: 4, spans_resumed: 1 });
  expect([await ids("plain", 1), await ids("plain", 2)]).toEqual([allRows, allRows]);

  // The kept answers are not asked for again.
  await step("answers", "run", 1, 0, { status: "complete", spending: { answers: 6, run: { answers: 11 } } });
  expect(chat.requests.map(({ text }) => text).toSorted()).toEqual([10, 5, 6, 7, 8, 9].map((id) => `row ${id}`));
  expect(await ids("answers", 1)).toEqual(Array.from({ length: 11 }, (_, id) => id));

  if (outputOf("swapped") !== undefined) {
    await step("swapped", "rollback", 2, 0, { params: { ds: "2026-01-02" } });
    expect([await ids("swapped", 1), await ids("swapped", 2)]).toEqual([allRows, []]);
  }
  await step("nightly", "erase --keys keys.txt", 1, 0, { rows: shared ? 1 : 3, retained: 0 });
  expect(await ids("nightly", 6)).toEqual(withoutErased);
  await step("nightly", "prune --keep 1", 1, 0, { kept: 2, retained: 0, pruned: 4 });
  expect([await ids("nightly", 6), await ids("nightly", 3)]).toEqual([withoutErased, []]);
}

/** What is left can be decided otherwise, and scored again. */
async function expectScoresAgain({ place: { shared }, command, ids }: Layout): Promise<void> {
  const newRun = async (day: number, status: string, end: string, ...more: string[]): Promise<void> => {
    const { json, said } = await command("nightly", "run", day, "--new-run", ...more);
    expect([json["status"], endOf(json["run_id"])], said).toEqual([status, end]);
  };
  await newRun(1, "complete", "-r3", ...(shared ? ["--allow-older"] : []));
  const discarded = await command("nightly", "discard", 4, "--reason", "wrong");
  expect([discarded.code, (await command("nightly", "approve", 4)).code], discarded.said).toEqual([0, 66]);
  await newRun(5, "complete", ""); // it was approved: this publishes it
  await newRun(6, "complete", "");
  await newRun(7, "held", "-r3");
  expect(await ids("nightly", 6)).toEqual(allRows);
}

/** What a reader has who waits for `_SUCCESS`. */
async function readingRows(folder: string): Promise<readonly Row[]> {
  return existsSync(join(folder, "_SUCCESS")) ? await outputRows(folder) : [];
}

function describeReading(open: () => Promise<Place & AsyncDisposable>): void {
  const inLayout = async (...works: ((layout: Layout) => Promise<void>)[]): Promise<void> => {
    await using place = await open();
    await using layout = await openLayout(place);
    for (const work of works) {
      await work(layout);
    }
  };
  test("each state is shown as what it is, and commands go on from it", () => inLayout(expectRead, expectGoesOn));
  test("what is left is scored again", () => inLayout(expectScoresAgain));
}

describe.runIf(!making)("the fixture is read:", () => {
  describe("files,", () => {
    describeReading(async () => {
      const folder = scratch.path;
      await loadDisk(folder);
      return {
        outputOf: filesBelow(""),
        env: {},
        rows: (job, date) => readingRows(join(folder, `lake/${job}/dt=${date}`)),
        shared: false,
        [Symbol.asyncDispose]: () => Promise.resolve(),
      };
    });
  });

  // Over the store, records are those of a disk.
  if (torture) {
    s3.describe("objects,", () => {
      let bucket: Bucket | undefined;
      describeReading(async () => {
        bucket ??= await s3.server().createBucket(layoutBucket);
        const loaded = bucket;
        await loadBucket(s3.server(), loaded);
        return {
          outputOf: filesBelow(`s3://${layoutBucket}/`),
          env: s3Env(s3.server().port),
          async rows(job, date) {
            const folder = await mkdtemp(join(scratch.path, "mirror-"));
            await mirror(loaded, `lake/${job}/dt=${date}`, folder);
            return await readingRows(folder);
          },
          shared: false,
          [Symbol.asyncDispose]: () => Promise.resolve(),
        };
      });
    });
  }

  postgres.describe("tables,", () => {
    describeReading(async () => {
      const database = await postgres.server().createDatabase();
      await loadDatabase(database);
      return {
        outputOf: inTables(database.url),
        env: {},
        rows: (job, date) =>
          database.query(
            `SELECT * FROM scores.${job} WHERE run_id IN (SELECT run_id FROM infer_batch.runs WHERE params ->> 'ds' = '${date}')`,
          ),
        shared: true,
        [Symbol.asyncDispose]: () => database[Symbol.asyncDispose](),
      };
    });
  });
});
