import { expect, test } from "vitest";
import { openJob } from "#src/job/open.js";
import { approveRun } from "#src/run/decide.js";
import { runHistory, rejectedRows, runState } from "#src/run/status.js";
import { runJob } from "#src/run/run.js";
import type { OpenedJob } from "#src/flow/opened-job.js";
import { scratch, writeSpec } from "../support/job.js";
import { memoryTarget } from "../support/memory-target.js";
import { fewRows } from "../support/nights.js";
import { collect } from "../support/sinks.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");

const stateOf = ({ job, sink, reporter }: OpenedJob) => runState(job, sink, reporter.log);

async function jobIntoMemory(overrides: object) {
  const target = memoryTarget();
  const rewrite = (changed: object) => writeSpec(scratch.path, fixture, { commit_rows: 200, ...overrides, ...changed });
  const spec = await rewrite({});
  const attempt = async <T>(
    work: (opened: OpenedJob) => Promise<T>,
    { newRun = false, param = [] }: { newRun?: boolean; param?: string[] } = {},
  ): Promise<T> => {
    const options = { worker: { index: 0, count: 1 }, steal: false, newRun };
    await using job = await openJob(spec, { param }, { attempt: options });
    await using sink = target.open();
    return await work({ ...job, sink });
  };
  return { attempt, rewrite, rows: () => target.rows().reduce((sum, { rowCount }) => sum + rowCount, 0) };
}

test("a target of a new kind takes a run, its status, and a new run, whose rows replace those of the first", async () => {
  const { attempt, rows } = await jobIntoMemory({});
  expect(await attempt(runJob)).toMatchObject({ status: "complete", rowsScored: fixture.rows });
  expect(await attempt(runJob)).toMatchObject({ status: "already_complete" });
  expect(rows()).toBe(fixture.rows);

  const next = await attempt(runJob, { newRun: true });
  expect(next).toMatchObject({ status: "complete", runId: expect.stringMatching(/-r2$/) as string });
  expect(rows()).toBe(fixture.rows);
  expect(await attempt(stateOf)).toMatchObject({ status: "published", spansPlanned: 3, spansCommitted: 3 });
  expect(await attempt(({ job, sink }) => collect(rejectedRows(job, sink)))).toEqual([]);
});

test("checks hold a run at a target of a new kind, and a person approves it", async () => {
  const { attempt, rewrite, rows } = await jobIntoMemory({ params: { ds: "${today}" }, checks: {} });
  const [first, second] = [{ param: ["ds=2026-11-20"] }, { param: ["ds=2026-11-21"] }];
  expect(await attempt(runJob, first)).toMatchObject({ status: "complete", verdict: { outcome: "publish" } });
  await rewrite(fewRows);
  expect(await attempt(runJob, second)).toMatchObject({ status: "held" });
  expect(await attempt(stateOf, second)).toMatchObject({ status: "held" });
  expect(rows()).toBe(fixture.rows);

  const request = { by: "ann", reason: undefined, notNormal: false, skips: false, runId: undefined };
  const approved = await attempt((opened) => approveRun(opened, request), second);
  expect(approved).toMatchObject({ state: "published", rows: { output: 50 } });
  expect(rows()).toBe(fixture.rows + 50);
  const { runs } = await attempt(({ job, sink }) => runHistory(job.spec, sink, 9), second);
  expect(runs.map(({ status, rows: predicted }) => [status, predicted])).toEqual([
    ["published", 50],
    ["published", fixture.rows],
  ]);
});
