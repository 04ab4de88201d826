import { describe, expect, test } from "vitest";
import { spanAt } from "#src/plan/spans.js";
import { allLost, anyLuck, commitsSurvive } from "../support/lossy-disk.js";
import { beginDrive, drivePlan, driveRows, openDriveSink } from "../support/sink-drive.js";
import { atEachCall, finish, onDisk, randomOf, readingCall } from "../support/sink-torture.js";

const without = { refused: ["link"] };
const changing = { ...without, only: (call: string) => !readingCall.test(call) };

describe("a file system without hard links", () => {
  test("takes a run to its end, with a warning to keep to one worker", async () => {
    await onDisk(async (run) => {
      const warnings: string[] = [];

      expect(await run.attempt({ warn: (message) => warnings.push(message) })).toBeUndefined();

      expect(warnings).toEqual([expect.stringMatching(/has no hard links.* only one worker at a time$/)]);
      await run.check();
    }, without.refused);
  });

  test("loses nothing that was told when the power fails before any call", async () => {
    const failures = await atEachCall(async (run, at) => {
      run.disk.faultAt(at, { kind: "stop" });
      await run.attempt();
      await run.disk.losePower([allLost, commitsSurvive, anyLuck(randomOf(at))][at % 3] ?? allLost);
      await run.check();
      await finish(run);
    }, changing);
    expect(failures).toEqual([]);
  });

  test("loses nothing that the next attempt of a killed process told", async () => {
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

  test("keeps what a first writer has published, all the same", async () => {
    await onDisk(async ({ root, disk: { fs } }) => {
      await using one = await openDriveSink(root, fs);
      await using other = await openDriveSink(root, fs);
      const runs = [await beginDrive(one), await beginDrive(other)];
      const { rows, rejects } = driveRows(0);
      const outcomes: unknown[] = [];
      for (const run of runs) {
        outcomes.push(await run.commit(spanAt(drivePlan, 0), { rows, rejects, filtered: 0 }));
      }
      expect(outcomes).toEqual(["committed", "adopted"]);
    }, without.refused);
  });
});
