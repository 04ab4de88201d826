import { describe, expect } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import type { Plan } from "#src/run/plan/plan.js";
import { parseRunProfile } from "#src/run/lifecycle/profile-text.js";
import { supersededBy } from "#src/run/lifecycle/lifecycle.js";
import { pinOf, readersView, runsOfSeries } from "#src/run/lifecycle/published-run.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";
import type { Sink, StoredPlan } from "#src/targets/target.js";
import { pruneAt } from "./prune-contract.js";
import { type SinkWorld, testsOf } from "./sink-contract.js";
import type { BegunRun } from "./sink-drive.js";
import { begun, planFor } from "./sinks.js";
import { commitProfiled } from "./staging-contract.js";
import { decisionOf, stagedPlan, verdictOf } from "./staged-plans.js";

const series = { job: "job", params: {}, dateParam: undefined };

const nextOf = (plan: Plan): Plan => ({ ...plan, runId: numberedRunId(plan.runId, 2) });

async function publish(sink: Sink, plan: Plan): Promise<void> {
  const { stored, run } = await begun(sink, plan);
  await commitProfiled(run, stored);
  await run.finish();
}

async function heldRun(sink: Sink): Promise<{ stored: StoredPlan; run: BegunRun }> {
  const { stored, run } = await begun(sink, { ...stagedPlan(sink.planTarget), job: "job" });
  await commitProfiled(run, stored);
  await run.create(verdictDocument, verdictOf("hold"));
  return { stored, run };
}

/** The contract of every sink about what later runs find of earlier ones, and take the place of. */
export function findingContractOf(name: string, worldOf: () => Promise<SinkWorld>): void {
  const test = testsOf(worldOf);
  describe(name, () => {
    test("the last published run is what later runs find and readers have, until it is pruned", async (world) => {
      const plan = { ...planFor(world.sink.planTarget), job: "job" };
      const found = async (): Promise<unknown[]> => [
        runsOfSeries(await world.sink.published("here"), series).map(({ runId }) => runId),
        readersView(await world.sink.published("here"), plan).run?.runId,
      ];
      await begun(world.sink, plan);
      expect(await found()).toEqual([[], undefined]);
      await publish(world.sink, plan);
      expect(await found()).toEqual([[plan.runId], plan.runId]);
      await begun(world.sink, nextOf(plan));
      expect(await found()).toEqual([[plan.runId], plan.runId]);
      await publish(world.sink, nextOf(plan));
      expect(await found()).toEqual([[nextOf(plan).runId], nextOf(plan).runId]);

      const { kind } = await pruneAt(world.sink, nextOf(plan), { latest: nextOf(plan).runId });
      // A table that is replaced keeps the run whose rows it has.
      expect(kind).toBe(
        world.sink.planTarget.kind === "postgres" && world.sink.planTarget.mode === "replace" ? "retained" : "removed",
      );
      const left = runsOfSeries(await world.sink.published("here"), series);
      expect(left.length).toBe(kind === "removed" ? 0 : 1);
    });

    test("a published run is pinned with its profile, and another profile is none", async (world) => {
      const plan = { ...planFor(world.sink.planTarget), job: "job" };
      await publish(world.sink, plan);
      const [run] = runsOfSeries(await world.sink.published("here"), series);
      expect(run).toMatchObject({ runId: plan.runId, date: "", modelSha256: plan.model.sha256 });
      const pin = pinOf(run ?? expect.fail("no run is found"));
      expect(parseRunProfile(await world.sink.readProfile(pin))).toMatchObject({ runId: plan.runId, rows: 25 });
      await expect(world.sink.readProfile({ ...pin, sha256: "0".repeat(64) })).rejects.toMatchObject({ exitCode: 75 });
    });

    test("a run that a person approves as not normal is found as such, with who decided on it", async (world) => {
      const { run } = await heldRun(world.sink);
      await run.create(decisionDocument, { ...decisionOf("approved"), asBaseline: false });
      await run.finish();
      const [found] = await world.sink.published("here");
      expect(found?.isNormal).toBe(false);
      expect(await found?.decidedBy()).toBe(decisionOf("approved").by);
    });

    test("the plan of each run is found by its id", async (world) => {
      const plan = planFor(world.sink.planTarget);
      expect(await world.sink.find(plan.runId, 1)).toBeUndefined();
      const { stored } = await begun(world.sink, plan);
      await begun(world.sink, nextOf(plan));
      expect(await world.sink.find(plan.runId, 1)).toEqual(stored);
      expect((await world.sink.find(plan.runId, 2))?.plan.runId).toBe(nextOf(plan).runId);
    });

    test("a plan takes the place of a held run together with the decision on it", async (world) => {
      const { stored } = await heldRun(world.sink);
      const { runId } = stored.plan;
      const next = nextOf(stored.plan);
      const decision = supersededBy(next.runId, { by: "ann", at: "2026-11-23T04:05:06.789Z" });
      for (const _ of [1, 2]) {
        expect((await world.sink.create(next, { runId, decision })).plan.runId).toBe(next.runId);
      }
      expect((await world.sink.find(runId))?.plan.runId).toBe(next.runId);
      expect(await world.sink.ledger.read(runId, decisionDocument)).toEqual(decision);
    });

    test("no plan takes the place of a run that is approved", async (world) => {
      const { stored, run } = await heldRun(world.sink);
      const { runId } = stored.plan;
      await run.create(decisionDocument, decisionOf("approved"));
      const next = nextOf(stored.plan);
      const decision = supersededBy(next.runId, { by: "bob", at: "2026-11-23T04:05:06.789Z" });
      expect(await world.sink.create(next, { runId, decision })).toEqual(stored);
      expect((await world.sink.find(runId))?.plan.runId).toBe(runId);
      expect(await world.sink.ledger.read(runId, decisionDocument)).toMatchObject({ kind: "approved" });
    });
  });
}
