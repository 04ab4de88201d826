import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { failuresOf } from "../support/crash.js";
import { scratchFolder } from "../support/job.js";
import {
  expectFinishedPg,
  faultsInDatabase,
  killsOf,
  type Mode,
  pgJob,
  type PgJob,
  runWatchedPg,
} from "../support/pg-crash.js";
import { expectInOrder, readMeanwhile } from "../support/pg-reader.js";
import { usePostgres } from "../support/postgres.js";
import { scoreHere } from "../support/score.js";
import { torture } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

const postgres = usePostgres();
const parallelKills = 2;
const modes = ["append", "upsert", "replace"] as const;

async function traceOf(mode: Mode): Promise<string[]> {
  await using scratch = await scratchFolder();
  await using database = await postgres.server().createDatabase();
  const job = await pgJob(scratch.path, database, mode);
  const trace = join(scratch.path, "trace");
  await expectEnd(runWatchedPg(job.spec, { CRASH_TRACE: trace }), 0);
  await expectFinishedPg(job);
  return (await readFile(trace, "utf8")).trimEnd().split("\n");
}

/** Kills one run, looks at what is left, and lets the same command finish; readers of `replace` look on. */
async function killAndResume(mode: Mode, moment: string): Promise<number> {
  await using scratch = await scratchFolder();
  await using database = await postgres.server().createDatabase();
  const job = await pgJob(scratch.path, database, mode);
  if (mode !== "replace") {
    return await killThenFinish(job, moment);
  }
  await using reader = await postgres.server().open(database.name);
  let resumed = 0;
  const { seen } = await readMeanwhile(
    reader,
    "SELECT count(*)::int AS n, min(id) < 0 AS old FROM scores.predictions",
    async () => {
      resumed = await killThenFinish(job, moment);
    },
  );
  expectInOrder(seen, [
    { n: 1, old: true },
    { n: job.fixture.rows, old: false },
  ]);
  expect(seen.length).toBe(2);
  return resumed;
}

async function killThenFinish(job: PgJob, moment: string): Promise<number> {
  const killed = await runWatchedPg(job.spec, { CRASH_AT: moment });

  expect(killed.signal, killed.stderr).toBe("SIGKILL");
  expect(await faultsInDatabase(job)).toEqual([]);
  const announced = [...killed.stderr.matchAll(/span (\d+) committed/g)].length;
  const report = await scoreHere(job.spec);
  expect(report.spansResumed).toBeGreaterThanOrEqual(announced);
  await expectFinishedPg(job);
  expect((await scoreHere(job.spec)).status).toBe("already_complete");
  return report.status === "already_complete" ? 4 : report.spansResumed;
}

postgres.describe("a run into Postgres that is killed at any statement", () => {
  test.each(torture ? modes : (["append", "replace"] as const))(
    "a run into Postgres that is killed at any statement leaves each row once, and readers see old rows or new ones: %s",
    async (mode) => {
      const all = killsOf(await traceOf(mode), { ofEnd: mode !== "append" });
      // In short, only `append` is killed before a COMMIT, every ninth one: the server rolls back all of them alike, in
      // all modes. While each COMMIT is on its way, it is killed in `append`, and while the last ones are, in both.
      const before = new Set(all.filter((moment) => moment.startsWith("before")).filter((_, index) => index % 9 === 0));
      const few = all.filter(
        (moment) => torture || !moment.startsWith("before") || (mode === "append" && before.has(moment)),
      );
      const kills = torture || mode === "append" ? few : few.filter((_, index) => index < 1 || index > few.length - 4);
      const resumed = new Set<number>();
      const how = { limit: parallelKills, name: (moment: string) => `killed ${moment}` };
      const failures = await failuresOf(kills, how, async (moment) => {
        resumed.add(await killAndResume(mode, moment));
      });
      expect(failures).toEqual([]);
      console.info(
        `${mode}: ${kills.length} kills, which left ${[...resumed].toSorted((a, b) => a - b).join(", ")} spans (4: finished)`,
      );
      // The kills were spread over the run. Two spans are committed at once: before the last, two or three are there.
      expect(Math.max(...[...resumed].filter((spans) => spans < 4))).toBeGreaterThanOrEqual(2);
      expect(resumed.has(0) || mode !== "append").toBe(true);
    },
    1_200_000,
  );
});
