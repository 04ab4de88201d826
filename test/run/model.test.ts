import * as fc from "fast-check";
import { afterAll, expect, test } from "vitest";
import type { AttemptOptions } from "#src/job/job-context.js";
import { JobError } from "#src/base/errors.js";
import type { RunReport } from "#src/report/report.js";
import { scratchFolder } from "../support/job.js";
import { allLost, anyLuck, commitsSurvive } from "../support/luck.js";
import { closeEngine, type ModelPlan, type ModelWorld, modelWorld } from "../support/model-world.js";
import { randomOf } from "../support/random.js";
import { torture } from "../support/torture.js";

/** INFER_BATCH_TORTURE=1: 1,000 runs. */
const runs = torture ? 1000 : 5;

/** What becomes of the machine in the middle of a step. */
interface Blow {
  /** Calls on the file system, from the start of the step. */
  readonly at: number;
  /** Of the processes only, or of the power: then the seed says what survives. */
  readonly power: number | undefined;
}

/** Processes that start at once, or a change of the input. */
type Step =
  | { readonly kind: "attempts"; readonly attempts: readonly AttemptOptions[]; readonly blow: Blow | undefined }
  | { readonly kind: "change" };

/** Spans that end anywhere, or where shards do: then whole shards are what is left between committed spans. */
const plans: fc.Arbitrary<ModelPlan> = fc.oneof(
  fc.record({
    rows: fc
      .array(fc.integer({ min: 0, max: 7 }), { minLength: 1, maxLength: 3 })
      .filter((rows) => rows.some((n) => n > 0)),
    commitRows: fc.integer({ min: 1, max: 6 }),
  }),
  fc
    .record({ shards: fc.integer({ min: 3, max: 6 }), commitRows: fc.integer({ min: 1, max: 3 }) })
    .map(({ shards, commitRows }) => ({ rows: Array<number>(shards).fill(commitRows), commitRows })),
);

const alone: AttemptOptions = { worker: { index: 0, count: 1 }, steal: false, newRun: false };

/** Half of them open a new run, where one is finished. */
const workers: fc.Arbitrary<AttemptOptions> = fc.oneof(
  fc.constant({ worker: { index: 0, count: 1 }, steal: false, newRun: true }),
  fc
    .record({ count: fc.integer({ min: 1, max: 3 }), index: fc.nat(), steal: fc.boolean() })
    .map(({ count, index, steal }) => ({ worker: { index: index % count, count }, steal, newRun: false })),
);

const blows = fc.record({
  // A run of few spans makes 100 calls, a new one 140; the last third of these are its swap.
  at: fc.oneof(fc.nat(150), fc.integer({ min: 70, max: 150 })),
  power: fc.option(fc.nat(1000), { nil: undefined }),
});

const steps: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 7,
    arbitrary: fc.record({
      kind: fc.constant("attempts" as const),
      attempts: fc.array(workers, { minLength: 1, maxLength: 2 }),
      blow: fc.option(blows, { nil: undefined, freq: 3 }),
    }),
  },
  { weight: 1, arbitrary: fc.constant({ kind: "change" as const }) },
);

const untouched: Step = { kind: "attempts", attempts: [alone], blow: undefined };

/** Half of the cases begin with a finished run. */
const cases = fc
  .tuple(fc.constantFrom<Step[]>([], [untouched]), fc.array(steps, { minLength: 2, maxLength: 6 }))
  .map((lists) => lists.flat());

/** What was told: the last run that was said to be complete. */
interface Told {
  complete: number;
}

async function take(world: ModelWorld, told: Told, attempts: readonly AttemptOptions[], blow?: Blow): Promise<void> {
  if (blow !== undefined) {
    world.disk.faultAt(blow.at, { kind: "stop" });
  }
  const outcomes = await Promise.allSettled(attempts.map((options) => world.attempt(options)));
  if (blow?.power === undefined) {
    world.disk.kill();
  } else {
    const luck = [allLost, commitsSurvive, anyLuck(randomOf(blow.power))][blow.power % 3] ?? allLost;
    await world.disk.losePower(luck);
  }
  await world.notePlans();
  for (const outcome of outcomes) {
    if (outcome.status === "rejected") {
      expectAllowed(outcome.reason);
    } else if (outcome.value.status !== "partial") {
      told.complete = Math.max(told.complete, Number(/-r(\d+)$/.exec(outcome.value.runId)?.[1] ?? 1));
    }
  }
  await check(world, told);
}

/** A blow, a changed input, or a run that was opened meanwhile: nothing else ends an attempt. */
function expectAllowed(error: unknown): void {
  const isBlow = String((error as Error).cause ?? error).includes("the machine is off");
  const isToldSo = error instanceof JobError && ["INPUT_CHANGED", "PLAN_CHANGED"].includes(error.code);
  expect(isBlow || isToldSo, error instanceof Error ? error.stack : String(error)).toBe(true);
}

async function check(world: ModelWorld, told: Told): Promise<void> {
  expect(await world.faults()).toEqual([]);
  const success = await world.success();
  if (told.complete > 0 && (success?.number ?? 0) < told.complete) {
    // Only a run after it, which takes its place, takes its _SUCCESS away.
    expect(success).toBeUndefined();
    expect(await world.latest()).toBeGreaterThan(told.complete);
  }
}

/** The same command, until it says that all is done: with --new-run where it says that the input has changed. */
async function carryOn(world: ModelWorld, told: Told): Promise<void> {
  let newRun = false;
  // At most: what was under way, as planned; that its input has changed; a new run; that it is complete.
  for (let command = 1; command <= 4; command += 1) {
    const outcome = await world.attempt({ ...alone, newRun }).catch((error: unknown) => error);
    await world.notePlans();
    await check(world, told);
    if (outcome instanceof Error) {
      expect([outcome, newRun]).toMatchObject([{ code: "INPUT_CHANGED" }, false]);
      newRun = true;
    } else if ((outcome as RunReport).status === "already_complete") {
      const success = await world.success();
      expect(success).toEqual({ number: await world.latest(), version: world.version });
      expect(success?.number).toBeGreaterThanOrEqual(told.complete);
      return;
    } else {
      newRun = false;
    }
  }
  throw new Error("the run does not come to its end");
}

afterAll(closeEngine);

test(`each row is there once, after any failures of workers, machine and input (${runs} runs)`, {
  timeout: 3_600_000,
}, async () => {
  const tally = { steps: 0, blows: 0, newRuns: 0 };
  await fc.assert(
    fc.asyncProperty(plans, cases, async (plan, list) => {
      await using scratch = await scratchFolder();
      await using world = await modelWorld(scratch.path, plan);
      const told: Told = { complete: 0 };
      for (const step of list) {
        tally.steps += 1;
        if (step.kind === "change") {
          await world.change();
        } else {
          tally.blows += step.blow === undefined ? 0 : 1;
          await take(world, told, step.attempts, step.blow);
        }
      }
      await carryOn(world, told);
      tally.newRuns += (await world.latest()) > 1 ? 1 : 0;
    }),
    // Each try of a smaller case is a run of its own: the seed and path that are printed do that by hand.
    { numRuns: runs, endOnFailure: true },
  );
  console.info(`${tally.steps} steps, ${tally.blows} blows, ${tally.newRuns} with new runs`);
  expect(tally.newRuns).toBeGreaterThan(0);
});
