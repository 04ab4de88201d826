import { describe, expect, test } from "vitest";
import { type BatchJob, batchJob } from "../../support/batch-job.js";
import { runCli } from "../../support/cli.js";
import { lastJson } from "../../support/nights.js";
import { promptJob } from "../../support/prompt-job.js";
import { type BatchFaults, startPromptServer } from "../../support/prompt-server.js";
import { reject } from "../../support/rejects.js";
import { until } from "../../support/waiting.js";

const endless = { runMs: 600_000 };

/** Ends worker 0 of two with SIGKILL when it has a batch under way, and then the batch. */
async function killFirstWorker({ job, server }: BatchJob, faults: BatchFaults): Promise<void> {
  await server.control({ batch: { ...faults, ...endless } });
  let child: { kill(signal: NodeJS.Signals): boolean } | undefined;
  const running = job.run(["--worker", "0/2"], (started) => {
    child = started;
  });
  await until(async () => (await server.books()).batches.statuses.includes("in_progress"));
  child?.kill("SIGKILL");
  expect((await running).signal).toBe("SIGKILL");
  await server.control({ batch: { ...faults, finish: true } });
}

describe("batches of several workers", { timeout: 60_000 }, () => {
  test("of two workers the first one sends the requests of both", async () => {
    await using batches = await batchJob({ mock: { batch: { runMs: 100 } } });
    const ends = await Promise.all(["1/2", "0/2"].map((worker) => batches.job.run(["--worker", worker])));
    expect(
      ends.map(({ code }) => code),
      ends.map(({ stderr }) => stderr).join(""),
    ).toEqual([0, 0]);
    const last = ends.find((end) => lastJson(end)["status"] === "complete");
    await batches.requireRight(last ?? ends[0] ?? (await batches.run()));
    expect((await batches.server.books()).batches.created).toBe(1);
  });

  test("a worker that does not wait for the others ends with 75", async () => {
    await using batches = await batchJob({ retrySeconds: 1 });
    const { code, stderr } = await batches.run("--worker", "1/2");
    expect([code, stderr]).toEqual([75, expect.stringContaining("worker 0 asks for the rows of all workers")]);
  });

  test("a worker that waits for batches while worker 0 asks one by one says what to do, and the same command goes on then", async () => {
    await using server = await startPromptServer({});
    const keys = { commit_rows: 30, retry: { max_seconds: 2 } };
    const at = (transport: string): object => ({ url: server.url, name: "mock-1", transport });
    await using job = await promptJob({
      select: "SELECT i::INTEGER AS id, 'text ' || i AS body FROM range(60) t(i)",
      server: at("batch"),
      ...keys,
    });
    const waiting = runCli(["run", job.spec, "--no-progress", "--worker", "1/2"]);
    await until(async () => (await server.books()).batches.calls > 2);
    await job.rewrite({ server: at("online") });
    const first = await job.run("--worker", "0/2");
    expect(first.report, first.stderr).toMatchObject({ status: "partial", rows_scored: 30 });

    const { code, stderr } = await waiting;

    expect([code, stderr]).toEqual([
      75,
      expect.stringContaining("worker 0 has transport: online and sends no batches"),
    ]);
    expect(stderr).toContain("give all workers the same model.server.transport");
    const second = await job.run("--worker", "1/2");
    expect(second.report, second.stderr).toMatchObject({ status: "complete", rows_scored: 30 });
  });

  test("a worker that waits counts refusals as worker 0 does, where a batch has no answer", async () => {
    await using server = await startPromptServer({ context: 100, batch: { queue: 30 } });
    await using job = await promptJob({
      select: "SELECT i::INTEGER AS id, repeat('long ', if(i < 30, 1, 200)) || i AS body FROM range(60) t(i)",
      server: { url: server.url, name: "mock-1", transport: "batch" },
      ...reject,
      max_rejects: 30,
      commit_rows: 30,
      retry: { max_seconds: 1 },
    });
    const first = await job.run("--worker", "0/2");
    expect(first.code, first.stderr).toBe(0);
    const second = await job.run("--worker", "1/2");
    expect(second.report, second.stderr).toMatchObject({ status: "complete", rows_rejected: 30 });
  });

  test("a worker that waits rejects no row for refusals that ended worker 0", async () => {
    const ofModel = { sampling: { max_completion_tokens: 60, temperature: 0 } };
    await using batches = await batchJob({ mock: { modern: true }, ofModel, retrySeconds: 1 });
    const { code, stderr } = await batches.run("--worker", "0/2");
    expect([code, stderr]).toEqual([64, expect.stringContaining("requests was refused")]);
    expect((await batches.run("--worker", "1/2")).code).toBe(75);
  });

  test("a worker that waits sees later batches of a server that keeps no metadata", async () => {
    await using batches = await batchJob({ mock: { batch: { forgetful: true } } });
    const { job, server } = batches;
    const waiting = job.run(["--worker", "1/2"]);
    await until(async () => (await server.books()).batches.calls > 2);
    const first = await batches.run("--worker", "0/2");
    expect(first.code, first.stderr).toBe(0);
    const { code, stderr } = await waiting;
    expect(code, stderr).toBe(0);
  });

  test.each([
    ["that names batches", {}],
    ["that keeps no metadata", { forgetful: true }],
  ])("two processes that were both started as the first worker create one batch: a server %s", async (_, faults) => {
    const slow = { ...faults, runMs: 600_000 };
    await using batches = await batchJob({ mock: { batch: { ...slow, hold: { at: "upload" } } } });
    const { job, server } = batches;
    const late = job.run([]);
    await until(async () => (await server.books()).batches.held === "upload");
    const early = job.run([]);
    await until(async () => (await server.books()).batches.statuses.includes("in_progress"));
    await server.control({ batch: slow }); // the held call breaks off
    await until(async () => (await server.books()).batches.files === 2);
    await server.control({ batch: { ...faults, finish: true } });
    const ends = await Promise.all([early, late]);
    expect(
      ends.map(({ code }) => code),
      ends.map(({ stderr }) => stderr).join(""),
    ).toEqual([0, 0]);
    expect(await server.books()).toMatchObject({ billed_again: { requests: 0 }, batches: { created: 1 } });
  });

  test.each([
    ["that names batches", {}],
    ["that keeps no metadata", { forgetful: true }],
  ])(
    "a worker that steals the spans of worker 0, which was killed, takes its answers from its batch: a server %s",
    async (_, faults) => {
      await using batches = await batchJob();
      await killFirstWorker(batches, faults);
      const stolen = await batches.run("--worker", "1/2", "--steal");
      await batches.requireRight(stolen);
      expect(lastJson(stolen)).toMatchObject({ status: "complete", spans_committed: 2 });
      expect((await batches.server.books()).batches).toMatchObject({ created: 1, files: 1 });
    },
  );

  test("a worker that steals sends no batch: what worker 0 has not asked for is left to one that may send it", async () => {
    await using batches = await batchJob({ retrySeconds: 1 });
    await killFirstWorker(batches, { ending: ["expired"] });
    const { code, stderr } = await batches.run("--worker", "1/2", "--steal");
    expect([code, stderr]).toEqual([75, expect.stringContaining("run the command without --worker")]);
    expect((await batches.server.books()).batches.created).toBe(1);
    await batches.requireRight(await batches.run());
    expect((await batches.server.books()).batches.created).toBe(2);
  });

  test("two workers that steal from each other send each request once", async () => {
    await using batches = await batchJob({ commitRows: 10, mock: { batch: { runMs: 100 } } });
    const other = batches.job.run(["--worker", "1/2", "--steal"]);
    const first = await batches.run("--worker", "0/2", "--steal");
    const ends = [first, await other];
    expect(
      ends.map(({ code }) => code),
      ends.map(({ stderr }) => stderr).join(""),
    ).toEqual([0, 0]);
    for (const end of ends) {
      await batches.requireRight(end);
    }
    expect((await batches.server.books()).batches.created).toBe(1);
  });
});
