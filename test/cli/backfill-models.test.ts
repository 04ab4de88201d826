import { copyFile, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { backfillLines, dailyJob, type Day, statusesOf } from "../support/backfill-job.js";
import { type CliResult, projectFolder, runHere } from "../support/cli.js";
import { scratchFolder } from "../support/job.js";
import { serveChurn } from "../support/mlflow.js";

const models = join(projectFolder, "fixtures/models");

/** The digest of the model of each date of a backfill with `--json`. */
function digestsOf(result: CliResult): Record<string, unknown> {
  const { runs } = backfillLines(result);
  return Object.fromEntries(Object.entries(runs).map(([value, run]) => [value.slice(-2), run["model_sha256"]]));
}

test("backfill --model history scores each date with the version that it was published with, or else the date before", async () => {
  await using scratch = await scratchFolder();
  await using mlflow = await serveChurn();
  const env = { MLFLOW_TRACKING_URI: mlflow.url, XDG_CACHE_HOME: join(scratch.path, "cache") };
  const job = await dailyJob(scratch.path, { model: { path: "models:/churn@champion" } }, env);
  const run = async (day: Day): Promise<CliResult> => {
    await job.arrive(day);
    return await runHere(["run", job.spec, "--param", `ds=${day}`, "--json"], { env });
  };
  expect((await run("2026-01-02")).code).toBe(0);
  mlflow.aliases.set("champion", "2");
  expect((await run("2026-01-04")).code).toBe(0);
  await job.arrive("2026-01-05");

  const unknown = await job.backfill("--model", "history");
  expect(unknown.code).toBe(64);
  expect(unknown.stderr).toContain(
    "finding the models of 2026-01-01 in the history: no run of daily was published for this date, nor for an earlier one",
  );
  expect(unknown.stderr).toContain("begin the range at 2026-01-02");

  const range = ["backfill", job.spec, "--param", "ds=2026-01-02..2026-01-05", "--model", "history", "--json"];
  const filled = await runHere(range, { env });
  expect(statusesOf(filled), filled.stderr).toEqual({
    "02": "already_complete",
    "03": "complete",
    "04": "already_complete",
    "05": "complete",
  });
  const digests = digestsOf(filled);
  expect(digests["03"], "the date before had version 1, the next one version 2").toBe(digests["02"]);
  expect(digests["05"]).toBe(digests["04"]);
  expect(digests["02"]).not.toBe(digests["04"]);
  expect(filled.stderr).toMatch(
    /2026-01-02: model models:\/churn@champion → version 1, sha256 [0-9a-f]{64}, as published/,
  );
  expect(filled.stderr).toContain("2026-01-03: model models:/churn@champion → version 1");
  expect(filled.stderr).toContain("that of 2026-01-02, the last published date before");

  const again = await runHere([...range, "--reprocess", "completed"], { env });
  expect(digestsOf(again), again.stderr).toEqual(digests);
  expect(new Set(Object.values(statusesOf(again)))).toEqual(new Set(["complete"]));

  mlflow.versions.delete("1");
  await rm(join(scratch.path, "cache"), { recursive: true });
  const gone = await runHere([...range, "--reprocess", "completed"], { env });
  expect(gone.code).toBe(66);
  expect(statusesOf(gone)).toEqual({ "02": "failed", "03": "failed", "04": "complete", "05": "complete" });
});

test("backfill --model history scores with the copy of a model file that was replaced, which runs with checks keep", async () => {
  await using scratch = await scratchFolder();
  const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
  const file = join(scratch.path, "churn.onnx");
  await copyFile(join(models, "diabetes-mlp.onnx"), file);
  for (const checks of [{}, undefined]) {
    const job = await dailyJob(scratch.path, { model: { path: "churn.onnx" }, ...(checks && { checks }) }, env);
    const range = (last: Day): string[] => ["backfill", job.spec, "--param", `ds=2026-01-01..${last}`, "--json"];
    const before = await runHere(range("2026-01-01"), { env });
    expect(before.code, before.stderr).toBe(0);
    await copyFile(join(models, "diabetes-mlp-batch32.onnx"), file);
    const after = await runHere([...range("2026-01-02"), "--model", "history"], { env });
    if (checks === undefined) {
      expect(after.code).toBe(66);
      expect(after.stderr).toContain("the file with sha256");
      expect(after.stderr).toContain("is gone");
    } else {
      expect(after.code, after.stderr).toBe(0);
      expect(digestsOf(after)["02"]).toBe(digestsOf(before)["01"]);
    }
    await rm(join(scratch.path, "out"), { recursive: true });
    await rm(join(scratch.path, "cache"), { recursive: true });
    await copyFile(join(models, "diabetes-mlp.onnx"), file);
  }
});

const day = "2026-01-01";
const dated = ["--param", `ds=${day}..${day}`, "--model", "history", "--json"];

test("backfill --model history scores a held run again with the model that was published, not with the one that checks held", async () => {
  await using scratch = await scratchFolder();
  const env = { XDG_CACHE_HOME: join(scratch.path, "cache") };
  const file = join(scratch.path, "churn.onnx");
  const model = { path: "churn.onnx" };
  const job = await dailyJob(scratch.path, { model, checks: {} }, env);
  const run = (...args: string[]): Promise<CliResult> =>
    runHere(["run", job.spec, "--param", `ds=${day}`, ...args], { env });
  await copyFile(join(models, "diabetes-mlp.onnx"), file);
  expect(await run()).toMatchObject({ code: 0 });
  const published = digestsOf(await runHere(["backfill", job.spec, ...dated], { env }));
  await copyFile(join(models, "diabetes-mlp-batch32.onnx"), file);
  await dailyJob(scratch.path, { model, checks: { sql: { few: "count(*) < 10" } } }, env);
  expect(await run("--new-run")).toMatchObject({ code: 67 });
  await dailyJob(scratch.path, { model, checks: {} }, env);

  const again = await runHere(["backfill", job.spec, ...dated, "--reprocess", "completed"], { env });
  expect(statusesOf(again), again.stderr).toEqual({ "01": "complete" });
  expect(digestsOf(again)).toEqual(published);
});

test("backfill --model history resumes a failed run with its own model only, and replaces it with the published one", async () => {
  await using scratch = await scratchFolder();
  const file = join(scratch.path, "churn.onnx");
  const job = await dailyJob(scratch.path, { model: { path: "churn.onnx" } });
  const run = (...args: string[]): Promise<CliResult> => runHere(["run", job.spec, "--param", `ds=${day}`, ...args]);
  await copyFile(join(models, "diabetes-mlp.onnx"), file);
  expect(await run()).toMatchObject({ code: 0 });
  const published = digestsOf(await runHere(["backfill", job.spec, ...dated]));
  await copyFile(join(models, "diabetes-mlp-batch32.onnx"), file);
  await job.damage(day);
  expect(await run("--new-run")).toMatchObject({ code: 65 });
  await job.arrive(day);

  const resumed = await runHere(["backfill", job.spec, ...dated]);
  expect(statusesOf(resumed)).toEqual({ "01": "failed" });
  expect(resumed, "its input has changed").toMatchObject({ code: 66 });
  await copyFile(join(models, "diabetes-mlp.onnx"), file);
  const gone = await runHere(["backfill", job.spec, ...dated]);
  expect(gone, "its model is gone").toMatchObject({ code: 66 });
  const again = await runHere(["backfill", job.spec, ...dated, "--reprocess", "failed"]);
  expect(statusesOf(again), again.stderr).toEqual({ "01": "complete" });
  expect(digestsOf(again)).toEqual(published);
});
