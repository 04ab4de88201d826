import { cp, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { openJob } from "#src/job/job-context.js";
import { runJob } from "#src/run/run.js";
import { projectFolder } from "../support/cli.js";
import { fixtures, scratch, writeSpec } from "../support/job.js";

const wine = fixtures[2] as (typeof fixtures)[number];
const parts = join(projectFolder, "fixtures/data/wine");

interface Calls {
  /** Of the sink's `find`: how often the target was looked at. */
  finds: number;
  /** Engines that were opened: each loads the model. */
  engines: number;
}

/** Carries out a job whose shards come one after the other, one at each pause; counts what it asked for. */
async function runWithArrivals(
  folder: string,
  { input, newRun, arrivals }: { input: object; newRun: boolean; arrivals: readonly number[] },
): Promise<{ outcome: unknown; calls: Calls }> {
  await mkdir(join(folder, "in"), { recursive: true });
  const spec = await writeSpec(folder, wine, { input: { path: "in/*.parquet", ...input } });
  const calls: Calls = { finds: 0, engines: 0 };
  const left = [...arrivals];
  const attempt = { worker: { index: 0, count: 1 }, steal: false, newRun };
  await using job = await openJob(spec, { param: [] }, { attempt });
  const { sink } = job;
  const outcome: unknown = await runJob({
    ...job,
    async sleep() {
      const part = left.shift();
      if (part !== undefined) {
        await cp(join(parts, `part-0000${part}.parquet`), join(folder, "in", `part-0000${part}.parquet`));
      }
    },
    sink: {
      ...sink,
      find(base) {
        calls.finds += 1;
        return sink.find(base);
      },
    },
    openEngine(model, need) {
      calls.engines += 1;
      return job.openEngine(model, need);
    },
  }).catch((error: unknown) => error);
  return { outcome, calls };
}

test("a new run that waits for its rows looks at the target once, and loads the model when they are there", async () => {
  const input = { min_rows: 61, wait: "4h" };
  const first = await runWithArrivals(scratch.path, { input, newRun: false, arrivals: [0, 1] });
  expect(first).toMatchObject({
    outcome: { status: "complete", rowsPlanned: 61 },
    calls: { finds: 1, engines: 1 },
  });

  const more = { min_rows: 170, wait: "4h" };
  const second = await runWithArrivals(scratch.path, { input: more, newRun: true, arrivals: [2, 3, 4] });

  expect(second).toMatchObject({
    outcome: { status: "complete", rowsPlanned: 178, runId: expect.stringMatching(/-r2$/) as string },
    calls: { finds: 1, engines: 1 },
  });
});

test("input.min_rows is checked before the model is loaded", async () => {
  await mkdir(join(scratch.path, "in"));
  await cp(join(parts, "part-00000.parquet"), join(scratch.path, "in/part-00000.parquet"));

  const found = await runWithArrivals(scratch.path, { input: { min_rows: 61 }, newRun: false, arrivals: [] });

  expect(found).toMatchObject({
    outcome: { code: "INPUT_NOT_READY", message: expect.stringContaining("has 60 rows in 1 file") as string },
    calls: { engines: 0 },
  });
});

test("an input without a shard loads no model", async () => {
  const found = await runWithArrivals(scratch.path, { input: {}, newRun: false, arrivals: [] });

  expect(found).toMatchObject({
    outcome: { code: "INPUT_NOT_READY", message: "planning wine-forest: no file matches in/*.parquet" },
    calls: { engines: 0 },
  });
});
