import { copyFile, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { scratch } from "../support/job.js";
import { fewRows, heldNight, lastJson, nightlyJob, type Nights } from "../support/nights.js";
import { expectEnd } from "../support/cli.js";

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
  const note =
    "compared with no earlier run: no run for an earlier date is published, or none of them counts as a baseline";
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
