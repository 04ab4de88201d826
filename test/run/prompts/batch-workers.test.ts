import { describe, expect, test } from "vitest";
import { batchJob } from "../../support/batch-job.js";
import { lastJson } from "../../support/nights.js";
import { until } from "../../support/waiting.js";

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

  test("a worker that waits for nobody ends with 75", async () => {
    await using batches = await batchJob({ retrySeconds: 1 });
    const { code, stderr } = await batches.run("--worker", "1/2");
    expect([code, stderr]).toEqual([75, expect.stringContaining("worker 0 asks for the rows of all workers")]);
  });

  test("two processes that were both started as the first worker create one batch", async () => {
    await using batches = await batchJob({ mock: { batch: { runMs: 600_000, hold: { at: "upload" } } } });
    const { job, server } = batches;
    const late = job.run([]);
    await until(async () => (await server.books()).batches.held === "upload");
    const early = job.run([]);
    await until(async () => (await server.books()).batches.statuses.includes("in_progress"));
    await server.control({ batch: { runMs: 600_000 } }); // the held call breaks off
    await until(async () => (await server.books()).batches.files === 2);
    await server.control({ batch: { finish: true } });
    const ends = await Promise.all([early, late]);
    expect(
      ends.map(({ code }) => code),
      ends.map(({ stderr }) => stderr).join(""),
    ).toEqual([0, 0]);
    expect(await server.books()).toMatchObject({ billed_again: { requests: 0 }, batches: { created: 1 } });
  });
});
