import { existsSync } from "node:fs";
import { copyFile, readdir, readFile, rm, utimes } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { backfillLines, dailyJob, days, statusesOf } from "../support/backfill-job.js";
import { projectFolder, runCli, runHere, type RunningCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { serveHub } from "../support/hub.js";
import { scratch } from "../support/job.js";
import { publishedRun } from "../support/nights.js";
import { shownCli } from "../support/shown.js";
import { writeRows } from "../support/parquet.js";
import { reject } from "../support/rejects.js";
import { until } from "../support/waiting.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const preload = join(projectFolder, "test/crash/preload.mjs");
const hintOf = (result: { readonly stderr: string }): string => result.stderr.slice(result.stderr.indexOf("error: "));

describe("a backfill of five days", () => {
  test("a backfill scores each day, lists days without input, and ends with the worst exit code; the same command continues", async () => {
    const job = await dailyJob(scratch.path);
    await job.damage("2026-01-04");

    const first = await shownCli(job.args("--no-progress"), scratch.path);
    expect(first.replaceAll(/ +\d+\.\d$/gm, "  <seconds>")).toMatchSnapshot();
    for (const day of days.slice(0, 3)) {
      await expectFinished(job.out(day), { golden: await goldenRows(fixture) });
    }

    await job.arrive("2026-01-04");
    const second = await job.backfill("--json", "--reprocess", "failed");
    expect(second.code, second.stderr).toBe(75);
    expect(statusesOf(second)).toEqual({
      "01": "already_complete",
      "02": "already_complete",
      "03": "already_complete",
      "04": "complete",
      "05": "no_input",
    });
    expect(backfillLines(second).all).toMatchObject({ runs: 5, complete: 1, values_no_input: ["2026-01-05"] });

    await job.arrive("2026-01-05");
    const last = await job.backfill("--json", "--parallel", "2");
    expect([last.code, backfillLines(last).all], last.stderr).toMatchObject([0, { complete: 1, already_complete: 4 }]);
    const narrow = await runHere(job.args("--no-progress"), { columns: 36 });
    expect(narrow.stdout).toMatch(/^ {2}ds +status +rows\n {2}2026-01-01 +already complete +442\n/);
    expect(narrow.stdout).toContain("\nno room in 36 characters for:\nrejected (0 in all rows), seconds\n");
    await expectFinished(job.out("2026-01-05"), { golden: await goldenRows(fixture) });
  });

  test("a backfill counts the rows that its runs have written, and of a complete run those of all attempts", async () => {
    const rows = `SELECT * REPLACE (if(id < 5, NULL, age) AS age) FROM '${join(projectFolder, "fixtures/data/diabetes/part-00000.parquet")}'`;
    const job = await dailyJob(scratch.path, { ...reject, input: { where: "id < 100" } });
    await writeRows(join(scratch.path, "in/dt=2026-01-02/part-00000.parquet"), rows);

    const first = await runHere(job.args("--no-progress"));
    const second = await runHere(job.args("--no-progress"));
    const lines = backfillLines(await job.backfill("--json"));

    expect(first.stdout).toMatch(/01-01 +complete +100 +0 [^]*01-02 +complete +95 +5 /);
    expect(second.stdout).toMatch(/01-01 +already complete +100 +0\n[^]*01-02 +already complete +95 +5\n/);
    expect(lines.runs["2026-01-02"]).toMatchObject({ rows_planned: 442, rows: 95 });
    expect(lines.runs["2026-01-05"]).toMatchObject({ status: "no_input", rows: null });
  });

  test("--stop-on-failure starts no run after one that failed, and the same command continues", async () => {
    const job = await dailyJob(scratch.path);
    await job.damage("2026-01-02");

    const stopped = await job.backfill("--json", "--stop-on-failure");
    expect([stopped.code, statusesOf(stopped)], stopped.stderr).toEqual([65, { "01": "complete", "02": "failed" }]);
    expect(backfillLines(stopped).all).toMatchObject({ not_started: 3, exit_code: 65 });
    expect(hintOf(stopped)).toContain("not started: 2026-01-03, 2026-01-04, 2026-01-05");

    await job.arrive("2026-01-02");
    const rest = await job.backfill("--json", "--stop-on-failure", "--reprocess", "failed");
    expect(statusesOf(rest)).toMatchObject({ "01": "already_complete", "02": "complete", "03": "complete" });
  });

  test("a backfill with several runs at once publishes the same rows as one run at a time", async () => {
    const job = await dailyJob(scratch.path);
    await job.arrive("2026-01-04");
    await job.arrive("2026-01-05");

    const { code, stderr } = await job.backfill("--parallel", "3");
    expect(code, stderr).toBe(0);
    const golden = await goldenRows(fixture);
    for (const day of days) {
      await expectFinished(job.out(day), { golden });
    }
  });
});

describe("--reprocess", () => {
  test("backfill --reprocess failed scores only days again whose input changed; without it they end with 66", async () => {
    const job = await dailyJob(scratch.path);
    await job.backfill("--quiet");
    const before = await publishedRun(job.out("2026-01-01"));
    await utimes(join(job.folder, "in/dt=2026-01-02/part-00000.parquet"), 1, 1);

    const plain = await job.backfill("--json");
    expect([plain.code, statusesOf(plain)]).toMatchObject([66, { "01": "already_complete", "02": "failed" }]);

    const again = await job.backfill("--json", "--reprocess", "failed");
    expect(again.code, again.stderr).toBe(75);
    expect(statusesOf(again)).toMatchObject({ "01": "already_complete", "02": "complete", "03": "already_complete" });
    expect(await publishedRun(job.out("2026-01-01"))).toBe(before);
    expect(await publishedRun(job.out("2026-01-02"))).toMatch(/-r2$/);
  });

  test("backfill --reprocess completed scores every day again", async () => {
    const job = await dailyJob(scratch.path);
    await job.backfill("--quiet");

    const again = await job.backfill("--json", "--reprocess", "completed");
    expect(statusesOf(again)).toMatchObject({ "01": "complete", "02": "complete", "03": "complete" });
    for (const day of days.slice(0, 3)) {
      expect(await publishedRun(job.out(day))).toMatch(/-r2$/);
    }
  });

  test("a held run does not stop later runs of a backfill; --reprocess failed scores it again after its cause is corrected", async () => {
    const job = await dailyJob(scratch.path, { checks: { unique: ["id"] } });
    const part = join(job.folder, "in/dt=2026-01-02/part-00000.parquet");
    const twice = part.replace("00000", "00002");
    await copyFile(part, twice);

    const held = await job.backfill("--json", "--parallel", "2", "--reprocess", "failed");
    expect([held.code, statusesOf(held)], held.stderr).toMatchObject([
      67,
      { "01": "complete", "02": "held", "03": "complete" },
    ]);
    expect(held.stderr).toContain("runs are carried out one at a time, not 2 at once: the checks compare each run");
    expect(hintOf(held)).toContain("held by their checks, to be approved or discarded: 2026-01-02");
    // This command held the run, so it does not score it again.
    const runs = await readdir(join(job.out("2026-01-02"), "_infer-batch"));
    expect(runs.filter((name) => name.endsWith("-r2"))).toEqual([]);

    await rm(twice);
    const again = await job.backfill("--json", "--reprocess", "failed");
    expect(statusesOf(again)).toMatchObject({ "01": "already_complete", "02": "complete", "03": "already_complete" });
  });
});

test("a backfill uses the version of the model that it began with, even if the revision moves", async () => {
  const old = await readFile(join(projectFolder, "fixtures/models/diabetes-mlp.onnx"));
  await using hub = await serveHub({ "model.onnx": old });
  const env = { HF_ENDPOINT: hub.url, XDG_CACHE_HOME: join(scratch.path, "cache"), HF_TOKEN: undefined };
  const job = await dailyJob(scratch.path, { model: { path: "hf://org/model/model.onnx" } });
  const other = await readFile(join(projectFolder, "fixtures/models/diabetes-mlp-batch32.onnx"));
  const move = (seen: string): void => {
    if (seen.includes("ds=2026-01-01: ")) {
      hub.revisions.set("main", new Map([["model.onnx", other]]));
    }
  };

  const result = await runHere(job.args("--json"), { env, onStderr: move });
  const { runs, all } = backfillLines(result);
  const { sha256 } = all["model"] as { readonly sha256: string };
  const models = days.slice(0, 3).map((day) => runs[day]?.["model_sha256"]);
  expect(models, result.stderr).toEqual([sha256, sha256, sha256]);
  expect(result.stderr).toContain("model hf://org/model/model.onnx → version ");
});

test("SIGTERM ends a backfill with 143 after the current run, and the same command continues", async () => {
  const job = await dailyJob(scratch.path);
  const held = join(scratch.path, "held");
  const env = { CRASH_ROOT: job.out("2026-01-02"), CRASH_AT: "hold link part-00000 #1", CRASH_HOLD: held };
  let running: RunningCli | undefined;
  const stopping = runCli(job.args("--json"), {
    env,
    node: [`--import=${preload}`],
    onStart(child) {
      running = child;
    },
  });
  await until(() => existsSync(held)); // the second run commits its first span
  running?.kill("SIGTERM");
  await rm(held);
  const stopped = await stopping;
  expect(stopped.code, stopped.stderr).toBe(143);
  expect(backfillLines(stopped).all).toMatchObject({ exit_code: 143 });
  expect(statusesOf(stopped)).toMatchObject({ "01": "complete" });
  expect(backfillLines(stopped).all["not_started"]).toBe(3);

  const rest = await job.backfill("--json");
  expect(rest.code, rest.stderr).toBe(75);
  for (const day of days.slice(0, 3)) {
    await expectFinished(job.out(day), { golden: await goldenRows(fixture) });
  }
});

describe("what a backfill refuses", () => {
  test.each([
    ["no range", ["ds=2026-01-01"], "no param is given a range of dates"],
    ["a range that ends before it begins", ["ds=2026-01-02..2026-01-01"], "it ends before it begins"],
    ["a param that the spec does not have", ["dt=2026-01-01..2026-01-02"], "the spec declares only ds"],
  ])("a backfill refuses %s", async (_, params, found) => {
    const { spec } = await dailyJob(scratch.path);
    const { code, stderr } = await runHere(["backfill", spec, ...params.flatMap((param) => ["--param", param])]);
    expect([code, stderr]).toEqual([64, expect.stringContaining(found)]);
  });

  test("a backfill refuses a second param from the clock, and a range on which nothing depends", async () => {
    const clock = await dailyJob(scratch.path, { params: { ds: "${today}", asof: "${yesterday}" } });
    const first = await clock.backfill();
    expect([first.code, first.stderr]).toEqual([64, expect.stringContaining("params.asof comes from the clock")]);

    const path = join(projectFolder, "fixtures/data/diabetes/*.parquet");
    const same = await dailyJob(scratch.path, { input: { path }, output: { parquet: { path: "out" } } });
    const second = await same.backfill();
    expect([second.code, second.stderr]).toEqual([64, expect.stringContaining("no key uses ${ds}")]);
  });
});
