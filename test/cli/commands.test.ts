import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { z } from "zod";
import { runHere } from "../support/cli.js";
import { fixtures, type Fixture, scratch, scratchFolder, writeSpec } from "../support/job.js";
import { showResult, shownCli } from "../support/shown.js";
import { identity, smallJob } from "../support/faulty.js";
import { lastJson } from "../support/nights.js";
import { skipExitCode } from "#src/cli/commands/run.js";
import { exitCodes } from "#src/base/errors.js";
import { scoreHere } from "../support/score.js";

const wine = fixtures.find(({ name }) => name === "wine-forest") as Fixture;
const cancer = fixtures.find(({ name }) => name === "cancer-logistic") as Fixture;
const batch32 = fixtures.find(({ name }) => name === "diabetes-mlp-batch32") as Fixture;

describe("plan", () => {
  test("plan shows shards, spans, bindings and target, and writes nothing", async () => {
    const spec = await writeSpec(scratch.path, wine, { commit_rows: 50 });
    expect(await shownCli(["plan", spec], scratch.path)).toMatchSnapshot();
    expect(await readdir(scratch.path)).toEqual(["job.yaml"]);
  });

  test("plan shows a model's fixed batch size", async () => {
    const { stdout } = await runHere(["plan", await writeSpec(scratch.path, batch32)]);
    expect(stdout).toContain("input    features float32 [32,10] <- age, sex, bmi");
  });

  test("plan --json prints one line, the plan that run would store", async () => {
    const spec = await writeSpec(scratch.path, wine);
    const { code, stdout, stderr } = await runHere(["plan", spec, "--json"]);
    expect([code, stderr, stdout.split("\n").length]).toEqual([0, "", 2]);
    expect(JSON.parse(stdout)).toMatchObject({
      format: "infer-batch-plan",
      version: 1,
      job: "wine-forest",
      input: { rows: 178 },
    });
  });
});

test("rollback into files is refused, and names the page that says how to go back", async () => {
  const { code, stderr } = await runHere(["rollback", await writeSpec(scratch.path, wine)]);
  expect([code, stderr]).toEqual([64, expect.stringContaining("docs/rollback.md")]);
});

describe("validate", () => {
  test("validate shows the bindings, and writes nothing", async () => {
    const spec = await writeSpec(scratch.path, cancer);
    expect(await shownCli(["validate", spec], scratch.path)).toMatchSnapshot();
    expect(await readdir(scratch.path)).toEqual(["job.yaml"]);
  });

  test("validate says when there is no shard to check yet", async () => {
    await using folder = await scratchFolder();
    const spec = await writeSpec(folder.path, cancer, { input: { path: "in/*.parquet" } });
    expect(await shownCli(["validate", spec], folder.path)).toMatchInlineSnapshot(`
      "exit 0
      --- stdout
      <folder>/job.yaml is valid; no shard is there yet, so the binding and the target were not checked
      "
    `);
  });
});

describe("run and status", () => {
  test("run and status agree before, during and after a run", async () => {
    const spec = await writeSpec(scratch.path, wine, { commit_rows: 50 });
    const story = [
      await shownCli(["status", spec], scratch.path),
      await shownCli(["run", spec], scratch.path),
      await shownCli(["status", spec], scratch.path),
      await shownCli(["status", spec, "--json"], scratch.path),
      await shownCli(["run", spec], scratch.path),
    ];
    expect(`\n${story.join("\n")}`).toMatchSnapshot();
  });

  test("status of an unfinished run has the command that continues it", async () => {
    const spec = await writeSpec(scratch.path, wine, { commit_rows: 50, params: { ds: "2026-01-31" } });
    await runHere(["run", spec, "--worker", "0/2", "--quiet"]);
    const next = `infer-batch run ${spec} --param ds=2026-01-31`;
    const { stdout } = await runHere(["status", spec]);
    expect(stdout).toMatch(/: unfinished, 2 of 4 spans committed/);
    expect(stdout).toContain(`\n  to continue: ${next}\n`);
    expect(JSON.parse((await runHere(["status", spec, "--json"])).stdout)).toMatchObject({ commands: [next] });
    expect((await runHere(next.split(" ").slice(1))).code).toBe(0);
    expect((await runHere(["status", spec])).stdout).not.toContain("to continue");
  });

  test("status before the first run writes nothing", async () => {
    await runHere(["status", await writeSpec(scratch.path, wine)]);
    expect(await readdir(scratch.path)).toEqual(["job.yaml"]);
  });

  test("run --json has exactly one line of JSON on stdout, the first time and the next", async () => {
    const spec = await writeSpec(scratch.path, wine, { commit_rows: 50, engine: { batch_size: 16 } });
    const first = await runHere(["run", spec, "--json"]);
    const second = await runHere(["run", spec, "--json"]);
    for (const { code, stdout } of [first, second]) {
      expect([code, stdout.endsWith("\n"), stdout.split("\n").length]).toEqual([0, true, 2]);
    }
    expect(JSON.parse(first.stdout)).toMatchObject({
      rows_planned: 178,
      rows_scored: 178,
      spans_planned: 4,
      batch_size: 16,
    });
    const { engine_busy: busy } = z.object({ engine_busy: z.number() }).parse(JSON.parse(first.stdout));
    expect([busy > 0, busy <= 1]).toEqual([true, true]);
    expect(JSON.parse(second.stdout)).toMatchObject({ status: "already_complete", rows_scored: 0, spans_resumed: 4 });
    expect(showResult(first, scratch.path)).toMatchSnapshot();
  });

  test("run --quiet says nothing when all is well", async () => {
    const { code, stdout, stderr } = await runHere(["run", await writeSpec(scratch.path, wine), "--quiet"]);
    expect([code, stdout, stderr]).toEqual([0, "", ""]);
  });

  test("run --quiet --json says one line", async () => {
    const { stdout, stderr } = await runHere(["run", await writeSpec(scratch.path, wine), "--quiet", "--json"]);
    expect([stdout.split("\n").length, stderr]).toEqual([2, ""]);
  });

  test("log lines are JSON when asked for, each of them", async () => {
    const spec = await writeSpec(scratch.path, wine);
    const { stderr } = await runHere(["run", spec, "--log-format", "json", "--log-level", "debug"]);
    const lines = stderr
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as { level: string; msg: string });
    expect(lines.map(({ level }) => level)).toEqual(expect.arrayContaining(["info", "debug"]));
    expect(lines.every(({ msg }) => msg.length > 0)).toBe(true);
  });

  test("paths are relative to the spec, not to where the command is run", async () => {
    await using elsewhere = await scratchFolder();
    await writeSpec(scratch.path, wine);
    const { code } = await runHere(["run", join(scratch.path, "job.yaml")], { cwd: elsewhere.path });
    expect([code, await readdir(elsewhere.path)]).toEqual([0, []]);
    expect(await readdir(scratch.path)).toEqual(["job.yaml", "out"]);
  });
});

test("run --json ends with a line about a failure, with the run that failed", async () => {
  const { spec } = await smallJob(scratch.path, {
    model: identity,
    select: "SELECT i::BIGINT AS id, CASE WHEN i = 7 THEN NULL ELSE i END::DOUBLE AS x FROM range(20) t(i)",
  });
  const failed = await runHere(["run", spec, "--json"]);
  expect(failed.code).toBe(65);
  expect(lastJson(failed)).toEqual({
    run_id: expect.stringMatching(/^\w+-[0-9a-f]{12}$/),
    status: "failed",
    exit_code: 65,
    code: "BAD_ROW",
    message: expect.stringMatching(/^scoring .*row 7, column `x` is NULL \(in 1 of 20 rows of the input\)$/),
    hint: expect.stringContaining("on_bad_row: reject"),
  });
});

test("run --json ends with a line about a spec that cannot be read, without a run", async () => {
  const failed = await runHere(["run", "/nowhere/job.yaml", "--json"]);
  expect([failed.code, lastJson(failed)]).toMatchObject([
    64,
    { run_id: null, status: "failed", exit_code: 64, code: "FILE_MISSING" },
  ]);
});

test("run --json names the run that an attempt cannot resume", async () => {
  const jobOf = async (rows: number): Promise<string> => {
    const select = `SELECT i::BIGINT AS id, i::DOUBLE AS x FROM range(${rows}) t(i)`;
    return (await smallJob(scratch.path, { model: identity, select })).spec;
  };
  const complete = lastJson(await runHere(["run", await jobOf(20), "--json"]));
  const refused = await runHere(["run", await jobOf(21), "--json"]);
  expect([refused.code, lastJson(refused)]).toMatchObject([66, { run_id: complete["run_id"], status: "failed" }]);
});

test("run --log-format json ends with a record of what the run did, on stderr", async () => {
  const { spec } = await smallJob(scratch.path, { model: identity, select: "SELECT 1::BIGINT AS id, 2::DOUBLE AS x" });
  const last = async (...args: string[]): Promise<unknown> => {
    const { code, stderr } = await runHere(["run", spec, "--log-format", "json", ...args]);
    expect(code, stderr).toBe(0);
    return JSON.parse(stderr.trimEnd().split("\n").at(-1) ?? "");
  };
  const record = { level: "info", time: expect.any(String), run_id: expect.any(String), rows_planned: 1 };
  expect(await last()).toMatchObject({ ...record, status: "complete", msg: expect.stringContaining("1 row scored") });
  expect(await last()).toMatchObject({ ...record, status: "already_complete" });
  expect((await runHere(["run", spec, "--log-format", "json", "--quiet"])).stderr).toBe("");
});

describe("--skip-exit-code", () => {
  test("--skip-exit-code is the exit code of a run that is already complete, and of no other", async () => {
    const spec = await writeSpec(scratch.path, wine);
    const first = await runHere(["run", spec, "--json", "--skip-exit-code", "99"]);
    const second = await runHere(["run", spec, "--json", "--skip-exit-code", "99"]);
    expect([first.code, second.code]).toEqual([0, 99]);
    expect([first, second].map(({ stdout }) => (JSON.parse(stdout) as { status: string }).status)).toEqual([
      "complete",
      "already_complete",
    ]);
    expect(second.stderr).toBe("");
    expect((await scoreHere(spec)).status).toBe("already_complete");
  });

  test.each([3, 63, 68, 99, 125])("--skip-exit-code may be %d", (code) => {
    expect(skipExitCode(String(code))).toBe(code);
  });

  test.each(
    [...new Set(Object.values(exitCodes))]
      .map(String)
      .concat("0", "1", "2", "126", "137", "255", "256", "-1", "9.5", "1e1", "", "x"),
  )("may not be '%s'", (text) => {
    expect(() => skipExitCode(text)).toThrow(
      /^(Exit code \d+ means something else here; 99 is free|Expected a number from 3 to 125, such as 99)\.$/,
    );
  });
});
