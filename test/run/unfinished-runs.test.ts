import { expect, test } from "vitest";
import type { Plan } from "#src/run/plan/plan.js";
import { unfinishedRuns } from "#src/run/hints.js";
import type { JobContext } from "#src/flow/context.js";

/** A job with unfinished runs of these params, in the order of a sink. */
function jobWith(dateParam: string | null, ...runs: Record<string, string>[]): JobContext {
  const plans = runs.map(
    (params, index) =>
      ({ runId: `daily-${index}`, params, dateParam, checks: null, target: { kind: "parquet" } }) as unknown as Plan,
  );
  return {
    spec: { name: "daily", params: {} },
    sha256: () => "0".repeat(64),
    command: () => "infer-batch run job.yaml",
    sink: {
      history: () =>
        Promise.resolve(plans.map((plan) => ({ plan, place: "scores.a", status: "unfinished" })).toReversed()),
    },
  } as unknown as JobContext;
}

test.each([
  ["dates", "ds", [{ ds: "2026-11-20" }, { ds: "2026-11-22" }, { ds: "2026-11-21" }], [0, 2, 1]],
  ["no dates", null, [{ month: "2026-11" }, { month: "2026-10" }, { month: "2026-09" }], [0, 1, 2]],
  [
    "one date",
    "ds",
    [
      { ds: "2026-11-20", shop: "b" },
      { ds: "2026-11-20", shop: "a" },
    ],
    [0, 1],
  ],
] as const)(
  "unfinished runs are in the order of their dates, then in that of the sink: %s",
  async (_, param, runs, order) => {
    const found = await unfinishedRuns(jobWith(param, ...runs));
    expect(found.map(({ runId }) => runId)).toEqual(order.map((index) => `daily-${index}`));
  },
);
