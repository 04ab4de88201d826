import { expect, test } from "vitest";
import { dailyJob } from "../support/backfill-job.js";
import { runHere } from "../support/cli.js";
import { scratchFolder, type SpecOverrides } from "../support/job.js";

const day = "2026-01-01";
const finding = "features are NULL in some of 442 rows: age in 1; a row with a NULL feature cannot be scored, and ";

async function plannedWith(overrides: SpecOverrides): Promise<string> {
  await using scratch = await scratchFolder();
  const job = await dailyJob(scratch.path, overrides);
  await job.damage(day);
  const { code, stderr } = await runHere(["plan", job.spec, "--param", `ds=${day}`]);
  expect(code, stderr).toBe(0);
  return stderr;
}

test("plan warns of a feature that the files' statistics state to be NULL in some rows, and says what to write", async () => {
  const stderr = await plannedWith({});
  expect(stderr).toContain(`${finding}on_bad_row: fail ends the run at the first one`);
  expect(stderr).toContain(
    "Write model.missing: nan if the model takes NaN, `age: coalesce(age, …)` under input.columns",
  );
});

test("plan warns of NULL features that max_rejects does not allow", async () => {
  const rejects = { on_bad_row: "reject", max_rejects: "0%" };
  expect(await plannedWith(rejects)).toContain(`${finding}max_rejects (0%) allows 0 rejected rows`);
});

test("plan warns of NULL features before input.where where its condition is about other columns", async () => {
  const before = "features are NULL in some of 442 rows before input.where: age in 1";
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
