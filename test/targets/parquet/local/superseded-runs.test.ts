import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { inParallel } from "../../../support/crash.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { latch } from "../../../support/waiting.js";
import { driveFolder } from "../../../support/sink-drive.js";
import { randomOf } from "../../../support/random.js";
import { readingCall } from "../../../support/sink-torture.js";
import {
  carryOutRun,
  faultsForReaders,
  faultsOfRun,
  onRunDisk,
  openAttempt,
  runPlan,
  successOf,
} from "../../../support/run-drive.js";
import { torture } from "../../../support/torture.js";

const parallel = 2;

interface Stopped {
  /** Whether it came to that call; false: it ended before. */
  readonly reached: Promise<boolean>;
  /** Lets it go on; what it threw. */
  resume(): Promise<unknown>;
}

function stopAt(root: string, number: number, at: number, after?: () => Promise<void>): Stopped {
  const gate = latch<void>();
  const reached = latch<boolean>();
  let resumed = false;
  const fs = hookedDisk(root, {
    async before(call) {
      if (call === at) {
        reached.resolve(true);
        await gate.promise;
        resumed = true;
      }
    },
    async after() {
      if (resumed) {
        await after?.();
      }
    },
  });
  const ended = carryOutRun(root, number, fs)
    .then(
      () => undefined,
      (error: unknown) => error,
    )
    .finally(() => reached.resolve(false));
  return {
    reached: reached.promise,
    async resume() {
      gate.resolve(undefined);
      return await ended;
    },
  };
}

/** Calls that change what others see; in CI, a part of the other ones is enough. */
const publishes = /^(?:link|rename) lake|^writeText tmp.(?:manifest|success)|^unlink lake/;

async function momentsOf(number: number): Promise<{ at: number; call: string }[]> {
  const moments: { at: number; call: string }[] = [];
  await onRunDisk(number, async (root) => {
    const fs = hookedDisk(root, {
      before: async (at, call) => {
        moments.push({ at, call });
      },
    });
    await carryOutRun(root, number, fs);
  });
  const changing = moments.filter(({ call }) => !readingCall.test(call));
  return torture ? changing : changing.filter(({ call }, index) => publishes.test(call) || index % 18 === 0);
}

async function atEachMoment(number: number, work: (root: string, at: number) => Promise<void>): Promise<string[]> {
  const failures: string[] = [];
  const moments = await momentsOf(number);
  expect(moments.length).toBeGreaterThan(torture ? 20 : 8);
  await inParallel(moments, parallel, async ({ at, call }) => {
    try {
      await onRunDisk(number, (root) => work(root, at));
    } catch (error) {
      failures.push(`${at} ${call}: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
  return failures;
}

/** Expects that the attempt is told to run again, or does not notice. */
function expectRefused(error: unknown): void {
  if (error !== undefined) {
    expect(error instanceof JobError ? [error.code, error.message] : error).toEqual([
      "PLAN_CHANGED",
      expect.stringMatching(/came after/),
    ]);
  }
}

describe.each([
  { number: 1, ending: "finished" },
  { number: 1, ending: "abandoned" },
  { number: 2, ending: "abandoned" },
])("a late attempt at run $number, which was $ending, after the next run is finished", ({ number, ending }) => {
  test("a late attempt at run $number, which was $ending, publishes nothing after a stop at any call", {
    timeout: 300_000,
  }, async () => {
    const failures = await atEachMoment(number, async (root, at) => {
      const stopped = stopAt(root, number, at, async () => {
        expect(await successOf(root), "at all times").toBe(number + 1);
      });
      expect(await stopped.reached).toBe(true);
      {
        // Begun before the next run was opened: it checks for that only when it commits its next span.
        await using late = await openAttempt(root, number);
        if (ending === "finished") {
          await carryOutRun(root, number);
        }
        await carryOutRun(root, number + 1);
        if (late.run.state.kind !== "published") {
          expectRefused(await late.commit(1).catch((error: unknown) => error));
          expectRefused(await late.run.finish().catch((error: unknown) => error));
        }
      }
      expectRefused(await stopped.resume());
      expect(await faultsOfRun(root, number + 1)).toEqual([]);
    });
    expect(failures).toEqual([]);
  });
});

describe("several attempts that finish a new run", () => {
  test("a finisher that is stopped before any call does not take back what others reported", {
    timeout: 300_000,
  }, async () => {
    const failures = await atEachMoment(2, async (root, at) => {
      const stopped = stopAt(root, 2, at, async () => {
        expect(await successOf(root), "at all times").toBe(2);
      });
      expect(await stopped.reached).toBe(true);
      // It knows that the run is not finished, and stops when it has made the folders again that the finish removed.
      const late = stopAtFinish(root, 2);
      await late.begun;
      await carryOutRun(root, 2);
      await late.finishes();
      expect(await stopped.resume()).toBeUndefined();
      expect(await late.resume()).toBeUndefined();
      expect(await faultsOfRun(root, 2)).toEqual([]);
      const staging = join(driveFolder(root), "_infer-batch", runPlan(2).runId);
      // An attempt that came to plan it may have made its temporary folder again.
      const left = (await readdir(staging, { recursive: true })).filter((name) => name !== "tmp");
      expect(left.toSorted()).toEqual(["plan.json", "profile.json"]);
    });
    expect(failures).toEqual([]);
  });

  test("an attempt whose span another one committed finds the part before and after the finish has moved it", async () => {
    const failures: string[] = [];
    let calls = 1;
    for (let at = 0; at < calls; at += torture ? 1 : 5) {
      await onRunDisk(2, async (root) => {
        let count = -1;
        const fs = hookedDisk(root, {
          async after() {
            count += count < 0 ? 0 : 1;
            if (count === at + 1) {
              await carryOutRun(root, 2);
            }
          },
        });
        await using second = await openAttempt(root, 2, fs);
        await using first = await openAttempt(root, 2);
        await first.commit(0);
        count = 0;
        await second.commit(0);
        calls = Math.max(calls, count);
        count = -1;
        await second.rest();
        expect(await faultsOfRun(root, 2)).toEqual([]);
      }).catch((error: unknown) => {
        failures.push(`after call ${at}: ${String(error)}`);
      });
    }
    expect(calls).toBeGreaterThan(10);
    expect(failures).toEqual([]);
  });
});

interface LateFinisher {
  readonly begun: Promise<void>;
  /** Resolves when its folders are made. */
  finishes(): Promise<void>;
  resume(): Promise<unknown>;
}

/** An attempt that begins, and waits; then comes to finish the run, and stops with its folders made. */
function stopAtFinish(root: string, number: number): LateFinisher {
  const begun = latch<void>();
  const toFinish = latch<void>();
  const standing = latch<void>();
  const gate = latch<void>();
  let isThere = false;
  const fs = hookedDisk(root, {
    async before(_at, call) {
      if (isThere && !call.startsWith("mkdir ")) {
        standing.resolve(undefined);
        await gate.promise;
      }
      isThere ||= call.endsWith("/withdrawn") && call.startsWith("mkdir ");
    },
  });
  const work = async (): Promise<void> => {
    await using attempt = await openAttempt(root, number, fs);
    begun.resolve(undefined);
    await toFinish.promise;
    await (attempt.run.state.kind === "published" ? undefined : attempt.run.finish());
  };
  const ended = work()
    .then(
      () => undefined,
      (error: unknown) => error,
    )
    .finally(() => {
      begun.resolve(undefined);
      standing.resolve(undefined);
    });
  return {
    begun: begun.promise,
    async finishes(): Promise<void> {
      toFinish.resolve(undefined);
      await standing.promise;
    },
    async resume(): Promise<unknown> {
      gate.resolve(undefined);
      return await ended;
    },
  };
}

const pairs = torture ? 400 : 3;

test(`readers see one run or none while stopped attempts of two runs go on (${pairs} pairs)`, {
  timeout: 600_000,
}, async () => {
  const [old, next] = [await momentsOf(1), await momentsOf(2)];
  const failures: string[] = [];
  const seeds = Array.from({ length: pairs }, (_, seed) => seed + 1);
  await inParallel(seeds, parallel, async (seed) => {
    const random = randomOf(seed);
    const first = old[Math.floor(random() * old.length)];
    const second = next[Math.floor(random() * next.length)];
    await onRunDisk(1, async (root) => {
      const look = async (): Promise<void> => {
        expect(await faultsForReaders(root)).toEqual([]);
      };
      const one = stopAt(root, 1, first?.at ?? 0);
      await one.reached;
      await carryOutRun(root, 1);
      await using late = await openAttempt(root, 1);
      const other = stopAt(root, 2, second?.at ?? 0);
      await other.reached;
      if (late.run.state.kind !== "published") {
        expectRefused(await late.rest().catch((error: unknown) => error));
      }
      expectRefused(await one.resume());
      await look();
      expectRefused(await other.resume());
      await carryOutRun(root, 2);
      expect(await faultsOfRun(root, 2)).toEqual([]);
    }).catch((error: unknown) => {
      failures.push(
        `seed ${seed}, ${first?.call} and ${second?.call}: ${error instanceof Error ? error.stack : String(error)}`,
      );
    });
  });
  expect(failures).toEqual([]);
});
