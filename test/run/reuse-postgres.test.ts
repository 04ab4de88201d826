import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { reject } from "../support/rejects.js";
import { type ReuseJob, reuseJob, rowCount, rowsOf, scoresById, scoresOf } from "../support/reuse-job.js";
import { scoreHere, workerOf } from "../support/score.js";
import { firstOf } from "../support/torture.js";

const postgres = usePostgres();
const [first, second, third] = ["2026-01-01", "2026-01-02", "2026-01-03"] as const;
const unchanged = rowCount * 0.8;
const modes = ["append", "upsert", "replace"] as const;
type Mode = (typeof modes)[number];

async function jobIn(folder: string, { url }: Database, mode: Mode, more: object = {}): Promise<ReuseJob> {
  const key = mode === "append" ? {} : { key: ["id"] };
  const table = { url, table: "scores.predictions", mode, ...key, timeouts: { lock: 1 } };
  return await reuseJob(folder, {
    output: { parquet: undefined, lineage: mode === "append", postgres: table },
    ...more,
  });
}

async function expectScores(database: Database, mode: Mode, job: ReuseJob, ds: string): Promise<void> {
  const of =
    mode === "append" ? " WHERE run_id = (SELECT run_id FROM scores.predictions ORDER BY scored_at DESC LIMIT 1)" : "";
  const rows = await database.query(`SELECT id, score FROM scores.predictions${of}`);
  expect(scoresById(rows), job.spec).toEqual(scoresOf(ds));
}

postgres.describe("predictions in a table", () => {
  test.each(firstOf(modes.toReversed()))("predictions in a table are reused, night after night: %s", async (mode) => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, mode);
    expect(await job.night(first)).toMatchObject({ rowsReused: 0, rowsScored: rowCount });
    expect(await job.night(second)).toMatchObject({ rowsReused: unchanged, rowsScored: rowCount });
    await expectScores(database, mode, job, second);
    expect(await job.night(third)).toMatchObject({ rowsReused: unchanged });
    await expectScores(database, mode, job, third);
  });

  test.each(firstOf(modes))("predictions in a table that were updated there are scored again: %s", async (mode) => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, mode);
    await job.night(first);
    await database.query("UPDATE scores.predictions SET score = 77 WHERE id IN (3, 4, 5)");
    expect(await job.night(second)).toMatchObject({ rowsReused: unchanged - 3 });
    await expectScores(database, mode, job, second);
  });

  test("predictions in a table are reused by each worker of a staged run", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, "upsert", { checks: {} });
    await job.night(first);
    await job.prepare(second);
    const reports = [await scoreHere(job.spec, workerOf(0, 2)), await scoreHere(job.spec, workerOf(1, 2))];
    expect(reports.map(({ rowsReused }) => rowsReused)).toEqual([80, 160]);
    await expectScores(database, "upsert", job, second);
  });

  test("all rows are scored if the table has lost its hashes", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, "upsert");
    await job.night(first);
    await database.query("UPDATE scores.predictions SET reuse_hash = NULL");
    expect(await job.night(second)).toMatchObject({ rowsReused: 0, rowsScored: rowCount });
    await expectScores(database, "upsert", job, second);
  });

  test.each(firstOf(["upsert", "replace"] as const))(
    "predictions in a table are reused by a new run that scores the rejected rows, and by the next night: %s",
    async (mode) => {
      await using database = await postgres.server().createDatabase();
      const job = await jobIn(scratch.path, database, mode);
      const select = `SELECT id, if(id < 5, NULL, x)::FLOAT AS x FROM (${rowsOf(first)})`;
      expect(await job.night(first, { ...reject, select })).toMatchObject({ rowsRejected: 5 });
      await job.prepare(first);
      const again = await scoreHere(job.spec, { newRun: true, reuse: true });
      expect(again).toMatchObject({ rowsRejected: 0, rowsReused: rowCount - 5, rowsScored: rowCount });
      await expectScores(database, mode, job, first);
      expect(await job.night(second)).toMatchObject({ rowsReused: unchanged, rowsScored: rowCount });
      await expectScores(database, mode, job, second);
    },
  );

  test("a new run that reuses is refused where it would append rows a second time", async () => {
    await using database = await postgres.server().createDatabase();
    const job = await jobIn(scratch.path, database, "append");
    await job.night(first);
    await expect(scoreHere(job.spec, { newRun: true, reuse: true })).rejects.toMatchObject({ exitCode: 64 });
  });
});
