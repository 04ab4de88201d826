import { describe, expect, test } from "vitest";
import { runHere } from "../support/cli.js";
import type { ChatReply, ChatRequest } from "../support/chat-server.js";
import { identity, smallJob } from "../support/faulty.js";
import { scratchFolder, type SpecOverrides } from "../support/job.js";
import { faultsOfFinished, outputRows } from "../support/output.js";
import type { Row } from "../support/parquet.js";
import { type PromptKeys, promptJob } from "../support/prompt-job.js";
import { byZero, rejectingJob, select, settings } from "../support/rejecting-job.js";
import { reject, rejectLines } from "../support/rejects.js";
import { scoreHere } from "../support/score.js";

const onlyRejects = { newRun: false, onlyRejects: true };

/** The id of the run that `plan` shows, how many rejected rows it scores, and what the target has. */
async function plannedRejects(spec: string): Promise<unknown[]> {
  const { stdout } = await runHere(["plan", spec]);
  const [, runId, rejects, found] =
    /^run +(\S+)\n[^]*\nrejects +(\d+) rejected rows[^]*\ntarget .*, which has (.*)\n/.exec(stdout) ?? [];
  return [runId, rejects === undefined ? stdout : Number(rejects), found];
}

/** What each row is scored as. @param bad the score of those that were rejected; undefined: they are not there */
function scores(bad: number | undefined): Row[] {
  return Array.from({ length: 90 }, (_, id) => ({ id, score: id % 5 === 0 ? bad : id })).flatMap(({ id, score }) =>
    score === undefined ? [] : [{ id, score }],
  );
}

const cutOff = (request: ChatRequest): ChatReply =>
  Number(request.body["max_tokens"]) < 50 && /[37]$/.test(request.text)
    ? { content: "te", finish: "length" }
    : { content: request.text };

const sampling = (most: number): PromptKeys => ({ model: { sampling: { max_tokens: most } } });

describe("--only-rejects", () => {
  test("--only-rejects keeps all predictions of the run before, and scores its rejected rows", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    expect(await outputRows(job.out)).toEqual(scores(undefined));
    await job.rewrite({ ...settings, ...byZero });

    const report = await scoreHere(job.spec, onlyRejects);

    expect(report).toMatchObject({ status: "complete", rowsScored: 90, rowsReused: 72, rowsRejected: 0 });
    expect(report.runId).toMatch(/-r2$/);
    expect(await outputRows(job.out)).toEqual(scores(0));
    expect(await faultsOfFinished(job.out, 90)).toEqual([]);
    expect(await rejectLines(job.out)).toEqual([]);
  });

  test("the predictions that are kept are those of the run before, not what the model would say now", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    const changed = {
      model: { inputs: { x: ["y"] } },
      input: { where: "id < 90", columns: { y: "coalesce(x, 0) - 7" } },
    };
    await job.rewrite({ ...settings, ...changed });

    await scoreHere(job.spec, onlyRejects);

    expect(await outputRows(job.out)).toEqual(scores(-7));
  });

  test("a kept row stays where today's expression fails on it", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    const failing = "if(x is null, 1, cast('none' as float))";
    await job.rewrite({ ...settings, ...byZero, input: { where: "id < 90", columns: { y: failing } } });

    expect(await scoreHere(job.spec, onlyRejects)).toMatchObject({ rowsScored: 90, rowsRejected: 0 });
    expect(await outputRows(job.out)).toEqual(scores(1));
  });

  test("a correction after a failed --only-rejects keeps the predictions of the run before, too", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    const failing = { ...settings, on_bad_row: "fail" } as const;
    await job.rewrite(failing);
    const failed = await runHere(["run", job.spec, "--only-rejects", "--no-progress"]);
    expect(failed.code, failed.stderr).toBe(65);
    expect(await plannedRejects(job.spec)).toEqual([expect.stringMatching(/-r2$/), 18, "this run: unfinished"]);
    const columns = { y: "coalesce(x, 0) - 7" };
    await job.rewrite({ ...failing, ...byZero, input: { where: "id < 90", columns } });
    expect(await plannedRejects(job.spec)).toEqual([
      expect.stringMatching(/-r3$/),
      18,
      expect.stringMatching(/^run small-\w+-r2: unfinished$/),
    ]);

    const report = await scoreHere(job.spec, onlyRejects);

    expect(report).toMatchObject({ status: "complete", rowsReused: 72 });
    expect(report.runId).toMatch(/-r3$/);
    expect(await outputRows(job.out)).toEqual(scores(-7));
  });

  test("rows that are rejected again are scored by the next --only-rejects", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);

    expect(await scoreHere(job.spec, onlyRejects)).toMatchObject({ rowsScored: 72, rowsReused: 72, rowsRejected: 18 });
    expect(await outputRows(job.out)).toEqual(scores(undefined));
    expect(await rejectLines(job.out)).toHaveLength(18);
    await job.rewrite({ ...settings, ...byZero });
    expect(await scoreHere(job.spec, onlyRejects)).toMatchObject({ rowsScored: 90, rowsReused: 72 });
    expect(await outputRows(job.out)).toEqual(scores(0));
  });

  test("a run without rejected rows is complete, and no run is opened after it", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path, { modelSpec: byZero.model, input: byZero.input });

    const { runId, status } = await scoreHere(job.spec, onlyRejects);

    expect({ runId, status }).toEqual({ runId: expect.not.stringMatching(/-r2$/), status: "already_complete" });
  });

  test("history names the run whose rejected rows a run has scored", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    await scoreHere(job.spec, onlyRejects);

    const { stdout } = await runHere(["history", job.spec]);

    expect(stdout).toMatch(/-r2 .*only the rejects of small-[0-9a-f]{12}/);
  });

  test("workers share a run of rejects that one of them has opened", async () => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    await job.rewrite({ ...settings, on_bad_row: "fail" }); // the first row of the run ends it
    const failed = await runHere(["run", job.spec, "--only-rejects", "--no-progress"]);
    expect(failed.code, failed.stderr).toBe(65);
    await job.rewrite({ ...settings });
    expect(await plannedRejects(job.spec)).toMatchObject({ 1: 18 });
    const { stderr } = await runHere(["run", job.spec, "--worker", "0/2", "--no-progress"]);
    const [, scored] = /scoring (\d+) rejected rows/.exec(stderr) ?? [];
    expect(await plannedRejects(job.spec)).toMatchObject({ 1: 18 - Number(scored), 2: "this run: unfinished" });
    const ended = await runHere(["run", job.spec, "--worker", "1/2", "--steal", "--no-progress", "--json"]);

    expect(JSON.parse(ended.stdout)).toMatchObject({ status: "complete" });
    expect(await outputRows(job.out)).toEqual(scores(undefined));
  });

  test.each<[string, SpecOverrides, number, RegExp]>([
    ["where", { ...byZero, input: { ...byZero.input, where: "id < 91" } }, 66, /input.where is "id < 91"/],
    ["columns of the output", { output: { columns: [] } }, 66, /the columns of the output is/],
    ["a challenger", { challenger: { path: "model.onnx" } }, 64, /a challenger scores all rows/],
  ])("a change that kept rows do not allow is refused: %s", async (_what, change, code, message) => {
    await using scratch = await scratchFolder();
    const job = await rejectingJob(scratch.path);
    await job.rewrite({ ...settings, ...change });

    const ended = await runHere(["run", job.spec, "--only-rejects", "--no-progress"]);

    expect({ code: ended.code, stderr: ended.stderr }).toEqual({ code, stderr: expect.stringMatching(message) });
    expect(await outputRows(job.out)).toEqual(scores(undefined));
  });

  test("a job without a run has no rejected rows to score", async () => {
    await using scratch = await scratchFolder();
    const job = await smallJob(scratch.path, { model: identity, select, ...settings });

    const ended = await runHere(["run", job.spec, "--only-rejects"]);

    expect({ code: ended.code, stderr: ended.stderr }).toEqual({
      code: 64,
      stderr: expect.stringContaining("there is none"),
    });
  });

  test("only the prompts of rejected rows are asked again, whose answers may be longer now", async () => {
    const texts = "SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(300) t(i)";
    await using job = await promptJob({ reply: cutOff, select: texts, ...sampling(10), ...reject, commit_rows: 60 });
    expect(await job.run()).toMatchObject({ report: { rows_scored: 240, rows_rejected: 60 } });
    const asked = job.server.requests.length;
    await job.rewrite(sampling(50));
    const planned = await job.command("plan", job.spec, "--only-rejects");
    expect(planned.stdout, planned.stderr).toMatch(
      /^run +labels-\w+-r2\n[^]*\nrejects +60 rejected rows of run labels-\w+ are scored; its other rows keep their predictions\n/,
    );
    expect(planned.stdout).toMatch(
      /\nprompts +about 60 prompts, 4\d\d tokens in .*, at most 3,000 out\ntarget +\S+out, which has run labels-\w+: published\n/,
    );
    expect(job.server.requests).toHaveLength(asked);

    const ended = await job.run("--only-rejects");

    expect(ended, ended.stderr).toMatchObject({ code: 0, report: { rows_scored: 300, rows_reused: 240 } });
    const again = job.server.requests.slice(asked).map(({ text }) => text);
    expect([again.length, again.filter((text) => !/[37]$/.test(text))]).toEqual([60, []]);
    expect(await job.rows()).toEqual(Array.from({ length: 300 }, (_, id) => ({ id, response: `text ${id}` })));
  });

  test("a row that is set aside before it is asked costs nothing where other rows keep their predictions", async () => {
    await using job = await promptJob({
      select: `SELECT i::INTEGER AS id, 'subject' AS subject, if(i % 5 > 0, 'text ' || i, NULL) AS body FROM range(20) t(i)`,
      model: { prompt: { user: "{{subject}}: {{body}}" } },
      params: { ds: "${today}" },
      reuse: { key: ["id"] },
      output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
      server: { version: "m" },
      ...reject,
    });
    const nights = [["ds=2026-01-01"], ["ds=2026-01-01", "--only-rejects"], ["ds=2026-01-02"]];
    for (const [night, args] of nights.entries()) {
      const ended = await job.run("--param", ...args);
      const found = { rows_scored: 16, rows_rejected: 4, ...(night === 0 ? {} : { rows_reused: 16 }) };
      expect(ended.report, ended.stderr).toMatchObject(found);
      expect(job.server.requests).toHaveLength(16);
    }
  });
});
