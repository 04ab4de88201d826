import { mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { failuresOf } from "../support/crash.js";
import { scratch } from "../support/job.js";
import { killsOf, pgJob, type PgJob, runWatchedPg } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { runSpec, scoreHere, workerOf } from "../support/score.js";
import { torture } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

const postgres = usePostgres();
const parallelKills = 2;
const args = ["--new-run"];

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
    // The short form: each fifth one, the last among them. They are before and in COMMITs.
    const kills = all.filter((_, index) => torture || (all.length - 1 - index) % 5 === 0);
    expect(kills.length).toBeGreaterThan(2);
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
