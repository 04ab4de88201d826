import { expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import { lastJson } from "../support/nights.js";

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
