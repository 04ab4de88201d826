import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";
import { expectEnd } from "../support/cli.js";

const postgres = usePostgres();

/** The seconds that `history` has for the run of a night. */
async function recordedSeconds(nights: Nights, date: string): Promise<number> {
  const { runs } = lastJson(await nights.night("history", date, "--last", "1", "--json")) as {
    runs: { params: { ds: string }; seconds: number }[];
  };
  expect(runs.map(({ params }) => params.ds)).toEqual([date]);
  return runs[0]?.seconds ?? Number.NaN;
}

postgres.describe("the duration of a run in a table", () => {
  test("the page has the duration that history has, without the time that publishing takes", async () => {
    await using database = await postgres.server().createDatabase();
    const table = { url: database.url, table: "scores.predictions", mode: "append" };
    const nights = await nightlyJob(scratch.path, {
      report: { html: "page-${ds}.html" },
      output: { parquet: undefined, postgres: table },
    });
    await expectEnd(nights.night("run", "2026-11-20"), 0);
    await database.query(`
      CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NEW; END $$;
      CREATE TRIGGER slow BEFORE INSERT ON infer_batch.finishes FOR EACH ROW EXECUTE FUNCTION slow()`);
    const { seconds } = lastJson(await nights.night("run", "2026-11-21", "--json"));
    const recorded = await recordedSeconds(nights, "2026-11-21");
    expect(Number(seconds) - recorded).toBeGreaterThan(1.5);
    const page = await readFile(join(scratch.path, "page-2026-11-21.html"), "utf8");
    expect(page).toContain(`<figcaption>duration <b>${Math.max(0.1, recorded).toFixed(1)} s</b>`);
  });
});

test("in files, the duration of a run ends before its checks, in its manifest, its verdict and history", async () => {
  const nights = await nightlyJob(scratch.path);
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  const folder = nights.folder("2026-11-20");
  const { run_id: runId, attempt } = JSON.parse(await readFile(join(folder, "_manifest.json"), "utf8")) as {
    run_id: string;
    attempt: { seconds: number; scoring_seconds: number };
  };
  const verdict = JSON.parse(await readFile(join(folder, "_infer-batch", runId, "verdict.json"), "utf8")) as object;
  const recorded = await recordedSeconds(nights, "2026-11-20");
  expect([recorded, verdict]).toEqual([attempt.scoring_seconds, expect.objectContaining({ seconds: recorded })]);
  expect(recorded).toBeLessThan(attempt.seconds);
});
