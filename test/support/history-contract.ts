import { describe, expect } from "vitest";
import { passedDocument, storePassed } from "#src/run/chain.js";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { latestFirst, type RecordedRun, type RecordedSpending } from "#src/run/lifecycle/recorded-run.js";
import type { Sink } from "#src/targets/target.js";
import { JobError } from "#src/base/errors.js";
import { type SinkWorld, testsOf } from "./sink-contract.js";
import { commitProfiled } from "./staging-contract.js";
import { begun, commitSpans, planFor } from "./sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "./staged-plans.js";
import { toldAt } from "./told.js";
import { decisionDocument, noteDocument, verdictDocument } from "#src/stores/ledger.js";

const everySpan = (): boolean => true;

async function runsAt(sink: Sink, last = 9): Promise<readonly RecordedRun[]> {
  return latestFirst(await sink.history({ job: "job", last }));
}

async function onlyRun(sink: Sink): Promise<RecordedRun | undefined> {
  const runs = await runsAt(sink);
  expect(runs).toHaveLength(1);
  return runs[0];
}

const ofJob = (plan: Plan): Plan => ({ ...plan, job: "job" });
const ofPrompt = (plan: Plan): Plan => ({
  ...ofJob(plan),
  request: { ...plan.request, prompt: { user: "{{id}}", sampling: {} } },
});
const spendingOf = (answers: number): RecordedSpending => ({
  answers,
  prompt_tokens: answers * 10,
  cached_tokens: 0,
  completion_tokens: answers,
  cost: null,
});
const badRow = (text: string): JobError => new JobError("BAD_ROW", text);

export function historyContractOf(name: string, worldOf: () => Promise<SinkWorld>): void {
  const test = testsOf(worldOf);
  describe(name, () => {
    test("a run is found by its id, though later runs took its place", async (world) => {
      const { runId } = planFor(world.sink.planTarget);
      for (const number of [1, 2, 3]) {
        const { stored, run } = await begun(
          world.sink,
          ofJob({ ...planFor(world.sink.planTarget), runId: numberedRunId(runId, number) }),
        );
        await commitSpans(run, stored, everySpan);
        await run.finish();
      }
      const [first, ...others] = await world.sink.history({ job: "job", runId, last: 1 });
      expect([first?.runId, others]).toEqual([runId, []]);
      const { ledger } = world.sink;
      await storePassed(ledger, runId, { from: "1", to: "2" });
      await storePassed(ledger, runId, { from: "1", to: "3" });
      expect(await ledger.read(runId, passedDocument), "the last of them").toEqual({ from: "1", to: "3" });
    });

    test("a target without a run has no history", async (world) => {
      expect(await runsAt(world.sink)).toEqual([]);
    });

    test("a note on a run without a plan is made once, and removed, also if it is gone", async ({ sink }) => {
      const runId = "chain-0123456789ab" as RunId;
      expect([await toldAt(sink, runId).add("day", "a"), await toldAt(sink, runId).add("day", "b")]).toEqual([
        true,
        false,
      ]);
      await sink.ledger.remove(runId, noteDocument("day"));
      await sink.ledger.remove(runId, noteDocument("day"));
      expect(await toldAt(sink, runId).timeOf("day")).toBeUndefined();
    });

    test("a run is unfinished, then failed with its last error, then unfinished while a later attempt gets further, then published", async (world) => {
      const { stored, run } = await begun(world.sink, ofJob(planFor(world.sink.planTarget)));
      await commitSpans(run, stored, (index) => index === 0);
      expect(await onlyRun(world.sink)).toMatchObject({ status: "unfinished", spansCommitted: 1, failure: undefined });
      const told = toldAt(world.sink, stored.plan.runId);
      await told.failed(badRow("row 3 is bad"), 1);
      await told.failed(badRow(`row 4 is \u0000${"x".repeat(5000)}`), 1);
      const failed = await onlyRun(world.sink);
      expect(failed).toMatchObject({ status: "failed", failure: { code: "BAD_ROW", spansCommitted: 1 } });
      expect(failed?.failure?.message).toMatch(/^row 4 is .x+…$/s);
      expect(failed?.failure?.message).toHaveLength(1000);
      expect(await told.lastFailure()).toEqual(failed?.failure);
      await commitSpans(run, stored, (index) => index === 1);
      expect(await onlyRun(world.sink)).toMatchObject({ status: "unfinished", failure: { code: "BAD_ROW" } });
      await commitSpans(run, stored, (index) => index === 2);
      await run.finish();
      expect(await onlyRun(world.sink)).toMatchObject({
        status: "published",
        rows: 25,
        rejected: 0,
        failure: undefined,
      });
    });

    test("an attempt that has begun after a failure is at work on the run until an error of it is recorded", async () => {
      await using world = await worldOf();
      await using first = await world.open();
      const { stored } = await begun(first, ofJob(planFor(first.planTarget)));
      const told = toldAt(first, stored.plan.runId, "w1");
      await told.begun();
      expect(await told.isWorkedOn()).toBe(false);
      await told.failed(badRow("row 3 is bad"));
      expect(await told.isWorkedOn()).toBe(false);
      await using second = await world.open();
      const again = toldAt(second, stored.plan.runId, "w2");
      await again.begun();
      expect(await told.isWorkedOn()).toBe(true);
      await again.failed(badRow("row 3 is bad"));
      expect(await told.isWorkedOn()).toBe(false);
    });

    test("one attempt of a run is the first to note that the run is late, and no error is recorded with it", async (world) => {
      const { stored } = await begun(world.sink, ofJob(planFor(world.sink.planTarget)));
      await using other = await world.open();
      const told = toldAt(world.sink, stored.plan.runId, "w1");
      const again = toldAt(other, stored.plan.runId, "w2");
      const late = "the run will miss 06:00";
      const found = await Promise.all([told.add("late", late), again.add("late", late)]);
      expect(found.filter((isFirst) => isFirst)).toHaveLength(1);
      expect(await told.add("late", "the run missed 06:00")).toBe(false);
      const times = [await again.timeOf("late"), await again.timeOf("told")];
      expect(times).toEqual([expect.any(String), undefined]);
      expect(await again.add("told", "it is held")).toBe(true);
      expect(await told.timeOf("told")).toBeDefined();
      expect([await onlyRun(world.sink), await again.lastFailure()]).toMatchObject([{ failure: undefined }, undefined]);
    });

    test("a staged run is held, approved by a person, and published in its history", async (world) => {
      const { stored, run } = await begun(
        world.sink,
        ofJob(stagedPlan(world.sink.planTarget, { params: { ds: "2026-11-23" } })),
      );
      await commitSpans(run, stored, everySpan);
      await run.create(verdictDocument, verdictOf("hold"));
      expect(await onlyRun(world.sink)).toMatchObject({ status: "held", at: "2026-11-23T04:05:06.789Z" });
      await run.create(decisionDocument, decisionOf("approved"));
      expect(await onlyRun(world.sink)).toMatchObject({ status: "approved", decision: { by: "ana" } });
      await run.finish();
      expect(await onlyRun(world.sink)).toMatchObject({ status: "published", rows: 25, decision: { by: "ana" } });
    });

    test("a discarded run and the run after it are both in the history, the later one first", async (world) => {
      const plan = ofJob(stagedPlan(world.sink.planTarget));
      const { stored, run } = await begun(world.sink, plan);
      await commitSpans(run, stored, everySpan);
      await run.create(verdictDocument, verdictOf("hold"));
      await run.create(decisionDocument, decisionOf("discarded"));
      await begun(world.sink, { ...plan, runId: numberedRunId(plan.runId, 2) });
      expect((await runsAt(world.sink)).map(({ runId, status }) => [runId, status])).toEqual([
        [numberedRunId(plan.runId, 2), "unfinished"],
        [plan.runId, "discarded"],
      ]);
      expect((await runsAt(world.sink, 1)).map(({ runId }) => runId)).toEqual([numberedRunId(plan.runId, 2)]);
      const first = await world.sink.history({ job: "job", runId: plan.runId, last: 1 });
      expect(first.map(({ runId, status }) => [runId, status])).toEqual([[plan.runId, "discarded"]]);
    });

    test("a run is abandoned when a later one was opened before it was complete", async (world) => {
      const plan = ofJob(planFor(world.sink.planTarget));
      await begun(world.sink, plan);
      await toldAt(world.sink, plan.runId).failed(badRow("row 3 is bad"));
      const next = await begun(world.sink, { ...plan, runId: numberedRunId(plan.runId, 2) });
      await commitSpans(next.run, next.stored, everySpan);
      await next.run.finish();
      expect((await runsAt(world.sink)).map(({ status }) => status)).toEqual(["published", "abandoned"]);
    });

    test("a published run stays in the history as such when a later one has replaced it", async (world) => {
      const plan = ofJob(planFor(world.sink.planTarget));
      const second = { ...plan, runId: numberedRunId(plan.runId, 2) };
      for (const one of [plan, second]) {
        const { stored, run } = await begun(world.sink, one);
        await commitProfiled(run, stored);
        await run.finish();
      }
      expect((await runsAt(world.sink)).map(({ status, rows }) => [status, rows])).toEqual([
        ["published", 25],
        ["published", 25],
      ]);
    });

    test("what a run has paid for stays in the history when a later run replaces it, and the record with the most answers counts", async (world) => {
      const plan = ofPrompt(planFor(world.sink.planTarget));
      const { stored, run } = await begun(world.sink, plan);
      expect((await onlyRun(world.sink))?.spending).toBeUndefined();
      await toldAt(world.sink, stored.plan.runId).spent(spendingOf(20));
      await toldAt(world.sink, stored.plan.runId).spent(spendingOf(7));
      expect(await onlyRun(world.sink)).toMatchObject({ status: "unfinished", spending: spendingOf(20) });
      await commitProfiled(run, stored);
      await run.finish();
      const second = await begun(world.sink, { ...plan, runId: numberedRunId(plan.runId, 2) });
      await toldAt(world.sink, second.stored.plan.runId).spent(spendingOf(3));
      await commitProfiled(second.run, second.stored);
      await second.run.finish({ spending: { run: spendingOf(4) } });
      expect((await runsAt(world.sink)).map(({ status, spending }) => [status, spending])).toEqual([
        ["published", spendingOf(4)],
        ["published", spendingOf(20)],
      ]);
    });

    test("what a run has paid for is in the history of a run that a person approves or discards", async (world) => {
      for (const [number, kind] of ["discarded", "approved"].entries()) {
        const plan = ofPrompt(stagedPlan(world.sink.planTarget, { params: { ds: `2026-11-2${number}` } }));
        const { stored, run } = await begun(world.sink, { ...plan, runId: numberedRunId(plan.runId, number + 1) });
        await commitSpans(run, stored, everySpan);
        await toldAt(world.sink, stored.plan.runId).spent(spendingOf(9));
        await run.create(verdictDocument, verdictOf("hold"));
        await run.create(decisionDocument, decisionOf(kind as "approved"));
        await run.finish();
      }
      expect((await runsAt(world.sink)).map(({ status, spending }) => [status, spending])).toEqual([
        ["published", spendingOf(9)],
        ["discarded", spendingOf(9)],
      ]);
    });

    test("runs of other jobs are not in the history of a job", async (world) => {
      await begun(world.sink, { ...planFor(world.sink.planTarget), job: "job-of-others" });
      expect(await runsAt(world.sink)).toEqual([]);
    });
  });
}
