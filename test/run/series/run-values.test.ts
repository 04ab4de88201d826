import { once } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { type ValueEnd, orderOf, runValues, worstOf } from "#src/run/series/backfill.js";
import type { ExitCode } from "#src/base/errors.js";
import { describe, expect, test } from "vitest";

const end = (status: ValueEnd["status"], exitCode: ExitCode = 0): ValueEnd => ({ status, exitCode });
const never = new AbortController().signal;
const values = [1, 2, 3, 4, 5, 6];

type OrderedSpec = Parameters<typeof orderOf>[0];
const onCpu = { engine: { providers: ["cpu"] } };
const intoTable = (mode: string): OrderedSpec =>
  ({ ...onCpu, output: { postgres: { mode } } }) as unknown as OrderedSpec;

const usual = { parallel: 4, stopOnFailure: false, allowOlder: false };

test.each(["upsert", "replace"])(
  "runs into a table with mode %s go one at a time, and end with the first that is not published",
  (mode) => {
    const order = orderOf(intoTable(mode), usual);
    expect(order).toMatchObject({ parallel: 1, why: `mode ${mode}: later dates overwrite earlier ones` });
    const stopping = ["complete", "failed", "held", "discarded", "no_input"] as const;
    expect(stopping.filter((status) => order.stopsAfter(end(status)))).toEqual(["failed", "held"]);
    expect(orderOf(intoTable(mode), { ...usual, allowOlder: true }).stopsAfter(end("failed", 65))).toBe(false);
  },
);

test("runs with checks go one at a time, and go on after one that is held", () => {
  const order = orderOf({ ...onCpu, output: {}, checks: {} } as unknown as OrderedSpec, usual);
  expect([order.parallel, order.stopsAfter(end("held", 67))]).toEqual([1, false]);
});

test.each([[["webgpu", "cpu"]], ["auto"]])(
  "runs on %j go one at a time, because two sessions of webgpu end the process",
  (providers) => {
    const order = orderOf({ engine: { providers }, output: {} } as unknown as OrderedSpec, usual);
    expect(order).toMatchObject({ parallel: 1, why: "a process can use webgpu for one run at a time" });
  },
);

test("runs into files or append go in parallel, and stop after a failure only with --stop-on-failure", () => {
  expect(orderOf(intoTable("append"), usual)).toMatchObject({ parallel: 4, why: undefined });
  const stopping = orderOf({ ...onCpu, output: {} } as unknown as OrderedSpec, { ...usual, stopOnFailure: true });
  expect([stopping.stopsAfter(end("failed", 75)), stopping.stopsAfter(end("no_input", 75))]).toEqual([true, false]);
});

describe("carrying out several values", () => {
  test("runs start in order, at most so many at once, and their ends are in the order of the values", async () => {
    const started: number[] = [];
    let now = 0;
    let most = 0;
    const ends = await runValues(values, { parallel: 3, stopsAfter: () => false, signal: never }, async (value) => {
      started.push(value);
      most = Math.max(most, (now += 1));
      await sleep(value % 2 === 0 ? 1 : 5);
      now -= 1;
      return { ...end("complete"), value };
    });
    expect([started, most, ends.map((one) => one?.value)]).toEqual([values, 3, values]);
  });

  test("no run is started after an end that stops the others; those under way end", async () => {
    const failed = new AbortController();
    const ends = await runValues(
      values,
      { parallel: 2, stopsAfter: (one) => one.exitCode !== 0, signal: never },
      async (value) => {
        if (value === 2) {
          await once(failed.signal, "abort");
          await sleep(0); // until that end is known
        } else if (value === 3) {
          failed.abort();
          return end("failed", 65);
        }
        return end("complete");
      },
    );
    expect(ends.map((one) => one?.status)).toEqual(["complete", "complete", "failed", undefined, undefined, undefined]);
  });

  test("no run is started after the signal is aborted", async () => {
    const stop = new AbortController();
    const ends = await runValues(values, { parallel: 1, stopsAfter: () => false, signal: stop.signal }, (value) => {
      if (value === 2) {
        stop.abort();
      }
      return Promise.resolve(end("complete"));
    });
    expect(ends.filter((one) => one !== undefined)).toHaveLength(2);
  });
});

test("the worst end is a bug, then 64, 66, 65, 67 and 75", () => {
  const order: ExitCode[] = [0, 75, 67, 65, 66, 64, 1];
  for (const [index, exitCode] of order.entries()) {
    const worst = worstOf(order.slice(0, index + 1).map((code) => end("failed", code)));
    expect(worst?.exitCode).toBe(exitCode === 0 ? undefined : exitCode);
  }
});
