import { describe, expect, test } from "vitest";
import { nextRunId } from "#src/plan/identity.js";
import { spanAt, spanCount } from "#src/plan/spans.js";
import type { Sink, StoredPlan } from "#src/sink/port.js";
import { commitSealed, outputWith, shownFeatures, wholeSealed } from "./sealed-spans.js";
import type { SinkWorld } from "./sink-contract.js";
import { alone, type BegunRun } from "./sink-drive.js";
import { begun, idsOf } from "./sinks.js";
import { decisionOf, stagedPlan, verdictOf } from "./staged-plans.js";

/** A target that keeps keys of runs. */
export interface SealingWorld extends SinkWorld {
  /** Where the target keeps keys. */
  readonly keys: () => Promise<readonly string[]>;
  readonly removeKey: (key: string) => Promise<void>;
}

interface CommittedRun {
  readonly stored: StoredPlan;
  readonly run: BegunRun;
}

/** A staged run whose spans two attempts have committed. */
async function committed(sink: Sink, other: Sink): Promise<CommittedRun> {
  const late = await begun(other, stagedPlan(other.planTarget));
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
  expect(spanCount(stored.plan)).toBe(3);
  await commitSealed(late.run, stored, [1]);
  await commitSealed(run, stored, [0, 2]);
  await run.refresh();
  return { stored, run };
}

/** The contract of every sink that stores profiles of features. */
export function sealingContractOf(name: string, worldOf: () => Promise<SealingWorld>): void {
  describe(name, () => {
    test("a sink merges the features of spans that several attempts have sealed, until the run is published", async () => {
      await using world = await worldOf();
      await using sink = await world.open();
      await using other = await world.open();
      const { stored, run } = await committed(sink, other);
      expect(await world.keys()).toHaveLength(1);
      for (const one of [run, await sink.open(stored), await other.open(stored)]) {
        const { profile, published } = await one.profile();
        expect(published).toBeUndefined();
        expect(profile).toEqual(wholeSealed);
      }
      await run.judge(verdictOf("hold"));
      await run.decide(decisionOf("approved"));
      await run.finish();
      expect(await world.keys()).toEqual([]);
      const { profile, published } = await (await other.open(stored)).profile();
      expect(profile).toEqual({ ...wholeSealed, features: undefined, isSealed: true });
      expect(published?.features).toEqual(shownFeatures);
    });

    test("attempts that finish a run at once, or later, find its key gone and its profile stored", async () => {
      await using world = await worldOf();
      await using sink = await world.open();
      await using other = await world.open();
      const { stored, run } = await committed(sink, other);
      // This one knows no span as its own, so it needs the key for all.
      const second = await begun(other, stored.plan);
      const third = await begun(other, stored.plan);
      await run.judge(verdictOf("hold"));
      await run.decide(decisionOf("approved"));
      await Promise.all([run.finish(), second.run.finish()]);
      expect(await world.keys()).toEqual([]);
      expect((await third.run.profile()).published?.features).toEqual(shownFeatures);
      await third.run.finish();
      expect(await world.keys()).toEqual([]);
      expect((await run.profile()).profile.rows).toBe(25);
    });

    test("an attempt that begins after a run was published leaves no key behind", async () => {
      await using world = await worldOf();
      await using sink = await world.open();
      await using other = await world.open();
      const { stored, run } = await committed(sink, other);
      const opened = await other.open(stored);
      await run.judge(verdictOf("hold"));
      await run.decide(decisionOf("approved"));
      await run.finish();
      const late = await opened.begin(alone);
      const span = spanAt(stored.plan, 0);
      await late.commit(span, outputWith(idsOf(span)));
      await late.finish();
      expect(await world.keys()).toEqual([]);
    });

    test("a run that lost its key before it was published is damaged, and one that was discarded says so", async () => {
      await using world = await worldOf();
      await using sink = await world.open();
      await using other = await world.open();
      const { stored, run } = await committed(sink, other);
      const [key = expect.fail("no key")] = await world.keys();
      await world.removeKey(key);
      const lost = { code: "OUTPUT_DAMAGED", message: expect.stringContaining("the key of its features") };
      await expect(run.profile()).rejects.toMatchObject(lost);
      await run.judge(verdictOf("hold"));
      await expect((await sink.open(stored)).profile()).rejects.toMatchObject(lost);
      await run.decide(decisionOf("discarded"));
      await expect(run.profile()).rejects.toMatchObject({ code: "DISCARDED" });
    });

    test("a run's key goes with the rows of a run that is discarded, and those of the runs that it replaced", async () => {
      await using world = await worldOf();
      await using sink = await world.open();
      await using other = await world.open();
      const second = await nextOf(sink, await committed(sink, other));
      await second.run.judge(verdictOf("hold"));
      await second.run.decide(decisionOf("discarded"));
      expect((await world.keys()).length).toBeGreaterThan(0); // as after a kill
      await (await sink.open(second.stored)).tidy?.();
      expect(await world.keys()).toEqual([]);
    });

    test("the key of a run that is superseded is gone when the next run is published", async () => {
      await using world = await worldOf();
      await using sink = await world.open();
      await using other = await world.open();
      const { run } = await nextOf(sink, await committed(sink, other));
      await run.judge(verdictOf("publish"));
      await run.decide(decisionOf("approved"));
      await run.finish();
      expect(await world.keys()).toEqual([]);
    });
  });
}

/** Commits a run in place of one that is held. */
async function nextOf(sink: Sink, { stored, run }: CommittedRun): Promise<CommittedRun> {
  const successor = nextRunId(stored.plan.runId);
  await run.judge(verdictOf("hold"));
  await run.decide({ ...decisionOf("superseded"), successor });
  const next = await begun(sink, { ...stored.plan, runId: successor });
  await commitSealed(next.run, next.stored, [0, 1, 2]);
  return next;
}
