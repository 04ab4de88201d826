import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runCli, runHere, type RunningCli } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { scratch, scratchFolder } from "../support/job.js";
import { killsOf, leftTables, type Mode, type PgJob, pgJob, runWatchedPg } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { firstOf, torture } from "../support/torture.js";
import { isStopped, until } from "../support/waiting.js";

const postgres = usePostgres();
const parallelKills = 2;
const overwriting = ["upsert", "replace"] as const;

const yesterday = ["--param", "ds=2026-11-01"];
const today = ["--param", "ds=2026-11-02"];

/** A job with a run for each day, whose rows say which run they are of. */
async function dailyJob(folder: string, database: Database, mode: Mode, commitRows = 160): Promise<PgJob> {
  await mkdir(folder, { recursive: true });
  return await pgJob(folder, database, mode, {
    table: "CREATE SCHEMA scores",
    params: { ds: "2026-11-01" },
    commit_rows: commitRows,
    output: { lineage: true },
  });
}

async function run({ spec }: PgJob, args: readonly string[]): Promise<CliResult> {
  return await runHere(["run", spec, "--no-progress", ...args]);
}

/** The run ids in the table and how many rows each has; every id of the input is there once. */
async function runsIn({ database, fixture }: PgJob): Promise<Record<string, number>> {
  const rows = await database.query("SELECT run_id, count(*)::int AS n FROM scores.predictions GROUP BY 1");
  const ids = await database.query("SELECT count(DISTINCT id)::int AS n FROM scores.predictions");
  expect(ids).toEqual([{ n: fixture.rows }]);
  return Object.fromEntries(rows.map(({ run_id, n }) => [String(run_id), Number(n)]));
}

async function idOf({ database }: PgJob, ds: string): Promise<string> {
  const rows = await database.query("SELECT run_id FROM infer_batch.runs WHERE plan::json -> 'params' ->> 'ds' = $1", [
    ds,
  ]);
  return String(rows[0]?.["run_id"]);
}

postgres.describe("an older run that was killed at any statement, after a newer run is complete", () => {
  test.each(firstOf(overwriting.toReversed()))(
    "a resumed older run never replaces a newer run's rows without --allow-older: %s",
    {
      timeout: 1_200_000,
    },
    async (mode) => {
      const traced = async (): Promise<string[]> => {
        await using database = await postgres.server().createDatabase();
        const job = await dailyJob(join(scratch.path, "traced"), database, mode);
        const trace = join(scratch.path, "trace");
        await expectEnd(runWatchedPg(job.spec, { CRASH_TRACE: trace }, { args: yesterday }), 0);
        return (await readFile(trace, "utf8")).trimEnd().split("\n");
      };
      // In short: in a COPY, and while the last COMMIT is on its way.
      const moments = killsOf(await traced(), { ofEnd: true }).filter((kill) => torture || !kill.startsWith("before"));
      const kills = torture ? moments : [...moments.slice(0, 1), ...moments.slice(-2, -1)];
      expect(kills.length).toBeGreaterThan(1);
      const ends: (number | null)[] = [];
      const how = { limit: parallelKills, name: (moment: string) => `killed ${moment}` };
      const failures = await failuresOf(kills, how, async (moment, index) => {
        await using database = await postgres.server().createDatabase();
        const job = await dailyJob(join(scratch.path, `kill-${index}`), database, mode);
        const killed = await runWatchedPg(job.spec, { CRASH_AT: moment }, { args: yesterday });
        expect(killed.signal, killed.stderr).toBe("SIGKILL");
        await expectEnd(run(job, today), 0);

        const { code, stderr } = await run(job, yesterday);
        ends.push(code);
        if (code !== 0) {
          expect(code, stderr).toBe(66);
          expect(stderr).toMatch(/was planned after .*, and has published to this table\n.*hint: .*--allow-older/);
        }
        expect(await runsIn(job)).toEqual({ [await idOf(job, "2026-11-02")]: job.fixture.rows });

        await expectEnd(run(job, [...yesterday, "--allow-older"]), 0);
        const all = await runsIn(job);
        if (code === 66 && mode === "replace") {
          expect(all).toEqual({ [await idOf(job, "2026-11-01")]: job.fixture.rows });
        }
        expect(await database.query("SELECT DISTINCT status FROM infer_batch.progress")).toEqual([
          { status: "complete" },
        ]);
        expect(await leftTables(database)).toEqual([]);
      });
      expect(failures).toEqual([]);
      expect(ends).toContain(66);
    },
  );
});

/** Before one of these yesterday's run stops by itself, so that it cannot end before today's begins. */
const copies: Readonly<Record<(typeof overwriting)[number], string>> = {
  upsert: 'before COPY pg_temp.infer_batch_span ("id", "score", "r',
  replace: 'before COPY "scores"."predictions__staging_…" ("id", "s',
};

/**
 * Carries out today's run beside yesterday's, which has stopped, and continues that so many milliseconds after today's
 * is planned; "after": when today's has ended.
 */
async function runBeside({ spec }: PgJob, child: RunningCli, continues: number | "after"): Promise<CliResult> {
  let going: Promise<unknown> | undefined;
  const goOn = (): unknown => child.kill("SIGCONT");
  try {
    return await runCli(["run", spec, "--no-progress", ...today], {
      onStderr: (seen) => {
        if (continues !== "after" && /planned run/.test(seen)) {
          going ??= sleep(continues).then(goOn);
        }
      },
    });
  } finally {
    await going;
    goOn();
  }
}

/** Begins yesterday's run, and carries out today's when that has stopped before its COPY of that number, from 1. */
async function bothRuns(
  job: PgJob,
  mode: (typeof overwriting)[number],
  stops: number,
  continues: number | "after",
): Promise<{ readonly older: CliResult; readonly newer: CliResult }> {
  let child: RunningCli | undefined;
  let hasEnded = false;
  const watched = runWatchedPg(
    job.spec,
    { CRASH_STOP: `${copies[mode]} #${stops}` },
    {
      args: yesterday,
      onStart: (started) => {
        child = started;
      },
    },
  );
  void watched.finally(() => {
    hasEnded = true;
  });
  await until(async () => hasEnded || (await isStopped(child)));
  if (child === undefined || hasEnded) {
    throw new Error(`yesterday's run ended before that COPY: ${(await watched).stderr}`);
  }
  const newer = await runBeside(job, child, continues);
  return { older: await watched, newer };
}

const seeds = torture ? 40 : 1;

postgres.describe("an older run and a newer one at the same time", () => {
  test.each(firstOf(overwriting))(
    `an older and a newer run at the same time leave the newer rows, ${seeds} seeds: %s`,
    {
      timeout: 900_000,
    },
    async (mode) => {
      const ends: (number | null)[] = [];
      const how = { limit: 1, name: (seed: number) => `seed ${seed}` };
      const failures = await failuresOf(
        Array.from({ length: seeds }, (_, index) => index),
        how,
        async (seed) => {
          const random = randomOf(seed);
          await using folder = await scratchFolder();
          await using database = await postgres.server().createDatabase();
          const job = await dailyJob(folder.path, database, mode, 20);
          const { older, newer } = await (seed === 0
            ? bothRuns(job, mode, 1, "after")
            : bothRuns(job, mode, 1 + Math.floor(random() * 20), random() * 150));
          expect(newer.code, newer.stderr).toBe(0);
          expect([0, 66], older.stderr).toContain(older.code);
          ends.push(older.code);
          expect(await runsIn(job)).toEqual({ [await idOf(job, "2026-11-02")]: job.fixture.rows });
        },
      );
      console.info(`exit codes of yesterday's runs: ${ends.join(", ")}`);
      expect(failures).toEqual([]);
      expect(ends).toContain(66);
    },
  );
});
