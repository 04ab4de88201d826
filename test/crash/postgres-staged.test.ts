import { appendFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { scratch, scratchFolder } from "../support/job.js";
import { killsOf, leftTables, type Mode, pgJob, type PgJob, runWatchedPg } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults } from "../support/pg-job.js";
import { expectInOrder, readMeanwhile } from "../support/pg-reader.js";
import { statesIn } from "../support/pg-staged.js";
import { usePostgres } from "../support/postgres.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const parallelKills = 2;

type Command = "run" | "approve" | "discard" | "run --new-run";

/** Checks that hold the run. */
const strict = { outputs: { score: { range: [0, 1] } } };

/** `run` is killed where the checks pass; the other commands where they hold the run. A new run passes them. */
async function jobFor(folder: string, database: Database, mode: Mode, command: Command): Promise<PgJob> {
  const job = await pgJob(folder, database, mode, { checks: command === "run" ? {} : strict });
  if (command !== "run") {
    await expectEnd(runHere(["run", job.spec, "--no-progress"]), 67);
  }
  if (command === "run --new-run") {
    const spec = JSON.parse(await readFile(job.spec, "utf8")) as object;
    await writeFile(job.spec, JSON.stringify({ ...spec, checks: {} }));
  }
  return job;
}

async function watched(job: PgJob, command: Command, env: Record<string, string>): Promise<CliResult> {
  return command === "run --new-run"
    ? await runWatchedPg(job.spec, env, { args: ["--new-run"] })
    : await runWatchedPg(job.spec, env, { command });
}

/** Runs a command again that was killed. Once a new run is planned, another --new-run might open one more. */
async function again(job: PgJob, command: Command, said: string): Promise<CliResult> {
  const [verb, ...args] = command.split(" ") as [string, ...string[]];
  return await runHere([verb, job.spec, ...(said.includes("planned run") ? [] : args)]);
}

async function expectEnded(job: PgJob, command: Command): Promise<void> {
  const { database, fixture, mode } = job;
  expect(await leftTables(database)).toEqual([]);
  if (command === "discard") {
    expect(await database.query("SELECT id FROM scores.predictions")).toEqual([{ id: "-1" }]);
    expect(await statesIn(database)).toEqual(["discarded"]);
    return;
  }
  if (mode !== "replace") {
    await database.query("DELETE FROM scores.predictions WHERE id = -1");
  }
  expect(await tableFaults(database, fixture)).toEqual([]);
  const last = command === "run --new-run" ? ["published", "superseded"] : ["published"];
  expect(new Set(await statesIn(database))).toEqual(new Set(last));
  expect(await database.query("SELECT publication FROM infer_batch.finishes")).toEqual([{ publication: "1" }]);
}

const rowsSql = "SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids, min(id) < 0 AS old FROM scores.predictions";

/** What readers may find, in order: the row that was there, then the rows of the whole run. */
function dueOf({ fixture, mode }: PgJob, command: Command): object[] {
  const all = mode === "replace" ? fixture.rows : fixture.rows + 1;
  const before = { n: 1, ids: 1, old: true };
  return command === "discard" ? [before] : [before, { n: all, ids: all, old: mode !== "replace" }];
}

/** Kills a command at a moment, and lets the same command finish, while a reader polls the table. */
async function killAndRepeat(mode: Mode, command: Command, moment: string): Promise<void> {
  await using folder = await scratchFolder();
  await using database = await postgres.server().createDatabase();
  const job = await jobFor(folder.path, database, mode, command);
  await using reader = await postgres.server().open(database.name);
  const due = dueOf(job, command);
  const { seen } = await readMeanwhile(reader, rowsSql, async () => {
    const killed = await watched(job, command, { CRASH_AT: moment });
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    await expectEnd(again(job, command, killed.stderr), 0);
  });
  expectInOrder(seen, due);
  await expectEnded(job, command);
}

postgres.describe("a staged run in Postgres that is killed at any statement", () => {
  // Discarding is the same in all modes. In short, each command is killed in one mode: `append`, where rows that are
  // added twice are noticed, `replace`, and `upsert`.
  const short = new Set(["run append", "approve replace", "discard upsert"]);
  const cases = (["run", "approve", "discard", "run --new-run"] as const).flatMap((command) =>
    (["append", "upsert", "replace"] as const).flatMap((mode) =>
      torture || short.has(`${command} ${mode}`) ? [{ command, mode }] : [],
    ),
  );

  test.each(cases)(
    "a staged run that is killed at any statement is ended by the same command, and readers see none of its rows or all: $command, $mode",
    async ({ command, mode }) => {
      const traced = async (): Promise<string[]> => {
        await using database = await postgres.server().createDatabase();
        const job = await jobFor(scratch.path, database, mode, command);
        const trace = join(scratch.path, "trace");
        await appendFile(trace, "");
        await expectEnd(watched(job, command, { CRASH_TRACE: trace }), 0);
        await expectEnded(job, command);
        return (await readFile(trace, "utf8")).trimEnd().split("\n");
      };
      // Of `run`, the moments before its last ones are those of any run. So are those in the middle of a new run.
      const every = killsOf(await traced()).filter((moment) => !moment.startsWith("torn "));
      const all = command === "run --new-run" ? [...every.slice(0, 14), ...every.slice(-8)] : every;
      const few = command === "run" ? all.slice(-3) : all.filter((_, index) => index % 5 === 0);
      const kills = torture ? all : few;
      expect(kills.length).toBeGreaterThan(command === "discard" ? 0 : 1);
      const how = { limit: parallelKills, name: (moment: string) => `killed ${moment}` };
      const failures = await failuresOf(kills, how, (moment) => killAndRepeat(mode, command, moment));
      expect(failures).toEqual([]);
      console.info(`${command}, ${mode}: ${kills.length} kills`);
    },
    1_200_000,
  );
});
