import { once } from "node:events";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { startScoringWorker as startWorker } from "#src/job/threads/worker-threads.js";
import { openModelFile } from "#src/models/places/model-file.js";
import { type OnnxEngine, openOnnxEngine } from "#src/models/onnx/engine.js";
import type { EngineRequest } from "#src/models/engine.js";
import { JobError } from "#src/base/errors.js";
import { identity, lookup, refusalOf } from "../../support/faulty.js";
import { scratch } from "../../support/job.js";
import { type SmallModel, writeModel } from "../../support/onnx.js";

async function engineOf(folder: string, small: SmallModel, sessions = 1): Promise<OnnxEngine> {
  const path = join(folder, "model.onnx");
  await writeModel(path, small);
  return await openOnnxEngine({
    model: await openModelFile(path),
    providers: ["cpu"],
    startWorker,
    sessions,
    intraOpThreads: 1,
  });
}

const floats = (...values: number[]): EngineRequest => ({
  inputs: [{ name: "x", dtype: "float32", dims: [values.length, 1], data: Float32Array.from(values) }],
  outputs: ["score"],
});
const codes = (...values: number[]): EngineRequest => ({
  inputs: [{ name: "code", dtype: "int64", dims: [values.length, 1], data: BigInt64Array.from(values, BigInt) }],
  outputs: ["score"],
});

describe("an engine", () => {
  test("an engine has the model's signature, with null for dimensions that vary", async () => {
    await using engine = await engineOf(scratch.path, identity);

    expect(engine.signature).toEqual({
      inputs: [{ name: "x", dtype: "float32", shape: [null, 1] }],
      outputs: [{ name: "score", dtype: "float32", shape: [null, 1] }],
    });
  });

  test("an engine answers each of many concurrent calls with its own outputs", async () => {
    await using engine = await engineOf(scratch.path, identity, 2);

    const responses = await Promise.all(Array.from({ length: 50 }, (_, call) => engine.run(floats(call, call + 0.5))));

    expect(responses).toMatchObject(
      Array.from({ length: 50 }, (_, call) => ({
        kind: "done",
        outputs: [{ data: Float32Array.of(call, call + 0.5) }],
      })),
    );
  });

  test("an engine is open when its first session is open; the error of another session fails the next call", async () => {
    const path = join(scratch.path, "model.onnx");
    await writeModel(path, identity);
    const model = await openModelFile(path);
    let checks = 0;
    const touched = new AbortController();
    const changing = {
      ...model,
      async check() {
        checks += 1;
        if (checks === 2) {
          if (!touched.signal.aborted) {
            await once(touched.signal, "abort");
          }
          throw new JobError("MODEL_CHANGED", "it was written to");
        }
      },
    };
    await using engine = await openOnnxEngine({
      model: changing,
      providers: ["cpu"],
      startWorker,
      sessions: 2,
      intraOpThreads: 1,
    });
    const ports = engine.local.unitPorts?.() ?? [];
    const ends = ports.map((port) => new Promise((resolve) => port.on("close", resolve)));

    expect(await engine.run(floats(1))).toMatchObject({ kind: "done" });
    touched.abort();

    await expect(engine.local.opened()).rejects.toThrow("it was written to");
    await expect(engine.run(floats(1))).rejects.toThrow("it was written to");
    expect(ends).toHaveLength(2);
    await Promise.race(ends); // the holder of that session is not left waiting
  });

  test("a closed engine closes the ports of its sessions", async () => {
    const engine = await engineOf(scratch.path, identity, 2);
    await engine[Symbol.asyncDispose]();

    const ports = engine.local.unitPorts?.() ?? [];

    await Promise.all(ports.map((port) => new Promise((resolve) => port.on("close", resolve))));
    expect(ports).toHaveLength(2);
  });

  test("an engine returns the buffers of a call undamaged", async () => {
    await using engine = await engineOf(scratch.path, identity);
    const request = floats(1, 2, 3);

    const response = await engine.run(request);

    expect(request.inputs[0]?.data).toHaveLength(0); // it went to the thread
    expect(response.kind === "done" && response.inputs).toMatchObject([{ name: "x", data: Float32Array.of(1, 2, 3) }]);
  });

  test("an engine reports a call that the model fails on, with its inputs, and answers the next call", async () => {
    await using engine = await engineOf(scratch.path, lookup());

    const failed = await engine.run(codes(1, 99));
    const next = await engine.run(codes(1, 2));

    expect(failed).toMatchObject({ kind: "failed", message: expect.stringContaining("idx=99") as string });
    expect(failed.inputs).toMatchObject([{ name: "code", data: BigInt64Array.of(1n, 99n) }]);
    expect(next).toMatchObject({ kind: "done", outputs: [{ data: Float32Array.of(0.5, 1) }] });
  });

  test("an engine that is closed refuses calls instead of never answering", async () => {
    const engine = await engineOf(scratch.path, identity);
    await engine[Symbol.asyncDispose]();

    await expect(engine.run(floats(1))).rejects.toThrow("the worker thread has ended");
  });

  test("an engine is refused a model that ONNX Runtime cannot load", async () => {
    const broken = { ...identity, nodes: [{ op: "NoSuchOperator", from: ["x"], to: "score" }] };

    expect(await refusalOf(engineOf(scratch.path, broken, 2))).toMatch(
      /^64 MODEL_INVALID\nloading model .*NoSuchOperator/,
    );
  });

  test("an engine is refused a model that is written to while it is loaded", async () => {
    const path = join(scratch.path, "model.onnx");
    await writeModel(path, identity);
    const model = await openModelFile(path);
    await writeModel(path, lookup());

    const opened = openOnnxEngine({ model, providers: ["cpu"], startWorker, sessions: 1, intraOpThreads: 1 });

    expect(await refusalOf(opened)).toMatch(/^66 MODEL_CHANGED\n/);
  });
});

/** Each row with each: what it makes of n rows takes 4·n² bytes. */
const square: SmallModel = {
  inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", "M"] }],
  nodes: [
    { op: "Transpose", from: ["x"], to: "row" },
    { op: "MatMul", from: ["x", "row"], to: "score" },
  ],
};

describe("an engine without memory for a batch", () => {
  test("an engine without memory for a batch returns the inputs, and works again after it is renewed", async () => {
    await using engine = await engineOf(scratch.path, square);
    const rows = 8_000_000; // 256 TB: more than a process can address

    const much = await engine.run({
      inputs: [{ name: "x", dtype: "float32", dims: [rows, 1], data: new Float32Array(rows) }],
      outputs: ["score"],
    });
    expect(much).toMatchObject({ kind: "exhausted", inputs: [{ dims: [rows, 1] }] });

    await engine.local.renew();
    expect(await engine.run(floats(2, 3))).toMatchObject({ outputs: [{ data: Float32Array.of(4, 6, 6, 9) }] });
  });

  test("an engine that is renewed answers earlier calls, and calls that come meanwhile", async () => {
    await using engine = await engineOf(scratch.path, identity, 2);

    const before = [1, 2, 3].map((value) => engine.run(floats(value)));
    const renewed = engine.local.renew();
    const meanwhile = [4, 5].map((value) => engine.run(floats(value)));
    await renewed;

    const all = await Promise.all([...before, ...meanwhile, engine.run(floats(6))]);
    expect(all).toMatchObject([1, 2, 3, 4, 5, 6].map((value) => ({ outputs: [{ data: Float32Array.of(value) }] })));
  });

  test("an engine without memory for a batch cannot be renewed if its model has changed", async () => {
    await using engine = await engineOf(scratch.path, identity);
    await writeModel(join(scratch.path, "model.onnx"), lookup());

    expect(await refusalOf(engine.local.renew())).toMatch(/^66 MODEL_CHANGED\n/);
    expect(await refusalOf(engine.run(floats(1)))).toMatch(/^66 MODEL_CHANGED\n/);
  });
});
