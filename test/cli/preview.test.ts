import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { dailyJob } from "../support/backfill-job.js";
import { runHere } from "../support/cli.js";
import { goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { shownCli } from "../support/shown.js";
import { fixtureNamed } from "../support/world.js";

const wine = fixtureNamed("wine-forest");
const day = ["--param", "ds=2026-01-01"];

test("preview prints key, features and predictions of the first rows, and writes nothing", async () => {
  const spec = await writeSpec(scratch.path, wine);
  const before = await readdir(scratch.path);
  expect(await shownCli(["preview", spec, "--limit", "3"], scratch.path)).toMatchSnapshot();
  expect(await shownCli(["preview", spec, "--limit", "2", "--csv", "--features", "2"], scratch.path)).toMatchSnapshot();
  expect(await readdir(scratch.path)).toEqual(before);
});

test("preview shows as many columns as a terminal has room for, and names the others; a pipe gets all, and whole values", async () => {
  const text = { input: { columns: { note: "repeat('long ', 10)" } }, output: { columns: ["id", "note"] } };
  const spec = await writeSpec(scratch.path, wine, text);
  const args = ["preview", spec, "--limit", "2"];
  const shown = await runHere(args, { columns: 80 });
  expect(shown.stdout.split("\n").filter((line) => line.startsWith(" ") && line.length > 80)).toEqual([]);
  expect(shown.stdout).toMatchSnapshot();
  expect((await runHere(args, { columns: 20 })).stdout).toMatch(/^ {2}id {2}label\n/);
  const piped = (await runHere(args)).stdout;
  expect(piped).toMatch(/^ +id +note .* label/);
  expect(piped).toContain("long ".repeat(10).trimEnd());
});

test("preview has the same predictions as a run, for rows that --where finds after many others", async () => {
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

/** The rows that a preview of a job prints with `--json`. */
async function previewed(...args: string[]): Promise<{ rows: { id: number; score: number }[]; stderr: string }> {
  const { code, stdout, stderr } = await runHere(["preview", ...args, "--json"]);
  expect(code, stderr).toBe(0);
  const lines = stdout.split("\n").filter((line) => line !== "");
  return { rows: lines.map((line) => JSON.parse(line) as { id: number; score: number }), stderr };
}

test("preview --sample scores rows from the whole input, the same ones for a seed, with the predictions of a run", async () => {
  const { spec } = await dailyJob(scratch.path, { commit_rows: 50 });
  const golden = new Map((await goldenRows(fixtureNamed("diabetes-mlp"))).map((row) => [Number(row["id"]), row]));
  const { rows } = await previewed(spec, ...day, "--sample", "30");
  const ids = rows.map(({ id }) => id);
  expect(new Set(ids).size).toBe(30);
  expect(ids).toEqual(ids.toSorted((one, other) => one - other));
  expect(ids.filter((id) => id > 221).length).toBeGreaterThan(5); // of 442 rows; the first 30 would be none
  for (const { id, score } of rows) {
    expect(score).toBeCloseTo(Number(golden.get(id)?.["score"]), 3);
  }
  expect((await previewed(spec, ...day, "--sample", "30")).rows).toEqual(rows);
  expect((await previewed(spec, ...day, "--sample", "30", "--seed", "2")).rows).not.toEqual(rows);
  expect((await previewed(spec, ...day, "--sample", "9999")).rows).toHaveLength(442);
});

test("preview --sample replaces rows that a condition leaves out, and says when there are no more", async () => {
  const { spec } = await dailyJob(scratch.path, { input: { where: "id % 2 = 0" } });
  const all = (await previewed(spec, ...day, "--limit", "442")).rows;
  const some = await previewed(spec, ...day, "--sample", "40");
  expect(some.rows).toHaveLength(40);
  expect(some.stderr).toBe("");
  expect(all).toEqual(expect.arrayContaining(some.rows));
  const few = await previewed(spec, ...day, "--sample", "40", "--where", "id < 20");
  expect(few.rows.map(({ id }) => id)).toEqual([0, 2, 4, 6, 8, 10, 12, 14, 16, 18]);
  expect(few.stderr).toContain("the sample has 10 rows: the conditions hold for no more of the 442 rows of the input");
});
