import { copyFile, mkdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { usePostgres } from "../support/postgres.js";

const report = { report: { html: "page-${ds}.html" } };

async function nightsIn(folder: string): Promise<{ nights: Nights; page: (date: string) => Promise<string> }> {
  const nights = await nightlyJob(folder, report);
  return { nights, page: (date) => readFile(join(folder, `page-${date}.html`), "utf8") };
}

test("a new run that is held names the run of the same date that readers still have", async () => {
  const { nights, page } = await nightsIn(scratch.path);
  await expectEnd(nights.night("run", "2026-11-20"), 0);
  const published = await nights.night("run", "2026-11-21", "--json");
  const { run_id: runId } = lastJson(published);
  await nights.rewrite(fewRows);
  await expectEnd(
    nights.night("run", "2026-11-21", "--new-run"),
    67,
    `readers still have run ${String(runId)} of 2026-11-21`,
  );
  expect(await page("2026-11-21")).toContain(`<h1>HELD. Readers still have run ${String(runId)} of 21 Nov.</h1>`);
  expect((await nights.night("status", "2026-11-21")).stdout).toContain(`readers still have run ${String(runId)}`);
});

test("a held run in a folder of its own says that readers have nothing of its date, and which date they have", async () => {
  const { nights, page } = await nightsIn(scratch.path);
  await heldNight(nights);
  expect(await page("2026-11-21")).toContain(
    "<h1>HELD. Readers still have the run of 20 Nov, and nothing of 21 Nov.</h1>",
  );
  await nights.rewrite({});
  await expectEnd(nights.night("run", "2026-11-22"), 0);
  await nights.rewrite(fewRows);
  expect((await nights.night("run", "2026-11-21")).stderr).toContain("readers have nothing of 2026-11-21");
  expect(await page("2026-11-21")).toContain(
    "<h1>HELD. Readers still have the run of 22 Nov, and nothing of 21 Nov.</h1>",
  );
});

test("the page and status of a run that is compared with nothing say so", async () => {
  const { nights, page } = await nightsIn(scratch.path);
  const first = await nights.night("run", "2026-11-20", "--json");
  const note = "compared with no earlier run: no run for an earlier date is published and counts as normal";
  expect(lastJson(first)).toMatchObject({ verdict: { notes: [note] } });
  expect(await page("2026-11-20")).toContain(
    "<p>Compared with no earlier run: no run for an earlier date is published",
  );
  expect((await nights.night("status", "2026-11-20")).stdout).toContain(`  note: ${note}\n`);
  await expectEnd(nights.night("run", "2026-11-21"), 0);
  expect((await nights.night("status", "2026-11-21")).stdout).not.toContain(note);
});

test("a run that is held by the comparison with a profile file is not offered as a baseline", async () => {
  const { nights, page } = await nightsIn(scratch.path);
  const first = lastJson(await nights.night("run", "2026-11-20", "--json"));
  const profile = join(nights.folder("2026-11-20"), "_infer-batch", String(first["run_id"]), "profile.json");
  await copyFile(profile, join(scratch.path, "training.json"));
  const moved = { input: { columns: { age: "age * 1000" } } };
  await nights.rewrite({ ...moved, checks: { baseline: "training.json" } });
  const held = await nights.night("run", "2026-11-21");
  expect([held.code, held.stderr]).toEqual([67, expect.not.stringContaining("--not-normal")]);
  expect(await page("2026-11-21")).toContain("the profile training.json</span>");
  expect(await page("2026-11-21")).not.toContain("--not-normal");
});

const regional = (region: string, path = "out/region=${region}/dt=${ds}") => ({
  params: { ds: "${today}", region },
  output: { parquet: { path } },
});

/** Makes a folder for each of 400 days. */
async function makeNights(first: Date, folder: (date: string) => string): Promise<void> {
  for (let night = 0; night < 400; night += 1) {
    const day = new Date(first.getTime() + night * 86_400_000);
    await mkdir(folder(day.toISOString().slice(0, 10)), { recursive: true });
  }
}

test("a night with few rows is held though another region has 400 folders, which sort behind", async () => {
  const job = await nightlyJob(scratch.path, regional("EU"));
  await expectEnd(job.night("run", "2026-11-20"), 0);
  await makeNights(new Date("2025-01-01"), (date) => join(scratch.path, "out", "region=US", `dt=${date}`));
  await job.rewrite({ ...regional("EU"), ...fewRows });
  await expectEnd(job.night("run", "2026-11-21"), 67);
});

test("a night with few rows is held though 400 other regions have folders of its date", async () => {
  const job = await nightlyJob(scratch.path, regional("EU", "out/dt=${ds}/region=${region}"));
  await expectEnd(job.night("run", "2026-11-20"), 0);
  for (let region = 0; region < 400; region += 1) {
    await mkdir(join(scratch.path, "out", "dt=2026-11-21", `region=A${region}`), { recursive: true });
  }
  await job.rewrite({ ...regional("EU", "out/dt=${ds}/region=${region}"), ...fewRows });
  await expectEnd(job.night("run", "2026-11-21"), 67);
});

test("an old night with few rows is held though 400 later nights have folders", async () => {
  const job = await nightlyJob(scratch.path);
  await expectEnd(job.night("run", "2024-01-02"), 0);
  await makeNights(new Date("2024-02-01"), (date) => job.folder(date));
  await job.rewrite(fewRows);
  await expectEnd(job.night("run", "2024-01-03"), 67);
});

test("a value with / is refused in the path of the output: no other run would find its folder", async () => {
  const job = await nightlyJob(scratch.path, regional("eu/west"));
  await expectEnd(job.night("run", "2026-11-20"), 64, "the value of ${region}, eu/west, contains /");
});

test("a param with which the path begins may be a folder, where other nights are found", async () => {
  const output = { parquet: { path: "${root}/dt=${ds}" } };
  const params = { ds: "${today}", root: join(scratch.path, "far", "out") };
  const job = await nightlyJob(scratch.path, { params, output });
  await expectEnd(job.night("run", "2026-11-20"), 0);
  await job.rewrite({ params, output, ...fewRows });
  await expectEnd(job.night("run", "2026-11-21"), 67);
  const history = await runHere(["history", job.spec, "--json"]);
  expect(history.stdout).toContain("2026-11-20");
});

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
