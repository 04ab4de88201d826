import { describe, expect, test } from "vitest";
import type { Engine, LocalEngine } from "#src/models/engine.js";
import { timeRow } from "#src/flow/batch-size.js";
import { emptyContract } from "../support/batches.js";

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

describe("the time of a row", () => {
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
});
