import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { dailyJob } from "../support/backfill-job.js";
import { runHere } from "../support/cli.js";
import { goldenRows } from "../support/golden.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { shownCli } from "../support/shown.js";
import { fixtureNamed } from "../support/world.js";

const wine = fixtureNamed("wine-forest");
const day = ["--param", "ds=2026-01-01"];

test("preview prints key, features and predictions of the first rows, and writes nothing", async () => {
  await using scratch = await scratchFolder();
  const spec = await writeSpec(scratch.path, wine);
  const before = await readdir(scratch.path);
  expect(await shownCli(["preview", spec, "--limit", "3"], scratch.path)).toMatchSnapshot();
  expect(await shownCli(["preview", spec, "--limit", "2", "--csv", "--features", "2"], scratch.path)).toMatchSnapshot();
  expect(await readdir(scratch.path)).toEqual(before);
});

test("preview has the same predictions as a run, for rows that --where finds after many others", async () => {
  await using scratch = await scratchFolder();
  const { spec } = await dailyJob(scratch.path, { input: { where: "id < 440" } });
  const { code, stdout, stderr } = await runHere(["preview", spec, ...day, "--json", "--where", "id >= 435"]);
  expect(code, stderr).toBe(0);
  const rows = stdout
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { id: number; score: number; features: Record<string, number> });
  expect(rows.map(({ id }) => id)).toEqual([435, 436, 437, 438, 439]);
  const golden = new Map((await goldenRows(fixtureNamed("diabetes-mlp"))).map((row) => [Number(row["id"]), row]));
  for (const { id, score, features } of rows) {
    expect(score).toBeCloseTo(Number(golden.get(id)?.["score"]), 3);
    expect(Object.keys(features)).toEqual(["age", "sex", "bmi", "bp"]);
  }
});

test("preview names rows that cannot be scored, and names --where if its SQL is wrong", async () => {
  await using scratch = await scratchFolder();
  const job = await dailyJob(scratch.path);
  await job.damage("2026-01-01");
  const bad = await runHere(["preview", job.spec, ...day, "--limit", "30"]);
  expect(bad.code, bad.stderr).toBe(0);
  expect(bad.stderr).toContain("1 row cannot be scored\n1 row: null in age");
  expect(bad.stdout.trimEnd().split("\n")).toHaveLength(31); // a header, 29 rows, a summary

  const wrong = await runHere(["preview", job.spec, ...day, "--where", "agee > 1"]);
  expect([wrong.code, wrong.stderr]).toEqual([64, expect.stringContaining("reading --where: ")]);
  await expect(readdir(join(scratch.path, "out"))).rejects.toThrow("ENOENT");
});
