import { describe, expect, test } from "vitest";
import { spanAt } from "#src/run/plan/spans.js";
import { inParallel } from "../../../support/crash.js";
import { lossyDisk } from "../../../support/lossy-disk.js";
import { allLost, anyLuck, commitsSurvive } from "../../../support/luck.js";
import { carryOutRun, faultsForReaders, faultsOfRun, onRunDisk } from "../../../support/run-drive.js";
import { alone, beginDrive, drivePlan, driveRows, openDriveSink } from "../../../support/sink-drive.js";
import { randomOf } from "../../../support/random.js";
import { atEachCall, finish, onDisk, readingCall } from "../../../support/sink-torture.js";
import { torture } from "../../../support/torture.js";

const without = { refused: ["link"] };
const changing = { ...without, only: (call: string) => !readingCall.test(call), every: torture ? 1 : 14 };

describe("a file system without hard links", () => {
  test("a run without hard links is finished, with a warning to keep to one worker", async () => {
    await onDisk(async (run) => {
      const warnings: string[] = [];

      expect(await run.attempt({ warn: (message) => warnings.push(message) })).toBeUndefined();

      expect(warnings).toEqual([expect.stringMatching(/has no hard links.* only one worker at a time$/)]);
      await run.check();
    }, without.refused);
  });

  test("several workers are refused without hard links, before anything is published", async () => {
    await onDisk(async ({ root, disk: { fs } }) => {
      await using sink = await openDriveSink(root, fs);
      const run = await sink.open(await sink.create(drivePlan));
      await expect(run.begin({ ...alone, workers: 2 })).rejects.toMatchObject({
        code: "USAGE",
        exitCode: 64,
        message: expect.stringMatching(/it has no hard links, and 2 workers would share it$/) as string,
      });
    }, without.refused);
  });

  test("a new run without hard links is finished after a kill at any call of its swap", {
    timeout: 300_000,
  }, async () => {
    let calls: readonly string[] = [];
    await onRunDisk(2, async (root) => {
      const disk = lossyDisk(root, without.refused);
      await carryOutRun(root, 2, disk.fs);
      calls = disk.calls;
    });
    const staged = calls.lastIndexOf("rename lake/out/_infer-batch/job-000000000000-r2/parts/part-00002");
    const all = [...calls.keys()].filter((at) => at > staged && !readingCall.test(calls[at] ?? ""));
    expect(all.length).toBeGreaterThan(20);
    const swap = all.filter((_, index) => torture || index % 3 === 0);
    const failures: string[] = [];
    await inParallel(swap, 2, async (at) => {
      await onRunDisk(2, async (root) => {
        const disk = lossyDisk(root, without.refused);
        disk.faultAt(at, { kind: "stop" });
        await carryOutRun(root, 2, disk.fs).catch(() => undefined);
        disk.kill();
        failures.push(...(await faultsForReaders(root)));
        await carryOutRun(root, 2, disk.fs);
        failures.push(...(await faultsOfRun(root, 2)));
      }).catch((error: unknown) => {
        failures.push(`${calls[at]}: ${String(error)}`);
      });
    });
    expect(failures).toEqual([]);
  });

  test("a power failure before any call loses nothing that was reported without hard links", async () => {
    const failures = await atEachCall(async (run, at) => {
      run.disk.faultAt(at, { kind: "stop" });
      await run.attempt();
      await run.disk.losePower([allLost, commitsSurvive, anyLuck(randomOf(at))][at % 3] ?? allLost);
      await run.check();
      await finish(run);
    }, changing);
    expect(failures).toEqual([]);
  });

  test("a power failure after a kill loses nothing that the next attempt reported without hard links", async () => {
    const failures = await atEachCall(async (run, at) => {
      run.disk.faultAt(at, { kind: "stop" });
      await run.attempt();
      run.disk.kill();
      expect(await run.attempt({ spans: 2 })).toBeUndefined();
      await run.disk.losePower(allLost);
      await run.check();
      await finish(run);
    }, changing);
    expect(failures).toEqual([]);
  });

  test("the first writer's part is kept without hard links, too", async () => {
    await onDisk(async ({ root, disk: { fs } }) => {
      await using one = await openDriveSink(root, fs);
      await using other = await openDriveSink(root, fs);
      const runs = [await beginDrive(one), await beginDrive(other)];
      const outcomes: unknown[] = [];
      for (const run of runs) {
        outcomes.push(await run.commit(spanAt(drivePlan, 0), driveRows(0)));
      }
      expect(outcomes).toEqual(["committed", "adopted"]);
    }, without.refused);
  });
});
