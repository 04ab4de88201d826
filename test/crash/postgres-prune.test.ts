import { appendFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { scratch, scratchFolder } from "../support/job.js";
import { killsOf, pgJob, type PgJob, runWatchedPg } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults } from "../support/pg-job.js";
import { readMeanwhile } from "../support/pg-reader.js";
import { usePostgres } from "../support/postgres.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const parallelKills = 2;
const dates = ["2026-01-01", "2026-01-02", "2026-01-03"];
const keepOne = ["--keep", "1"];

/** A job whose table was replaced on three nights: two previous tables, and a profile a night. */
async function prunableJob(folder: string, database: Database): Promise<PgJob> {
  const job = await pgJob(folder, database, "replace", { params: { ds: "${today}" }, postgres: { keep_previous: 5 } });
  for (const date of dates) {
    await expectEnd(runHere(["run", job.spec, "--param", `ds=${date}`, "--quiet"]), 0);
  }
  return job;
}

async function expectPruned({ database, fixture, spec }: PgJob): Promise<void> {
  expect(await tableFaults(database, fixture)).toEqual([]);
  const own = "table_schema = 'scores' AND table_name <> 'predictions'";
  // The oldest table has the row that was there before the first night: no run wrote it, so it stays.
  expect(await database.query(`SELECT count(*)::int AS n FROM information_schema.tables WHERE ${own}`)).toEqual([
    { n: 1 },
  ]);
  expect(
    await database.query(
      `SELECT r.params->>'ds' AS ds, f.profile IS NOT NULL AS kept, l.plan LIKE '{"format":"infer-batch-pruned"%' AS pruned
       FROM infer_batch.runs r JOIN infer_batch.finishes f USING (run_id)
       JOIN infer_batch.runs l ON l.base = r.base AND l.number = (SELECT max(number) FROM infer_batch.runs WHERE base = r.base)
       ORDER BY ds`,
    ),
  ).toEqual([
    { ds: dates[0], kept: false, pruned: true },
    { ds: dates[1], kept: false, pruned: true },
    { ds: dates[2], kept: true, pruned: false },
  ]);
  await expectEnd(runHere(["run", spec, "--param", `ds=${dates[0]}`]), 67);
}

/** Kills the command at a moment, and lets the same command finish, while a reader counts the rows of the table. */
async function killAndRepeat(moment: string): Promise<void> {
  await using folder = await scratchFolder();
  await using database = await postgres.server().createDatabase();
  const job = await prunableJob(folder.path, database);
  await using reader = await postgres.server().open(database.name);
  const { seen } = await readMeanwhile(reader, "SELECT count(*)::int AS n FROM scores.predictions", async () => {
    const killed = await runWatchedPg(job.spec, { CRASH_AT: moment }, { command: "prune", args: keepOne });
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    await expectEnd(runHere(["prune", job.spec, ...keepOne]), 0);
  });
  expect(seen).toEqual([{ n: job.fixture.rows }]);
  await expectPruned(job);
}

postgres.describe("prune in Postgres that is killed at any statement", () => {
  test("prune that is killed at any statement is ended by the same command, and the rows of the table stay", async () => {
    const traced = async (): Promise<string[]> => {
      await using database = await postgres.server().createDatabase();
      const job = await prunableJob(scratch.path, database);
      const trace = join(scratch.path, "trace");
      await appendFile(trace, "");
      await expectEnd(runWatchedPg(job.spec, { CRASH_TRACE: trace }, { command: "prune", args: keepOne }), 0);
      await expectPruned(job);
      return (await readFile(trace, "utf8")).trimEnd().split("\n");
    };
    const all = killsOf(await traced()).filter((moment) => !moment.startsWith("torn "));
    const kills = torture ? all : all.filter((_, index) => index % 7 === 1);
    expect(kills.length).toBeGreaterThan(1);
    const how = { limit: parallelKills, name: (moment: string) => `killed ${moment}` };
    expect(await failuresOf(kills, how, killAndRepeat)).toEqual([]);
    console.info(`prune: ${kills.length} of ${all.length} kills`);
  }, 600_000);
});
