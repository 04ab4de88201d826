import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch } from "../support/job.js";
import { fewRows, nightlyJob } from "../support/nights.js";

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
