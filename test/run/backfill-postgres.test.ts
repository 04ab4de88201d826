import { expect, test } from "vitest";
import { backfillLines, type DailyJob, dailyJob, days, statusesOf } from "../support/backfill-job.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import type { Database } from "../support/pg-database.js";
import { tableFaults } from "../support/pg-job.js";
import { usePostgres } from "../support/postgres.js";
import { fixtureNamed } from "../support/world.js";
import { firstOf } from "../support/torture.js";

const { server, describe } = usePostgres();

async function jobInto(folder: string, database: Database, postgres: object): Promise<DailyJob> {
  const table = { url: database.url, table: "scores.predictions", ...postgres };
  return await dailyJob(folder, { output: { parquet: undefined, postgres: table } });
}

describe("a backfill into a table that later dates overwrite", () => {
  test("a backfill into upsert ends with a run that fails, so that no later date is published before it", async () => {
    await using database = await server().createDatabase();
    const job = await jobInto(scratch.path, database, { mode: "upsert", key: ["id"] });
    await job.damage("2026-01-02");

    const stopped = await job.backfill("--json", "--parallel", "3");
    expect([stopped.code, statusesOf(stopped)], stopped.stderr).toEqual([65, { "01": "complete", "02": "failed" }]);
    expect(stopped.stderr).toContain("one at a time, not 3 at once: mode upsert: later dates overwrite earlier ones");

    for (const day of ["2026-01-02", "2026-01-05"] as const) {
      await job.arrive(day);
    }
    const rest = await job.backfill("--json", "--reprocess", "failed");
    expect([rest.code, backfillLines(rest).all]).toMatchObject([75, { complete: 3, values_no_input: ["2026-01-04"] }]);
    expect(await tableFaults(database, fixtureNamed("diabetes-mlp"))).toEqual([]);
    const published = await database.query(
      "SELECT params->>'ds' AS ds FROM infer_batch.runs JOIN infer_batch.finishes USING (run_id) ORDER BY planned_at",
    );
    expect(published.map(({ ds }) => ds)).toEqual([days[0], days[1], days[2], days[4]]);
  });

  test.each(firstOf(["upsert", "replace"]))(
    "a backfill of dates before a published one ends with 66 before it scores in mode %s, and continues with --allow-older",
    async (mode) => {
      await using database = await server().createDatabase();
      const job = await jobInto(scratch.path, database, { mode, key: ["id"] });
      await job.arrive("2026-01-05");
      await expectEnd(runHere(["run", job.spec, "--param", "ds=2026-01-05", "--quiet"]), 0);

      const refused = await job.backfill("--json");
      expect([refused.code, statusesOf(refused)], refused.stderr).toEqual([66, { "01": "failed" }]);
      expect(refused.stderr).toContain("run the same command with --allow-older");

      const allowed = await job.backfill("--json", "--allow-older");
      expect(statusesOf(allowed)).toEqual({
        "01": "complete",
        "02": "complete",
        "03": "complete",
        "04": "no_input",
        "05": "already_complete",
      });
    },
  );
});
