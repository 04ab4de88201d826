import { expect, test } from "vitest";
import type { Plan, RunId } from "#src/plan/plan.js";
import { type CopyRequest, eraseRun, type Source } from "#src/run/erasing/copy-run.js";
import type { JobContext } from "#src/scoring/context.js";
import { planOf } from "../../support/plans.js";

const first = planOf([10], 5);
const latest = `${first.runId}-r2` as RunId;

/** Erases a key of the first run, while `committed` says which spans the erasure of another process has by now. */
async function erasedBeside(
  other: Partial<Plan>,
  committed: readonly number[],
): Promise<{ readonly planned: RunId[] }> {
  const planned: RunId[] = [];
  const stored = { plan: { ...first, ...other, runId: latest }, planId: "b" };
  const sink = {
    find: () => Promise.resolve(stored),
    open: () => Promise.resolve({ committed: Uint8Array.from(committed) }),
    create: ({ runId }: Plan) => {
      planned.push(runId);
      return Promise.reject(new Error("enough"));
    },
  };
  const source = {
    stored: { plan: first, planId: "a" },
    run: { spanFiles: () => [{ path: "part", rejects: [] }] },
    latest,
  };
  const finder = {
    rowsIn: () => Promise.resolve([3]),
    rejected: () => Promise.resolve([]),
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const request = { keys: { columns: [] }, openFinder: () => Promise.resolve(finder), dryRun: false };
  const context = { sink, actingUser: () => "ada", dateMs: () => 0, writer: "w" };
  const erasing = eraseRun(
    context as unknown as JobContext,
    source as unknown as Source,
    request as unknown as CopyRequest,
  );
  await expect(erasing).rejects.toThrow(/is replacing it|enough/);
  return { planned };
}

const erasure = { of: first.runId, at: "2026-11-23T04:00:00.000Z", by: "ada", writer: "other" };
const next = `${first.runId}-r3`;

test("an erasure plans no run while the erasure of another process, which has all of its spans, may replace the source", async () => {
  expect(await erasedBeside({ erasure }, [1, 1])).toEqual({ planned: [] });
  expect(await erasedBeside({ erasure }, [1, 0])).toEqual({ planned: [next] });
});

test("an erasure plans a run over a discarded run, which has all of its spans and is never published", async () => {
  expect(await erasedBeside({}, [1, 1])).toEqual({ planned: [next] });
});
