import { copyFile, readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { dailyJob } from "../support/backfill-job.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch, scratchFolder, type SpecOverrides } from "../support/job.js";
import { writeRows } from "../support/parquet.js";

const day = "2026-01-01";
const finding = "features are NULL: age in 1 of 442 rows; a row with a NULL feature cannot be scored, and ";

async function plannedWith(overrides: SpecOverrides): Promise<string> {
  await using folder = await scratchFolder();
  const job = await dailyJob(folder.path, overrides);
  await job.damage(day);
  const { stderr } = await expectEnd(runHere(["plan", job.spec, "--param", `ds=${day}`]), 0);
  return stderr;
}

test("plan warns of a feature that the files' statistics state to be NULL in some rows, and says what to write", async () => {
  const stderr = await plannedWith({});
  expect(stderr).toContain(`${finding}on_bad_row: fail ends the run at the first one`);
  expect(stderr).toContain(
    "Correct the input and run the same command again; or, if NULL is right there, write model.missing: nan if the model takes NaN, `age: coalesce(age, …)` under input.columns",
  );
});

test("plan warns of NULL features that max_rejects does not allow", async () => {
  const rejects = { on_bad_row: "reject", max_rejects: "0%" };
  expect(await plannedWith(rejects)).toContain(`${finding}max_rejects (0%) allows 0 rejected rows`);
});

test("plan warns of NULL features before input.where where its condition is about other columns", async () => {
  const before = "features are NULL before input.where: age in 1 of 442 rows;";
  expect(await plannedWith({ input: { where: "bmi < 1000" } })).toContain(before);
});

test.each([
  ["input.where leaves out", { input: { where: "age IS NOT NULL" } }],
  ["become NaN", { model: { missing: "nan" } }],
  ["are replaced by an expression", { input: { columns: { age: "coalesce(age, 0)" } } }],
  ["are rejected within max_rejects", { on_bad_row: "reject", max_rejects: 1 }],
  ["are rejected within a percentage", { on_bad_row: "reject", max_rejects: "0.1%" }],
] satisfies [string, SpecOverrides][])("plan does not warn of NULL features that %s", async (_, overrides) => {
  expect(await plannedWith(overrides)).not.toContain("NULL");
});

test("a run that ends at a NULL says how many rows have one, in its error and on its page, and continues with a corrected input", async () => {
  const report = { html: "page.html" };
  const job = await dailyJob(scratch.path, { report });
  const shards = join(scratch.path, "in", `dt=${day}`);
  for (const name of await readdir(shards)) {
    await copyFile(join(shards, name), join(scratch.path, "whole.parquet"));
    const rows = `SELECT * REPLACE (CAST(NULL AS DOUBLE) AS age) FROM '${join(scratch.path, "whole.parquet")}'`;
    await writeRows(join(shards, name), rows);
  }
  const args = ["run", job.spec, "--param", `ds=${day}`];
  await expectEnd(
    runHere(args),
    65,
    /WARN: features are NULL: age in all 442 rows; .* Correct the input and run the same/,
    `row 0, column \`age\` is NULL (in all 442 rows of the input)
  hint: correct the input and run the same command again; model.missing: nan`,
  );
  const page = await readFile(join(scratch.path, "page.html"), "utf8");
  expect(page).toMatch(/<h2>Warnings<\/h2>.*features are NULL: age in all 442 rows/s);
  await job.arrive(day);
  await expectEnd(runHere(args), 0);
});
