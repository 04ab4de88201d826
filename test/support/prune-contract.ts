import { describe, expect } from "vitest";
import { profileRows, profileText } from "#src/checks/profile/profile.js";
import { numberedRunId, splitRunId } from "#src/run/plan/identity.js";
import type { Plan, RunId } from "#src/run/plan/plan.js";
import { spanAt } from "#src/run/plan/spans.js";
import type { PruneOutcome } from "#src/run/lifecycle/pruned-run.js";
import { latestFirst, type RecordedRun } from "#src/run/lifecycle/recorded-run.js";
import type { Sink, StoredPlan } from "#src/targets/target.js";
import { type SinkWorld, testsOf } from "./sink-contract.js";
import { alone, type BegunRun } from "./sink-drive.js";
import { begun, carryOut, commitSpans, idsOf, outputOf, planFor, rejectOf, whole } from "./sinks.js";
import { commitProfiled } from "./staging-contract.js";
import { decisionOf, stagedPlan, verdictOf } from "./staged-plans.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";

const upTo = (end: number): number[] => Array.from({ length: end }, (_, id) => id);
const planOf = (sink: Sink): Plan => ({ ...planFor(sink.planTarget), job: "job" });

async function runsAt(sink: Sink): Promise<readonly RecordedRun[]> {
  return latestFirst(await sink.history({ job: "job", last: 9 }));
}

/** Prunes the runs of one plan as `prune` does. `latest`: the run that was the latest when they were listed. */
export async function pruneAt(
  sink: Sink,
  plan: Plan,
  { latest = plan.runId, dryRun = false } = {},
): Promise<PruneOutcome> {
  const place = (await runsAt(sink))[0]?.place ?? "";
  const { base, number } = splitRunId(latest);
  const pruning = {
    tombstone: numberedRunId(base, number + 1),
    plan: { ...plan, runId: latest },
    rows: 24,
    rejected: 1,
    at: "2026-11-23T04:05:06.789Z",
    by: "ana",
  };
  return await sink.prune({ place, latest, pruning, dryRun });
}

/** Carries out a run with one rejected row and with profiles. */
async function published(sink: Sink): Promise<{ readonly stored: StoredPlan; readonly run: BegunRun }> {
  const { stored, run } = await begun(sink, planOf(sink));
  const first = spanAt(stored.plan, 0);
  const rows = outputOf(idsOf(first).slice(1));
  const profile = profileText(profileRows(rows, { predicted: [{ name: "score" }], carried: [], bins: 100 }));
  await run.commit(first, { ...whole(rows, [rejectOf(0)]), profile });
  await commitProfiled(run, stored);
  await run.finish();
  return { stored, run };
}

const leftIn = ({ keepsPrunedRows }: SinkWorld): number[] => (keepsPrunedRows ? upTo(25).slice(1) : []);

export function pruneContractOf(name: string, worldOf: () => Promise<SinkWorld>): void {
  const test = testsOf(worldOf);
  describe(name, () => {
    test("a pruned run leaves a tombstone, which the history shows and which cannot be opened", async (world) => {
      const { stored } = await published(world.sink);
      const planned = await pruneAt(world.sink, stored.plan, { dryRun: true });
      expect(await world.ids()).toEqual(upTo(25).slice(1));
      expect((await world.sink.find(stored.plan.runId))?.pruned).toBeUndefined();

      const outcome = await pruneAt(world.sink, stored.plan);
      expect(outcome).toEqual(planned);
      expect(outcome).toMatchObject({ kind: "removed", ...world.prunes });
      expect(await world.ids()).toEqual(leftIn(world));
      expect(await runsAt(world.sink)).toMatchObject([
        {
          runId: stored.plan.runId,
          status: "pruned",
          plan: { params: stored.plan.params },
          rejected: 1,
          at: "2026-11-23T04:05:06.789Z",
        },
      ]);
      await using other = await world.open();
      const found = await other.find(stored.plan.runId);
      expect(found).toMatchObject({ plan: { runId: stored.plan.runId }, pruned: { by: "ana" } });
      expect(await other.history({ job: "job", last: 9, unfinishedBut: "other" as RunId })).toEqual([]);
      await expect(other.open(found as StoredPlan)).rejects.toMatchObject({ code: "PRUNED", exitCode: 67 });
    });

    test("pruning a run again, or several times at once, finds nothing more to remove", async (world) => {
      const { stored } = await published(world.sink);
      const sinks = await Promise.all(upTo(3).map(() => world.open()));
      try {
        const outcomes = await Promise.all(sinks.map((one) => pruneAt(one, stored.plan)));
        expect(outcomes.map(({ kind }) => kind)).toEqual(["removed", "removed", "removed"]);
      } finally {
        await Promise.all(sinks.map((one) => one[Symbol.asyncDispose]()));
      }
      expect(await pruneAt(world.sink, stored.plan)).toMatchObject({
        kind: "removed",
        files: 0,
        tables: [],
        rejects: 0,
        profiles: 0,
      });
      expect(await world.ids()).toEqual(leftIn(world));
    });

    test("runs are not pruned when a later run of the same params was planned meanwhile", async (world) => {
      const { stored } = await published(world.sink);
      const next = await begun(world.sink, { ...stored.plan, runId: numberedRunId(stored.plan.runId, 2) });
      const why = expect.stringContaining(`run ${next.stored.plan.runId} was planned`);
      expect(await pruneAt(world.sink, stored.plan)).toEqual({ kind: "retained", why });
      expect(await world.ids()).toEqual(upTo(25).slice(1));
      await commitSpans(next.run, next.stored);
      await next.run.finish();
      expect(await pruneAt(world.sink, stored.plan)).toEqual({ kind: "retained", why });
      expect((await runsAt(world.sink)).map(({ status }) => status)).toEqual(["published", "published"]);
    });

    test("a new run over a pruned one is published, and an earlier prune that comes late removes nothing of it", async (world) => {
      const { stored } = await published(world.sink);
      await pruneAt(world.sink, stored.plan);
      const second = { ...stored.plan, runId: numberedRunId(stored.plan.runId, 2) };
      await expect(world.sink.create(second)).rejects.toMatchObject({ exitCode: 66 });
      const third = { ...stored.plan, runId: numberedRunId(stored.plan.runId, 3) };
      await carryOut(world.sink, third);
      expect(await pruneAt(world.sink, stored.plan)).toMatchObject({ kind: "retained" });
      const all = [...(world.adds ? leftIn(world) : []), ...upTo(25)];
      expect(await world.ids()).toEqual(all.toSorted((one, other) => one - other));
      expect((await runsAt(world.sink)).map(({ runId, status }) => [runId, status])).toEqual([
        [third.runId, "published"],
        [stored.plan.runId, "pruned"],
      ]);
    });

    test("a late attempt commits and finishes nothing of a pruned run", async (world) => {
      await using other = await world.open();
      const { stored } = await published(world.sink);
      const opened = await other.open(stored);
      await pruneAt(world.sink, stored.plan);
      await expect(opened.begin(alone)).rejects.toMatchObject({ exitCode: 66 });
      expect(await world.ids()).toEqual(leftIn(world));
    });

    test("a discarded run after a published one is pruned with it", async (world) => {
      const { stored } = await published(world.sink);
      const plan = { ...stagedPlan(world.sink.planTarget), job: "job", runId: numberedRunId(stored.plan.runId, 2) };
      const held = await begun(world.sink, plan);
      await commitProfiled(held.run, held.stored);
      await held.run.create(verdictDocument, verdictOf("hold"));
      await held.run.create(decisionDocument, decisionOf("discarded"));
      expect(await pruneAt(world.sink, plan)).toMatchObject({ kind: "removed" });
      expect(await world.ids()).toEqual(leftIn(world));
      expect((await runsAt(world.sink)).map(({ status }) => status)).toEqual(["pruned", "pruned"]);
      expect(await pruneAt(world.sink, plan)).toMatchObject({ files: 0, tables: [], rejects: 0, profiles: 0 });
    });
  });
}
