import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { OnnxSession } from "#src/models/onnx/session.js";
import type { TreesState } from "#src/models/engine.js";
import { openTreeSession, type TreeSession } from "#src/models/trees/session.js";
import { projectFolder } from "../../support/cli.js";
import { openWhole, rowsFor } from "../../support/tree-sessions.js";
import { floatsOf } from "#src/models/trees/compiled.js";

const model = readFileSync(join(projectFolder, "fixtures/trees/lightgbm-binary.onnx"));
const outputs = ["label", "probabilities"];

interface Opened {
  readonly session: TreeSession;
  readonly base: OnnxSession;
  readonly states: TreesState[];
  readonly request: (rows: number) => { inputs: [ReturnType<typeof rowsFor>]; outputs: string[] };
}

async function open(
  options: { tamper?: (base: OnnxSession) => OnnxSession; bytes?: Uint8Array; openedMs?: number } = {},
): Promise<Opened> {
  const { tamper = (base) => base, bytes = model, openedMs = 1 } = options;
  const whole = await openWhole(model);
  const base = tamper(whole);
  const states: TreesState[] = [];
  let nowMs = 0;
  const session = openTreeSession({
    base,
    openedMs,
    sha256: createHash("sha256").update(model).digest("hex"),
    sizeBytes: model.length,
    readModel: () => Promise.resolve(bytes),
    openPart: async (part) => tamper(await openWhole(part)),
    onState: (state) => states.push(state),
    nowMs: () => (nowMs += 1),
  });
  return { session, base, states, request: (rows) => ({ inputs: [rowsFor(model, whole, rows, rows)], outputs }) };
}

const wrong =
  (amount: number) =>
  (base: OnnxSession): OnnxSession => ({
    ...base,
    async run(request) {
      const tensors = await base.run(request);
      const scores = tensors[1];
      if (scores?.data instanceof Float32Array) {
        scores.data[0] = (scores.data[0] ?? 0) + amount;
      }
      return tensors;
    },
  });

describe("a session of a model with trees", () => {
  test("a session of a model with trees uses ONNX Runtime for few rows", async () => {
    const { session, states, request } = await open();
    await session.run(request(100));
    await session.expect(1000, 0.001);
    await session.settle();

    expect((await session.run(request(100))).byTrees).toBe(false);
    expect(states).toEqual([]);
    await session.close();
  });

  test("a session of a model with trees uses ONNX Runtime if opening the model took longer than its rows will take", async () => {
    const { session, states, request } = await open({ openedMs: 10_000 });
    await session.run(request(64));
    await session.expect(1e6, 0.01);
    expect(states).toEqual([]);

    await session.expect(1e6, 0.1);
    expect(states).toEqual([{ kind: "compiled" }]);
    await session.close();
  });

  test("a session compiles trees if many rows are expected, and compares them with ONNX Runtime first", async () => {
    let calls = 0;
    const tamper = (whole: OnnxSession): OnnxSession => ({
      ...whole,
      async run(asked) {
        calls += 1;
        return await whole.run(asked);
      },
    });
    const { session, base, states, request } = await open({ tamper });
    await session.run(request(64));
    await session.expect(1e6, 0.01);
    calls = 0;

    const done = [];
    for (const rows of [64, 65, 300, 128, 200]) {
      done.push(await session.run(request(rows)));
    }

    expect(calls).toBe(4);
    expect(done.map(({ byTrees }) => byTrees)).toEqual([true, true, true, true, true]);
    expect(done[4]?.outputs).toEqual(await base.run(request(200)));
    expect(states).toEqual([{ kind: "compiled" }]);
    await session.close();
  });

  test("a session compiles trees once ONNX Runtime has taken long, if the number of rows is unknown", async () => {
    const { session, states, request } = await open();
    for (let batch = 0; batch < 100; batch += 1) {
      await session.run(request(16)); // a millisecond each
      await session.settle();
    }

    expect(states).toEqual([{ kind: "compiled" }]);
    expect((await session.run(request(16))).byTrees).toBe(true);
    await session.close();
  });

  test("a session of a model with trees uses ONNX Runtime for single rows, which is as fast", async () => {
    const { session, request } = await open();
    await session.run(request(64));
    await session.expect(1e6, 0.01);

    expect((await session.run(request(1))).byTrees).toBe(false);
    await session.close();
  });

  test("a session of a model with trees passes rows of a wrong width to ONNX Runtime, which refuses them", async () => {
    const { session, request } = await open();
    await session.run(request(64));
    await session.expect(1e6, 0.01);
    const narrow = { name: "input", dtype: "float32", dims: [64, 2], data: new Float32Array(128) } as const;

    await expect(session.run({ inputs: [narrow], outputs })).rejects.toThrow(/input/);
    await session.close();
  });

  test("a session of a model with trees does not use trees that differ on rows made of their thresholds, and says in which row", async () => {
    const { session, states, request } = await open({ tamper: wrong(1e-5) });
    await session.run(request(64));
    await session.expect(1e6, 0.01);

    expect((await session.run(request(64))).byTrees).toBe(false);
    expect(states).toMatchObject([
      { kind: "mismatch", reason: expect.stringMatching(/thresholds.* row 0: 0\.\d+, not/) },
    ]);
    await session.close();
  });

  test("a session of a model with trees stops using them where they differ on a batch, which ONNX Runtime scores", async () => {
    let isWrong = false;
    const tamper = (base: OnnxSession): OnnxSession => ({
      ...base,
      run: (request) => (isWrong ? wrong(0.5)(base) : base).run(request),
    });
    const { session, base, states, request } = await open({ tamper });
    await session.run(request(64));
    await session.expect(1e6, 0.01);
    isWrong = true;

    const done = await session.run(request(64));

    expect(done).toMatchObject({ byTrees: false, outputs: await base.run(request(64)) });
    expect(states).toMatchObject([{ kind: "compiled" }, { kind: "mismatch" }]);
    await session.close();
  });

  test("compiles nothing of a file that was replaced since", async () => {
    const { session, states, request } = await open({ bytes: model.subarray(0, 100) });
    await session.run(request(64));
    await session.expect(1e6, 0.01);

    expect(states).toEqual([{ kind: "onnxruntime", reason: "the model's file was replaced" }]);
    await session.close();
  });
});

const ulp = 2n ** 37n; // of a float32 from 2^60 on
const ofLongs = (...values: bigint[]): number[] => [
  ...(floatsOf({ dtype: "int64", dims: [1, values.length], data: BigInt64Array.from(values) }, false) ?? []),
];

test("whole numbers are rounded once to the nearest float32, ties to even", () => {
  const base = 2n ** 60n;
  const up = Number(base + ulp);
  expect(ofLongs(base + ulp / 2n, base + ulp / 2n + 1n, base + ulp / 2n - 1n)).toEqual([2 ** 60, up, 2 ** 60]);
  expect(ofLongs(-base - ulp / 2n, -base - ulp / 2n - 1n, -base - ulp / 2n + 1n)).toEqual([
    -(2 ** 60),
    -up,
    -(2 ** 60),
  ]);
  expect(ofLongs(base + ulp + ulp / 2n, base + ulp + ulp / 2n - 1n)).toEqual([Number(base + 2n * ulp), up]);
  expect(ofLongs(0n, -1n, 2n ** 24n + 1n, 2n ** 53n + 1n, 2n ** 63n - 1n, -(2n ** 63n))).toEqual([
    0,
    -1,
    2 ** 24,
    2 ** 53,
    2 ** 63,
    -(2 ** 63),
  ]);
  expect(floatsOf({ dtype: "int32", dims: [1, 2], data: Int32Array.of(2 ** 24 + 3, -7) }, false)).toEqual(
    Float32Array.of(2 ** 24 + 4, -7),
  );
});

test("rows of another type or length are not scored", () => {
  expect(floatsOf({ dtype: "int32", dims: [1, 1], data: Int32Array.of(1) }, true)).toBeUndefined();
  expect(floatsOf({ dtype: "float32", dims: [2, 1], data: Float32Array.of(1) }, false)).toBeUndefined();
  expect(floatsOf({ dtype: "uint8", dims: [1, 1], data: Uint8Array.of(1) }, false)).toBeUndefined();
});
