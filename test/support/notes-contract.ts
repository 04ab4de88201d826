import { describe, expect } from "vitest";
import { numberedRunId } from "#src/run/plan/identity.js";
import { type SinkWorld, testsOf } from "./sink-contract.js";
import { begun, carryOut, planFor } from "./sinks.js";
import { toldAt } from "./told.js";

/** The contract of every sink that keeps notes on a run before it is planned. */
export function notesContractOf(name: string, worldOf: () => Promise<SinkWorld>): void {
  const test = testsOf(worldOf);
  describe(name, () => {
    test("a sink keeps the first note on a run that is not planned yet, and the run has it once it is planned", async (world) => {
      await using other = await world.open();
      const plan = planFor(world.sink.planTarget);
      const [first, second] = [toldAt(world.sink, plan.runId, "w1"), toldAt(other, plan.runId, "w2")];
      expect(await second.timeOf("late")).toBeUndefined();
      const before = Date.now();
      expect([await first.add("late", "a"), await second.add("late", "b")]).toEqual([true, false]);
      const at = (await second.timeOf("late")) ?? "";
      expect(Math.abs(Date.parse(at) - before)).toBeLessThan(60_000); // the target may have another clock
      expect(await second.timeOf("late_told")).toBeUndefined();
      expect(await other.find(plan.runId), "the plan").toBeUndefined();
      const { run } = await begun(other, plan);
      expect([await second.add("late", "c"), await second.timeOf("late")]).toEqual([false, at]);
      expect(run.state.kind).toBe("unfinished");
    });

    test("notes on a run that is not planned yet leave an unfinished run before it open, for history and prune", async (world) => {
      const plan = planFor(world.sink.planTarget);
      await begun(world.sink, plan);
      const request = { job: plan.job, last: 10 };
      const before = await world.sink.history(request);
      expect(before.map(({ runId, status }) => [runId, status])).toEqual([[plan.runId, "unfinished"]]);
      expect(await toldAt(world.sink, numberedRunId(plan.runId, 2)).add("late", "a")).toBe(true);
      expect(await world.sink.history(request)).toEqual(before);
    });

    test("notes on a run that is not planned yet leave the run before it as it is", async (world) => {
      const plan = planFor(world.sink.planTarget);
      await carryOut(world.sink, plan);
      const next = numberedRunId(plan.runId, 2);
      expect(await toldAt(world.sink, next).add("late", "a")).toBe(true);
      const found = (await world.sink.find(plan.runId)) ?? expect.fail("no plan");
      expect(found.plan.runId).toBe(plan.runId);
      const run = await world.sink.open(found);
      expect(run.state.kind).toBe("published");
      expect(await toldAt(world.sink, plan.runId).timeOf("late")).toBeUndefined();
      await carryOut(world.sink, { ...plan, runId: next });
      expect((await world.sink.find(plan.runId))?.plan.runId).toBe(next);
    });
  });
}
