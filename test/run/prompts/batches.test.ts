import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { batchJob } from "../../support/batch-job.js";
import { lastJson } from "../../support/nights.js";
import { writeRows } from "../../support/parquet.js";
import { promptJob } from "../../support/prompt-job.js";
import { type PromptServerOptions, startPromptServer } from "../../support/prompt-server.js";
import { rightRows } from "../../support/prompt-torture.js";
import { until } from "../../support/waiting.js";

const timeout = 60_000;
const rows = (count: number): string => `SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(${count}) t(i)`;
/** The most tokens of the smallest request of a ticket: its bytes, and those of its answer. */
const leastRequest = 400 + 60;

describe("batches", { timeout }, () => {
  test("rows are asked in one batch, and each is answered once", async () => {
    await using batches = await batchJob();
    const run = await batches.run();
    await batches.requireRight(run);
    const { received, batches: made } = await batches.server.books();
    expect({ received, made: made.created }).toEqual({ received: 0, made: 1 });
    expect(run.stderr).toMatch(/batch_1: completed, \d+ answers to 59 requests/);
  });

  test("the first rows of a larger table are a batch of their own", async () => {
    await using batches = await batchJob({ tickets: { rows: 230, every: 40 }, commitRows: 100 });
    await batches.requireRight(await batches.run());
    const { requests } = (await batches.server.books()).batches;
    expect(requests).toHaveLength(2);
    expect(requests[0]).toBeLessThanOrEqual(200);
  });

  test.each<[string, PromptServerOptions]>([
    ["another form of requests", { modern: true }],
    ["an expired batch", { batch: { ending: ["expired"] } }],
    ["429 and 500", { faults: { limited: 0.1, failed: 0.1 } }],
    ["invalid JSON", { faults: { garbled: 0.1 } }],
  ])("the first rows of a larger table are asked again until enough have answers: %s", async (_, mock) => {
    await using batches = await batchJob({ tickets: { rows: 230, every: 40 }, commitRows: 100, mock });
    const run = await batches.run();
    expect(run.code, run.stderr).toBe(0);
    const { billed, billed_again: again, garbled } = await batches.server.books();
    expect(again.requests).toBe(garbled);
    expect(lastJson(run)).toMatchObject({
      rows_scored: rightRows(batches.tickets).length,
      spending: { run: { answers: billed.requests } },
    });
  });

  test("what expired and cancelled batches have answered is taken, and the rest is asked again", async () => {
    await using batches = await batchJob({ mock: { batch: { ending: ["expired", "cancelled"] } } });
    await batches.requireRight(await batches.run());
    expect((await batches.server.books()).batches.statuses).toEqual(["expired", "cancelled", "completed"]);
  });

  test("a server that refuses calls, breaks off downloads, loses answers and repeats pages costs nothing more", async () => {
    const batch = {
      refuseEvery: 3,
      cutDownloads: 2,
      loseCreates: 1,
      pageItems: 2,
      ending: ["expired", "expired"],
    } as const;
    await using batches = await batchJob({ mock: { batch } });
    await batches.requireRight(await batches.run());
    expect((await batches.server.books()).batches.created).toBe(3);
  });

  test("invalid JSON, 429 and 500 within a batch are asked again in the next one", async () => {
    await using batches = await batchJob({ mock: { faults: { garbled: 0.1, limited: 0.05, failed: 0.05 } } });
    const run = await batches.run();
    expect(run.code, run.stderr).toBe(0);
    const { billed, billed_again: again, garbled, batches: made } = await batches.server.books();
    expect(garbled).toBeGreaterThan(0);
    expect(again.requests).toBe(garbled);
    expect(made.created).toBeGreaterThan(1);
    expect(lastJson(run)).toMatchObject({ rows_scored: 56, spending: { run: { answers: billed.requests } } });
  });

  test("a batch that the queue has no room for is divided", async () => {
    await using batches = await batchJob({ mock: { batch: { queue: 20 } } });
    await batches.requireRight(await batches.run());
    const { statuses, requests } = (await batches.server.books()).batches;
    const taken = requests.filter((_, index) => statuses[index] === "completed");
    expect(Math.max(...taken)).toBeLessThanOrEqual(20);
    expect(taken.reduce((sum, one) => sum + one, 0)).toBe(59);
  });

  test.each([
    ["invalid_json_line", 64, "MODEL_INVALID"],
    ["billing_hard_limit_reached", 67, "QUOTA"],
  ])("a batch that fails with %s ends the run with %i", async (code, exit, name) => {
    await using batches = await batchJob({ mock: { batch: { failing: [code] } } });
    const run = await batches.run();
    expect([run.code, lastJson(run)["code"]]).toEqual([exit, name]);
    expect(run.stderr).toContain(code);
    await batches.requireRight(await batches.run());
  });

  test("an account that runs out of money within a batch ends the run with 67, and its answers are kept", async () => {
    await using batches = await batchJob({ mock: { quota: 0.0003 } });
    const stopped = await batches.run();
    expect(lastJson(stopped), stopped.stderr).toMatchObject({ code: "QUOTA", exit_code: 67 });
    const { billed } = await batches.server.books();
    const { requests: answers, prompt_tokens, cached_tokens, completion_tokens } = billed;
    const kept = { answers, prompt_tokens, cached_tokens, completion_tokens };
    const status = lastJson(await batches.job.here("status", "--json"));
    const sent = [{ id: "batch_1", status: "completed", requests: 59, answered: answers }];
    expect(status).toMatchObject({ paid: { kept, batches: sent } });
    expect((await batches.job.target.kept()).size).toBe((await batches.server.books()).distinct);
    await batches.server.control({ quota: 1000 });
    await batches.requireRight(await batches.run());
  });

  test("a server that fails on everything ends the run with 75, and no row is rejected", async () => {
    await using batches = await batchJob({ mock: { faults: { failed: 1 } } });
    const stopped = await batches.run();
    expect(lastJson(stopped), stopped.stderr).toMatchObject({ code: "NETWORK", exit_code: 75 });
    await batches.server.control({ faults: {} });
    await batches.requireRight(await batches.run());
  });

  test("a row that the server fails on in three batches is rejected", async () => {
    await using server = await startPromptServer();
    await using job = await promptJob({
      select: "SELECT i::INTEGER AS id, CASE i WHEN 3 THEN 'CRASH' ELSE 'text ' || i END AS body FROM range(5) t(i)",
      on_bad_row: "reject",
      max_rejects: 1,
      server: { url: server.url, name: "mock-1", transport: "batch" },
    });
    const { report, stderr } = await job.run();
    expect(report, stderr).toMatchObject({ rows_scored: 4, rows_rejected: 1 });
    const { batches, billed } = await server.books();
    expect(batches.requests).toEqual([5, 2, 2]); // a small request shows that the server works
    expect(report["spending"]).toMatchObject({ answers: billed.requests, prompt_tokens: billed.prompt_tokens });
  });

  test("a server without a Batch API is named before anything is asked", async () => {
    await using batches = await batchJob({ mock: { batch: { absent: true } } });
    const { code, stderr } = await batches.run();
    expect([code, stderr]).toEqual([64, expect.stringContaining("leave out model.server.transport")]);
    const status = await batches.job.here("status");
    expect([status.code, status.stdout]).toEqual([
      0,
      expect.stringMatching(/\n {2}batches +unknown: listing the batches of /),
    ]);
  });

  test("a server that takes another form of requests gets it in the next batch", async () => {
    await using batches = await batchJob({ mock: { modern: true } });
    await batches.requireRight(await batches.run());
    expect((await batches.server.books()).batches.created).toBe(2);
  });

  test("equal refusals of all requests are the spec's fault and not the rows'", async () => {
    await using batches = await batchJob({
      mock: { modern: true },
      ofModel: { sampling: { max_completion_tokens: 60, temperature: 0 } },
    });
    const { code, stderr } = await batches.run();
    expect([code, stderr]).toEqual([64, expect.stringContaining("requests was refused")]);
  });

  test("another model in a batch ends the run with 66, and its answers are counted once", async () => {
    await using batches = await batchJob({ mock: { answersAs: "mock-2" }, ofServer: { version: "mock-1" } });
    expect((await batches.run()).code).toBe(66);
    const again = await batches.run();
    expect(again.code).toBe(66);
    expect((await batches.server.books()).batches.created).toBe(1);
  });

  test("a batch has no more requests than the budget covers at their worst, and the next ones have the rest", async () => {
    await using batches = await batchJob({ budget: { max_tokens: 20_000 } });
    const ended = await batches.run();
    await batches.requireRight(ended);
    expect(ended.stderr).toContain("are sent only when the batches before them have ended");
    const [first = 0, ...others] = (await batches.server.books()).batches.requests;
    expect(others.length).toBeGreaterThan(0);
    expect(others.reduce((sum, one) => sum + one, first)).toBe(59);
    expect(first * leastRequest).toBeLessThanOrEqual(20_000);
  });

  test("a budget that covers a few of many requests is spent on none, and a larger one goes on", async () => {
    await using batches = await batchJob({ budget: { max_tokens: 2_500 } });
    const stopped = await batches.run();
    expect(lastJson(stopped), stopped.stderr).toMatchObject({ code: "BUDGET", exit_code: 67 });
    expect(stopped.stderr).toContain("max_tokens is 2500");
    expect((await batches.server.books()).batches.created).toBe(0);
    await batches.job.rewrite({ max_tokens: 1_000_000 });
    await batches.requireRight(await batches.run());
  });

  test("a preview asks online", async () => {
    await using batches = await batchJob();
    const { code, stdout, stderr } = await batches.job.here("preview", "--limit", "2");
    expect([code, stderr]).toEqual([0, expect.any(String)]);
    expect(stdout).toContain("label");
    expect(await batches.server.books()).toMatchObject({ received: 2, batches: { created: 0 } });
  });

  test.each([
    ["names and files of batches", {}],
    ["no metadata and no input files", { forgetful: true, secretive: true }],
  ])(
    "a run that SIGTERM ends names its batches, and the next one takes them up: a server with %s",
    async (_, faults) => {
      await using batches = await batchJob({ mock: { batch: { ...faults, runMs: 600_000 } } });
      const { job, server } = batches;
      let child: { kill(signal: NodeJS.Signals): boolean } | undefined;
      const running = job.run([], (started) => {
        child = started;
      });
      await until(async () => (await server.books()).batches.statuses.includes("in_progress"));
      child?.kill("SIGTERM");
      const stopped = await running;
      expect([stopped.code, stopped.stderr]).toEqual([
        143,
        expect.stringContaining("1 batch (batch_1) is under way at the server"),
      ]);
      expect((await job.here("status")).stdout).toMatch(
        /\n {2}kept +0 answers, .*\n {2}batches +1 sent with 59 requests, 0 answered; under way: batch_1 \(in_progress, 0 of 59\)\n/,
      );

      const next = job.run([]);
      await until(async () => (await server.books()).batches.calls > 12);
      await server.control({ batch: { ...faults, finish: true } });
      await batches.requireRight(await next);
      expect((await next).stderr).toContain("1 batch (batch_1) is under way at");
      expect((await server.books()).batches.created).toBe(1);
    },
  );

  test("a row that is bad without being asked ends a run with on_bad_row: fail before anything is sent", async () => {
    await using server = await startPromptServer();
    await using job = await promptJob({
      select: "SELECT i::INTEGER AS id, CASE WHEN i < 19 THEN 'text ' || i END AS body FROM range(20) t(i)",
      server: { url: server.url, name: "mock-1", transport: "batch" },
    });
    expect((await job.run()).code).toBe(65);
    expect((await server.books()).batches.files).toBe(0);
  });

  test("embeddings are asked in batches, and rows that an earlier run has are not", async () => {
    await using server = await startPromptServer();
    await using job = await promptJob({
      select: rows(20),
      params: { ds: "${today}" },
      reuse: { key: ["id"] },
      output: { columns: ["id"], parquet: { path: "out/dt=${ds}" } },
      server: { url: server.url, name: "mock-1", version: "mock-1", transport: "batch" },
      model: { prompt: { input: "{{body}}" } },
    });
    const first = await job.run("--param", "ds=2026-01-01");
    expect(first.report, first.stderr).toMatchObject({ rows_scored: 20, spending: { answers: 20 } });
    await writeRows(join(job.folder, "texts.parquet"), rows(25));
    const second = await job.run("--param", "ds=2026-01-02");
    expect(second.report, second.stderr).toMatchObject({ rows_scored: 25, rows_reused: 20, spending: { answers: 5 } });
    expect((await server.books()).batches.requests).toEqual([20, 5]);
  });

  test.each([
    ["batches", { ofServer: { transport: "batch" } }, "model.server.transport: a pipe cannot wait for batches"],
    [
      "a budget",
      { ofServer: { transport: "online" }, budget: { max_tokens: 1000 } },
      "model.budget: a pipe stores no answers",
    ],
  ])("a pipe refuses %s", async (_, keys, found) => {
    await using batches = await batchJob(keys);
    const { code, stderr } = await batches.job.here("pipe");
    expect([code, stderr]).toEqual([64, expect.stringContaining(found)]);
  });

  test("plan says how many batches there are", async () => {
    await using batches = await batchJob();
    const { stdout } = await batches.job.here("plan");
    expect(stdout).toContain("about 59 prompts in 1 batch, which may take 24 hours");
    await using larger = await batchJob({ tickets: { rows: 400, every: 0 } });
    const planned = await larger.job.here("plan"); // the first rows are a batch of their own
    expect(planned.stdout).toContain("about 400 prompts in 2 batches, each of which may take 24 hours");
  });
});
