import { once } from "node:events";
import { join } from "node:path";
import { expect, test, vi } from "vitest";
import { scoringWorker } from "#src/job/threads/worker-threads.js";
import { earlyThreads } from "#src/models/onnx/early-threads.js";
import { openOnnxEngine } from "#src/models/onnx/engine.js";
import { openModelFile } from "#src/models/places/model-file.js";
import { projectFolder } from "../../support/cli.js";

async function openEngine(early: ReturnType<typeof earlyThreads>) {
  const model = await openModelFile(join(projectFolder, "fixtures/models/diabetes-mlp.onnx"));
  return await openOnnxEngine({
    model,
    providers: ["cpu"],
    sessions: 2,
    intraOpThreads: 1,
    startWorker: () => early.take(),
  });
}

test("an engine takes threads that were started before, then others", async () => {
  await using early = earlyThreads(scoringWorker, 2);
  early.start();
  const take = vi.spyOn(early, "take");

  await using engine = await openEngine(early);

  await engine.local.opened();

  expect(take).toHaveBeenCalledTimes(2);
  expect(early.count).toBe(0);
  expect(engine.signature.inputs.map(({ name }) => name)).toEqual(["features"]);
});

async function countOf(cores: number): Promise<number> {
  await using early = earlyThreads(scoringWorker, cores);
  early.start();
  return early.count;
}

test("a core is left for the thread that starts them, and there are some at most", async () => {
  expect([await countOf(1), await countOf(3), await countOf(64)]).toEqual([1, 2, 4]);
});

test("an early thread that could not load its module is not used", async () => {
  await using early = earlyThreads(new URL("file:///nowhere/at-all.js"), 2);
  early.start();
  expect(early.count).toBe(1);

  await vi.waitFor(
    () => {
      expect(early.count).toBe(0);
    },
    { timeout: 20_000 },
  );
  const another = early.take();
  expect(another.threadId).toBeGreaterThan(0); // it runs, until it finds the same
  await once(another, "error");
});

test("early threads that are not used end by themselves", async () => {
  const early = earlyThreads(scoringWorker, 3);
  early.start();
  await early[Symbol.asyncDispose]();
  expect(early.count).toBe(0);
});
