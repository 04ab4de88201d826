import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { expectEnd, runCli, type RunningCli } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { scratch, scratchFolder } from "../support/job.js";
import { killsOf, leftTables, type Mode, pgJob, type PgJob, runWatchedPg } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults, writePgSpec } from "../support/pg-job.js";
import { expectInOrder, readMeanwhile } from "../support/pg-reader.js";
import { usePostgres } from "../support/postgres.js";
import { randomOf } from "../support/random.js";
import { runSpec, scoreHere, workerOf } from "../support/score.js";
import { firstOf, torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const parallelKills = 2;
const args = ["--new-run"];

/** A finished run, whose rows can be told from those of the next one. */
async function finishedJob(folder: string, database: Database, mode: Mode): Promise<PgJob> {
  const table =
    "CREATE SCHEMA scores; CREATE TABLE scores.predictions (id int8 PRIMARY KEY, score real, old bool NOT NULL DEFAULT false)";
  const job = await pgJob(folder, database, mode, { table });
  await scoreHere(job.spec);
  await database.query("UPDATE scores.predictions SET old = true, score = -1");
  return job;
}

const oldRows =
  "SELECT count(*)::int AS n, count(*) FILTER (WHERE old AND score = -1)::int AS old FROM scores.predictions";

/** What is wrong with the rows that readers see of a new run that was killed. */
async function faultsForReaders({ database, fixture, mode }: PgJob): Promise<string[]> {
  const [row] = await database.query(oldRows);
  const isWhole = row?.["n"] === fixture.rows;
  const isOneRun = row?.["old"] === 0 || row?.["old"] === fixture.rows;
  return isWhole && (isOneRun || mode === "upsert") ? [] : [JSON.stringify(row)];
}

async function expectNew({ database, fixture }: PgJob): Promise<void> {
  await database.query("ALTER TABLE scores.predictions DROP COLUMN old");
  expect(await tableFaults(database, fixture)).toEqual([]);
  expect(await database.query("SELECT DISTINCT status FROM infer_batch.progress")).toEqual([{ status: "complete" }]);
  expect(await leftTables(database)).toEqual([]);
}

postgres.describe("a new run into Postgres that is killed at any statement", () => {
  test.each(firstOf(["replace", "upsert"] as const))(
    "the same command finishes a new run into Postgres that was killed at any statement: %s",
    async (mode) => {
      const traced = async (): Promise<string[]> => {
        await using database = await postgres.server().createDatabase();
        const folder = join(scratch.path, "traced");
        await mkdir(folder);
        const job = await finishedJob(folder, database, mode);
        const trace = join(scratch.path, "trace");
        await expectEnd(runWatchedPg(job.spec, { CRASH_TRACE: trace }, { args }), 0);
        await expectNew(job);
        return (await readFile(trace, "utf8")).trimEnd().split("\n");
      };
      const all = killsOf(await traced(), { ofEnd: mode === "upsert" });
      // In short: in a COPY, while the COMMIT of the finish is on its way, and when all is done.
      const short = all.filter((moment) => !moment.startsWith("before"));
      const kills = torture ? all : [...short.slice(0, 1), ...short.slice(-2)];
      expect(kills.length).toBeGreaterThan(1);
      const runs = new Set<string>();
      const how = { limit: parallelKills, name: (moment: string) => `killed ${moment}` };
      const failures = await failuresOf(kills, how, async (moment, index) => {
        await using database = await postgres.server().createDatabase();
        const folder = join(scratch.path, `kill-${index}`);
        await mkdir(folder);
        const job = await finishedJob(folder, database, mode);
        await using reader = await postgres.server().open(database.name);
        const { seen } = await readMeanwhile(reader, oldRows, async () => {
          const killed = await runWatchedPg(job.spec, { CRASH_AT: moment }, { args });
          expect(killed.signal, killed.stderr).toBe("SIGKILL");
          expect(await faultsForReaders(job)).toEqual([]);
          const report = await scoreHere(job.spec, { newRun: true });
          expect(report.status).toBe("complete");
          runs.add(report.runId.slice(-3));
        });
        const { rows } = job.fixture;
        expect(seen.filter(({ n }) => n !== rows)).toEqual([]);
        if (mode === "replace") {
          expectInOrder(
            seen.map(({ old }) => old),
            [rows, 0],
          );
        }
        await expectNew(job);
      });
      expect(failures).toEqual([]);
      // Killed when all was done, it is opened once more.
      expect([...runs].toSorted()).toEqual(["-r2", "-r3"]);
    },
    1_200_000,
  );
});

const moments = torture ? 60 : 2;
const modeOf = (seed: number): Mode => (["append", "upsert", "replace"] as const)[seed % 3] ?? "append";

postgres.describe("a new run that is opened while an attempt of the run before works", () => {
  test(`opening a new run ends an attempt of the run before, whose committed spans are there before the plan, ${moments} seeds`, {
    timeout: 900_000,
  }, async () => {
    const ends: (number | null)[] = [];
    const how = { limit: 1, name: (seed: number) => `seed ${seed}, ${modeOf(seed)}` };
    const failures = await failuresOf(
      Array.from({ length: moments }, (_, index) => index),
      how,
      async (seed) => {
        await using folder = await scratchFolder();
        await using database = await postgres.server().createDatabase();
        ends.push(await raceOver(folder.path, database, modeOf(seed), randomOf(seed)));
      },
    );
    console.info(`exit codes of the earlier runs: ${ends.join(", ")}`);
    expect(failures).toEqual([]);
    expect(ends).toContain(66);
  });
});

/** Opens the next run while `child` stands still, however long that takes here, and races it from there on. */
async function planBeside(child: RunningCli, spec: string): ReturnType<typeof runCli> {
  child.kill("SIGSTOP");
  try {
    return await runCli(["run", spec, "--no-progress", "--new-run", "--allow-duplicates"], {
      onStderr: (seen) => {
        if (/planned run/.test(seen)) {
          child.kill("SIGCONT");
        }
      },
    });
  } finally {
    child.kill("SIGCONT");
  }
}

/** The exit code of the earlier run's attempt. */
async function raceOver(folder: string, database: Database, mode: Mode, random: () => number): Promise<number | null> {
  const fixture = fixtureNamed("diabetes-mlp");
  const specFor = async (name: string, cast: string): Promise<string> => {
    await mkdir(join(folder, name));
    return await writePgSpec(join(folder, name), fixture, database, {
      commit_rows: 20,
      engine: { batch_size: 2 },
      model: { cast },
      output: { postgres: { mode, key: mode === "append" ? [] : ["id"] } },
    });
  };
  const [first, second] = [await specFor("first", "exact"), await specFor("second", "lossy")];
  let next: ReturnType<typeof runCli> | undefined;
  const old = await runCli(["run", first, "--no-progress"], {
    onStderr: (seen, child) => {
      if (/planned run/.test(seen)) {
        next ??= sleep(random() * 300).then(() => planBeside(child, second));
      }
    },
  });
  const { code, stderr } = (await next) ?? { code: null, stderr: "it was not planned" };
  expect(code, stderr).toBe(0);
  expect([0, 66], old.stderr).toContain(old.code);

  const [order] = await database.query(`
    SELECT coalesce(max(s.committed_at) < r.planned_at, true) AS fenced FROM infer_batch.runs r
    LEFT JOIN infer_batch.spans s ON s.run_id = r.base WHERE r.number = 2 GROUP BY r.planned_at`);
  expect(order).toEqual({ fenced: true });
  if (mode === "append") {
    const [rows] = await database.query(
      "SELECT (SELECT count(*) FROM scores.predictions) AS there, (SELECT sum(rows)::int8 FROM infer_batch.spans) AS due",
    );
    expect(rows?.["there"]).toBe(rows?.["due"]);
  } else {
    expect(await tableFaults(database, fixture)).toEqual([]);
    expect(await leftTables(database)).toEqual([]);
  }
  return old.code;
}

/** A run of which a part is committed, and whose table was emptied then. */
async function emptiedJob(folder: string, database: Database): Promise<PgJob> {
  await mkdir(folder, { recursive: true });
  const job = await pgJob(folder, database, "append", { commit_rows: 100 });
  await scoreHere(job.spec, workerOf(0, 2));
  await database.query("TRUNCATE scores.predictions");
  return job;
}

postgres.describe("a new run over a run whose table was emptied", () => {
  test("a new run over an emptied table has each row once, after a kill at any statement", {
    timeout: 900_000,
  }, async () => {
    const traced = async (): Promise<string[]> => {
      await using database = await postgres.server().createDatabase();
      const { spec, fixture } = await emptiedJob(join(scratch.path, "traced"), database);
      const trace = join(scratch.path, "trace");
      await expectEnd(runWatchedPg(spec, { CRASH_TRACE: trace }, { args }), 0);
      expect(await tableFaults(database, fixture)).toEqual([]);
      return (await readFile(trace, "utf8")).trimEnd().split("\n");
    };
    const all = killsOf(await traced());
    // The short form: each ninth one, the last among them. They are before and in COMMITs.
    const kills = all.filter((_, index) => torture || (all.length - 1 - index) % 9 === 0);
    expect(kills.length).toBeGreaterThan(1);
    const ends = new Set<number | null>();
    const how = { limit: parallelKills, name: (moment: string) => `killed ${moment}` };
    const failures = await failuresOf(kills, how, async (moment, index) => {
      await using database = await postgres.server().createDatabase();
      const { spec, fixture } = await emptiedJob(join(scratch.path, `kill-${index}`), database);
      const killed = await runWatchedPg(spec, { CRASH_AT: moment }, { args });
      expect(killed.signal, killed.stderr).toBe("SIGKILL");
      const { code, stderr } = await runSpec(spec, { args });
      ends.add(code);
      // Killed when all was done: yet another run would add all rows again.
      expect([0, 64], stderr).toContain(code);
      expect((await scoreHere(spec)).status).toBe("already_complete");
      expect(await tableFaults(database, fixture)).toEqual([]);
    });
    expect(failures).toEqual([]);
    expect(ends).toEqual(new Set([0, 64]));
  });

  test("two processes that open a new run over an emptied table at once open it once, with each row once", async () => {
    await using database = await postgres.server().createDatabase();
    const { spec, fixture } = await emptiedJob(scratch.path, database);
    const results = await Promise.all([1, 2].map(() => runSpec(spec, { ownProcess: true, args })));
    for (const { code, stderr } of results) {
      // One that comes when the other's is complete would add all rows again.
      expect([0, 64], stderr).toContain(code);
    }
    expect(results.map(({ code }) => code)).toContain(0);
    expect(await tableFaults(database, fixture)).toEqual([]);
    expect(await database.query("SELECT max(number)::int AS n FROM infer_batch.runs")).toEqual([{ n: 2 }]);
  });
});
