import { describe, expect, test } from "vitest";
import { JobError } from "#src/base/errors.js";
import { nodeFileSystem } from "#src/stores/disk.js";
import { inParallel } from "../../../support/crash.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { carryOutRun, onRunDisk, openAttempt } from "../../../support/run-drive.js";
import { drivePlan, driveSpans, openDriveSink } from "../../../support/sink-drive.js";
import { torture } from "../../../support/torture.js";

interface Seen {
  readonly runId: string;
  readonly finished: boolean;
  readonly committed: number;
}

async function lookOn(root: string, after: (at: number) => Promise<void>): Promise<Seen | undefined> {
  await using sink = await openDriveSink(root, hookedDisk(root, { after }));
  const stored = await sink.find(drivePlan.runId);
  if (stored === undefined) {
    return undefined;
  }
  const run = await sink.open(stored);
  return { runId: stored.plan.runId, finished: run.state.kind === "published", committed: run.spans.size };
}

/** A second run with all its parts staged, over a finished first one. */
async function onStaged(work: (root: string) => Promise<void>): Promise<void> {
  await onRunDisk(2, async (root) => {
    {
      await using attempt = await openAttempt(root, 2, nodeFileSystem);
      for (let span = 0; span < driveSpans; span += 1) {
        await attempt.commit(span);
      }
    }
    await work(root);
  });
}

async function onFinished(work: (root: string) => Promise<void>): Promise<void> {
  await onRunDisk(3, work);
}

async function atEachCall(
  meanwhile: (root: string) => Promise<void>,
  expected: (seen: Seen | undefined | JobError) => void,
  onDisk = onStaged,
): Promise<string[]> {
  let calls = 0;
  await onDisk(async (root) => {
    await lookOn(root, async () => {
      calls += 1;
    });
  });
  const failures: string[] = [];
  const moments = Array.from({ length: calls }, (_, at) => at).filter(
    (at) => torture || at % 3 === 0 || at === calls - 1,
  );
  await inParallel(moments, 2, async (at) => {
    try {
      await onDisk(async (root) => {
        const seen = await lookOn(root, async (call) => {
          if (call === at) {
            await meanwhile(root);
          }
        }).catch((error: unknown) => error as JobError);
        expected(seen);
      });
    } catch (error) {
      failures.push(`after call ${at}: ${error instanceof Error ? error.message : String(error)}`);
    }
  });
  return failures;
}

describe("a reader of a run's state", () => {
  test("an attempt that reads a run sees it whole while its parts are moved and its finish is written", async () => {
    const failures = await atEachCall(
      (root) => carryOutRun(root, 2),
      (seen) => {
        expect(seen).toMatchObject({ runId: `${drivePlan.runId}-r2`, committed: driveSpans });
      },
    );
    expect(failures).toEqual([]);
  });

  test("an attempt that reads a run sees it unfinished before its _SUCCESS exists", async () => {
    const failures = await atEachCall(
      async (root) => {
        const fs = hookedDisk(root, {
          async before(_at, call) {
            if (call === "rename lake/out/_SUCCESS") {
              throw new Error("killed");
            }
          },
        });
        await expect(carryOutRun(root, 2, fs)).rejects.toThrow("killed");
      },
      (seen) => {
        expect(seen).toEqual({ runId: `${drivePlan.runId}-r2`, finished: false, committed: driveSpans });
      },
    );
    expect(failures).toEqual([]);
  });

  test.each([
    { was: "unfinished", onDisk: onStaged },
    { was: "finished", onDisk: onFinished },
  ])(
    "an attempt that reads a run which was $was while the next run replaces it sees it whole, or is sent to that run",
    async ({ onDisk }) => {
      const failures = await atEachCall(
        async (root) => {
          await carryOutRun(root, 2);
          await carryOutRun(root, 3);
        },
        (seen) => {
          if (seen instanceof JobError) {
            expect([seen.code, seen.message]).toEqual(["PLAN_CHANGED", expect.stringContaining("came after")]);
          } else {
            expect(seen).toMatchObject({ committed: driveSpans });
          }
        },
        onDisk,
      );
      expect(failures).toEqual([]);
    },
  );
});
