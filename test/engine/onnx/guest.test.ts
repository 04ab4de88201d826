import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { startScoringWorker as startWorker } from "#src/app/threads/worker-threads.js";
import { type OnnxEngine, openOnnxEngine } from "#src/engine/onnx/engine.js";
import type { Tensor } from "#src/columnar/tensor.js";
import type { EngineRequest } from "#src/engine/port.js";
import { openModelFile } from "#src/models/model-file.js";
import { identity } from "../../support/faulty.js";
import { scratch } from "../../support/job.js";
import { type SmallModel, writeModel } from "../../support/onnx.js";

/** Twice what `identity` predicts. */
const doubled: SmallModel = {
  ...identity,
  nodes: [{ op: "Add", from: ["x", "x"], to: "score" }],
};

const floats = (...values: number[]): EngineRequest => ({
  inputs: [{ name: "x", dtype: "float32", dims: [values.length, 1], data: Float32Array.from(values) }],
  outputs: ["score"],
});

/** An engine, whose sessions are in the threads of `host` if there is one. */
async function engineOf(path: string, host?: OnnxEngine): Promise<OnnxEngine> {
  return await openOnnxEngine({
    model: await openModelFile(path),
    providers: ["cpu"],
    startWorker: (session) => host?.local.guestPort?.(session) ?? startWorker(),
    isGuest: host !== undefined,
    sessions: 2,
    intraOpThreads: 1,
  });
}

async function models(folder: string): Promise<{ readonly one: string; readonly two: string }> {
  const [one, two] = [join(folder, "one.onnx"), join(folder, "two.onnx")];
  await writeModel(one, identity);
  await writeModel(two, doubled);
  return { one, two };
}

const firstOf = (tensor: Tensor | undefined): unknown => (tensor?.data as Float32Array | undefined)?.[0];

async function scoresOf(engine: OnnxEngine, calls = 20): Promise<unknown[]> {
  const responses = await Promise.all(Array.from({ length: calls }, (_, call) => engine.run(floats(call + 1))));
  return responses.map((response) => (response.kind === "done" ? firstOf(response.outputs[0]) : response));
}

const counted = (times: number): number[] => Array.from({ length: 20 }, (_, call) => times * (call + 1));

describe("a second model in the threads of an engine", () => {
  test("both models answer each of many calls with their own outputs, and the first one still does when the second is closed", async () => {
    const { one, two } = await models(scratch.path);
    await using host = await engineOf(one);
    {
      await using guest = await engineOf(two, host);
      const [ofHost, ofGuest] = await Promise.all([scoresOf(host), scoresOf(guest)]);
      expect(ofHost).toEqual(counted(1));
      expect(ofGuest).toEqual(counted(2));
    }
    expect(await scoresOf(host)).toEqual(counted(1));
    await using again = await engineOf(two, host);
    expect(await scoresOf(again)).toEqual(counted(2));
  });

  test("a second model that ONNX Runtime refuses is refused as in a thread of its own, and the first one still answers", async () => {
    const { one } = await models(scratch.path);
    await using host = await engineOf(one);
    const broken = join(scratch.path, "broken.onnx");
    await writeModel(broken, { ...identity, nodes: [{ op: "NoSuchOperator", from: ["x"], to: "score" }] });
    await expect(engineOf(broken, host)).rejects.toMatchObject({ code: "MODEL_INVALID" });
    expect(await scoresOf(host)).toEqual(counted(1));
  });

  test("calls of a second model fail when the engine of its threads is closed", async () => {
    const { one, two } = await models(scratch.path);
    const host = await engineOf(one);
    await using guest = await engineOf(two, host);
    expect(await scoresOf(guest)).toEqual(counted(2));
    await host[Symbol.asyncDispose]();
    await expect(guest.run(floats(1))).rejects.toThrow(/the worker thread has ended/);
  });
});
