import * as fc from "fast-check";
import { expect, test } from "vitest";
import { type BatchSizer, fixedSize, measuringSize, startingSize, timeRow } from "#src/flow/batch-size.js";
import type { Engine, LocalEngine } from "#src/models/engine.js";
import { emptyContract } from "../support/batches.js";
import { refusalOf, smallJob } from "../support/faulty.js";
import { scratch } from "../support/job.js";
import type { SmallModel } from "../support/onnx.js";
import { scoreHere } from "../support/score.js";

interface Settling {
  readonly settled: number | undefined;
  readonly sizes: readonly number[];
}

function scored(
  msOf: (rows: number, batch: number) => number,
  { start = 4096, limit = 16_384, batches = 500 } = {},
): Settling {
  let settled: number | undefined;
  const sizes: number[] = [];
  const sizer: BatchSizer = measuringSize({
    start,
    limit,
    onSettled: (rows) => {
      expect(settled).toBeUndefined();
      settled = rows;
    },
  });
  for (let batch = 0; batch < batches; batch += 1) {
    sizes.push(sizer.rows);
    sizer.took(sizer.rows, msOf(sizer.rows, batch));
  }
  expect(sizer.rows).toBe(settled);
  return { settled, sizes };
}

const linear = (rows: number): number => rows / 100_000; // the same rows per millisecond for each size
/** As a model is whose layers fall out of the cache. */
const cached = (rows: number): number => (rows / 70) * (rows > 256 ? 1 + Math.log2(rows / 256) * 0.05 : 1);
const peak = (rows: number): number => rows * (1 + Math.abs(Math.log2(rows / 4096)) * 0.2);
const noisy = (rows: number, batch: number): number => cached(rows) * (batch % 3 === 0 ? 1 : 1 + (batch % 7));
const slow = (rows: number): number => 300 + rows / 100;

test.each([
  ["grows as long as larger batches take less time for each row", linear, 16_384],
  ["shrinks as long as smaller batches take less time for each row", cached, 256],
  ["stays if neither neighbour is better", peak, 4096],
  ["ignores delayed batches", noisy, 256],
] as const)("a batch size of auto %s", (_, msOf, rows) => {
  expect(scored(msOf).settled).toBe(rows);
});

test("a batch size of auto never leaves a stop waiting for a long batch", () => {
  expect(Math.max(...scored(slow, { start: 64 }).sizes)).toBe(64);
});

test("a batch size of auto is within its limit, and near the best of all sizes", () => {
  const shape = fc.record({
    call: fc.double({ min: 0.01, max: 5, noNaN: true }),
    row: fc.double({ min: 1e-5, max: 0.05, noNaN: true }),
    cache: fc.nat(14).map((power) => 2 ** power),
    penalty: fc.double({ min: 0, max: 0.3, noNaN: true }),
  });
  fc.assert(
    fc.property(shape, fc.integer({ min: 1, max: 16_384 }), ({ call, row, cache, penalty }, limit) => {
      const msOf = (rows: number): number =>
        call + rows * row * (rows > cache ? 1 + Math.log2(rows / cache) * penalty : 1);
      const start = startingSize(msOf(16) / 16, limit);
      const { settled, sizes } = scored(msOf, { start, limit });
      expect(Math.max(...sizes)).toBeLessThanOrEqual(limit);
      expect(sizes.every((rows) => Number.isInteger(rows) && rows > 0)).toBe(true);
      const cost = (rows: number): number => (msOf(rows) + 0.05) / rows;
      const ladder = [...new Set([...sizes, start])];
      expect(cost(settled ?? 0)).toBeLessThanOrEqual(Math.min(...ladder.map(cost)) * 1.02);
    }),
  );
});

test("a batch size of auto is measured on full batches of one size only", () => {
  let settled = 0;
  const sizer = measuringSize({ start: 16, limit: 16, onSettled: (rows) => (settled = rows) });
  for (let batch = 0; batch < 20; batch += 1) {
    sizer.took(15, 0.001); // the ends of spans
  }
  expect(settled).toBe(0);
});

test("a batch size of auto begins small for a slow model", () => {
  expect(startingSize(10, 16_384)).toBe(16); // 160 ms
  expect(startingSize(0.1, 16_384)).toBe(256);
  expect(startingSize(0, 16_384)).toBe(4096);
  expect(startingSize(0.1, 100)).toBe(100);
});

test("a given batch size does not change", () => {
  const sizer = fixedSize(7);
  sizer.took(7, 100);
  expect(sizer.rows).toBe(7);
});

const largest: SmallModel = {
  inputs: [{ name: "x", dtype: "float32", shape: ["N", "S"] }],
  outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
  nodes: [{ op: "ReduceMax", from: ["x"], to: "score", attributes: { axes: [1], keepdims: 1 } }],
};

test("more rows at once than a thread can be sent are refused", async () => {
  const { spec } = await smallJob(scratch.path, {
    model: largest,
    select: "SELECT i AS id, [1.0, 2.0] AS tokens FROM range(3) t(i)",
    modelSpec: { inputs: { x: { column: "tokens", pad: { to: 65_536 } } } },
    engine: { batch_size: 65_536 },
  });
  expect(await refusalOf(scoreHere(spec))).toMatch(
    /^64 SPEC_INVALID\nreading .*: engine\.batch_size: 65536 rows of 262145 bytes are more than 1 GiB\nhint: give the model 4095 rows/,
  );
});

/** An engine of two sessions whose calls take these milliseconds, one after another; undefined: it refuses. */
function engineTaking(ms: readonly (number | undefined)[]): Engine & { readonly calls: number } {
  let calls = 0;
  return {
    signature: { inputs: [], outputs: [] },
    provider: "cpu",
    concurrency: 2,
    local: {} as LocalEngine,
    get calls() {
      return calls;
    },
    run({ inputs }) {
      const taken = ms[calls % ms.length];
      calls += 1;
      return Promise.resolve(
        taken === undefined
          ? { kind: "failed", message: "no", inputs }
          : { kind: "done", outputs: [], ms: taken, inputs },
      );
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

test("the time of a row is that of the fastest call, because first calls are slow and others may be delayed", async () => {
  expect(await timeRow(engineTaking([90, 80, 4, 1.6, 70, 2]), emptyContract)).toBe(0.1);
});

test("the time of a row is measured only once if a call takes long", async () => {
  const engine = engineTaking([160]);
  expect(await timeRow(engine, emptyContract)).toBe(10);
  expect(engine.calls).toBe(4);
});

test("the time of a row is unknown for a model that refuses zeros", async () => {
  expect(await timeRow(engineTaking([undefined]), emptyContract)).toBe(0);
});

test("the time of a row counts all rows of a fixed batch", async () => {
  expect(await timeRow(engineTaking([4]), { ...emptyContract, fixedBatchRows: 2 })).toBe(2);
});
