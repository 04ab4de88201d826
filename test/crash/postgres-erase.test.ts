import { appendFile, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runCli, runHere } from "../support/cli.js";
import { failuresOf } from "../support/crash.js";
import { scratch, scratchFolder } from "../support/job.js";
import { killsOf, pgJob, type PgJob, runWatchedPg } from "../support/pg-crash.js";
import type { Database } from "../support/pg-database.js";
import { readMeanwhile } from "../support/pg-reader.js";
import { usePostgres } from "../support/postgres.js";
import { torture } from "../support/torture.js";

const postgres = usePostgres();
const parallelKills = 2;
const erased = [5, 441];

interface Erasable {
  readonly job: PgJob;
  readonly args: readonly string[];
}

/** A job whose table was replaced on two nights: a previous table has the rows of the keys, too. */
async function erasableJob(folder: string, database: Database): Promise<Erasable> {
  const job = await pgJob(folder, database, "replace", { params: { ds: "${today}" }, postgres: { keep_previous: 2 } });
  for (const date of ["2026-01-01", "2026-01-02"]) {
    await expectEnd(runHere(["run", job.spec, "--param", `ds=${date}`, "--quiet"]), 0);
  }
  const keys = join(folder, "keys.txt");
  await writeFile(keys, erased.join("\n"));
  return { job, args: ["--keys", keys] };
}

/** The number of rows, and of those of the keys, in each table of predictions. */
async function countsIn(database: Database): Promise<Record<string, readonly [number, number]>> {
  const tables = await database.query("SELECT tablename FROM pg_tables WHERE schemaname = 'scores' ORDER BY 1");
  const counts: Record<string, readonly [number, number]> = {};
  for (const [index, { tablename }] of tables.entries()) {
    const [row] = await database.query(
      `SELECT count(*)::int AS n, count(*) FILTER (WHERE id IN (${erased.join(", ")}))::int AS keys FROM scores."${String(tablename)}"`,
    );
    counts[tablename === "predictions" ? "predictions" : `kept ${index}`] = [Number(row?.["n"]), Number(row?.["keys"])];
  }
  return counts;
}

async function expectErased({ job: { database, spec } }: Erasable): Promise<void> {
  const counts = Object.values(await countsIn(database));
  expect(counts.filter(([, keys]) => keys > 0)).toEqual([]);
  expect(counts.map(([rows]) => rows).toSorted((one, other) => one - other)).toEqual([1, 440, 440]);
  const status = await runHere(["status", spec, "--param", "ds=2026-01-02", "--json"]);
  expect(JSON.parse(status.stdout)).toMatchObject({ status: "published", damage: [] });
}

/** Kills the command at a moment, and lets the same command finish, while a reader counts the rows of the table. */
async function killAndRepeat(moment: string): Promise<void> {
  await using folder = await scratchFolder();
  await using database = await postgres.server().createDatabase();
  const erasable = await erasableJob(folder.path, database);
  const { job, args } = erasable;
  await using reader = await postgres.server().open(database.name);
  const { seen } = await readMeanwhile(reader, "SELECT count(*)::int AS n FROM scores.predictions", async () => {
    const killed = await runWatchedPg(job.spec, { CRASH_AT: moment }, { command: "erase", args });
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    await expectEnd(runHere(["erase", job.spec, ...args]), 0);
  });
  // The reader may have looked last before the end, or first after it.
  expect([[{ n: 442 }, { n: 440 }], [{ n: 442 }], [{ n: 440 }]]).toContainEqual(seen);
  await expectErased(erasable);
}

postgres.describe("erase in Postgres that is disturbed", () => {
  test("erase that is killed at any statement is ended by the same command, and readers see all rows or those that stay", async () => {
    const traced = async (): Promise<string[]> => {
      await using database = await postgres.server().createDatabase();
      const erasable = await erasableJob(scratch.path, database);
      const trace = join(scratch.path, "trace");
      await appendFile(trace, "");
      const { job, args } = erasable;
      await expectEnd(runWatchedPg(job.spec, { CRASH_TRACE: trace }, { command: "erase", args }), 0);
      await expectErased(erasable);
      return (await readFile(trace, "utf8")).trimEnd().split("\n");
    };
    const all = killsOf(await traced()).filter((moment) => !moment.startsWith("torn "));
    const kills = torture
      ? all
      : all.filter((moment, index) => all.length < 6 || index % 4 === 0 || moment.startsWith("sent "));
    expect(kills.length).toBeGreaterThan(1);
    const how = { limit: parallelKills, name: (moment: string) => `killed ${moment}` };
    expect(await failuresOf(kills, how, killAndRepeat)).toEqual([]);
    console.info(`erase: ${kills.length} of ${all.length} kills`);
  }, 600_000);

  test("two erasures at once both erase their keys, and each is recorded", async () => {
    await using database = await postgres.server().createDatabase();
    const { job } = await erasableJob(scratch.path, database);
    const lists = await Promise.all(
      erased.map(async (key) => {
        const path = join(scratch.path, `key-${key}.txt`);
        await writeFile(path, String(key));
        return path;
      }),
    );
    const ended = await Promise.all(lists.map((keys) => runCli(["erase", job.spec, "--keys", keys])));
    expect(
      ended.map(({ code }) => code),
      ended.map(({ stderr }) => stderr).join(""),
    ).toEqual([0, 0]);
    await expectErased({ job, args: [] });
    expect(await database.query("SELECT rows::int AS n, keys::int FROM infer_batch.erasures ORDER BY 1")).toEqual([
      { n: 2, keys: 1 },
      { n: 2, keys: 1 },
    ]);
  });

  test("erase beside a run erases nothing and names the command that finishes it; the run keeps all of its rows", async () => {
    await using database = await postgres.server().createDatabase();
    const { job, args } = await erasableJob(scratch.path, database);
    // The run is killed in its rows: for the database, it may still be at work.
    const date = ["--param", "ds=2026-01-03"];
    const killed = await runWatchedPg(
      job.spec,
      { CRASH_AT: 'after INSERT INTO "infer_batch".spans (run_id, span, p #1' },
      { args: date },
    );
    expect(killed.signal, killed.stderr).toBe("SIGKILL");
    await expectEnd(
      runHere(["erase", job.spec, ...args]),
      67,
      "so nothing was erased",
      `infer-batch run ${job.spec} --param ds=2026-01-03`,
    );
    expect((await countsIn(database))["predictions"]).toEqual([442, 2]);
    await expectEnd(runHere(["run", job.spec, ...date]), 0);
    expect((await countsIn(database))["predictions"]).toEqual([442, 2]);
    await expectEnd(runHere(["erase", job.spec, ...args]), 0);
    expect(Object.values(await countsIn(database)).every(([, keys]) => keys === 0)).toBe(true);
  });
});
