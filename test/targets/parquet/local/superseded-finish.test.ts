import { expect, test } from "vitest";
import { nodeFileSystem } from "#src/stores/disk.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import {
  carryOutRun,
  faultsForReaders,
  onRunDisk,
  openAttempt,
  runPlan,
  successOf,
} from "../../../support/run-drive.js";
import { rejectNames } from "../../../support/rejects.js";
import { driveFolder, driveSpans, openDriveSink } from "../../../support/sink-drive.js";

test("a run that is superseded while its parts are read for the manifest leaves the run before it to readers", async () => {
  await onRunDisk(2, async (root) => {
    // An attempt reads the parts that another one has committed: it does not know their digests.
    await using other = await openAttempt(root, 2);
    for (let span = 0; span < driveSpans; span += 1) {
      await other.commit(span);
    }
    let isPlanned = false;
    const fs = hookedDisk(root, {
      async after(_, call) {
        if (!isPlanned && call.startsWith("digest")) {
          isPlanned = true;
          await using next = await openDriveSink(root, nodeFileSystem);
          await next.create(runPlan(3));
        }
      },
    });
    const refused = await carryOutRun(root, 2, fs).catch((error: unknown) => error);
    expect(isPlanned).toBe(true);
    expect(refused).toMatchObject({ code: "PLAN_CHANGED" });
    expect(await successOf(root)).toBe(1);
    expect(await faultsForReaders(root)).toEqual([]);
  });
});

test("an attempt that ends its commit after its run was published and superseded leaves the rejects of its part", async () => {
  await onRunDisk(1, async (root) => {
    let isPlanned = false;
    const fs = hookedDisk(root, {
      async after(_, call) {
        if (!isPlanned && call === "link lake/out/part-00001") {
          isPlanned = true;
          await carryOutRun(root, 1);
          await using next = await openDriveSink(root, nodeFileSystem);
          await next.create(runPlan(2));
        }
      },
    });
    await using late = await openAttempt(root, 1, fs);

    await expect(late.commit(1)).rejects.toMatchObject({ code: "PLAN_CHANGED" });

    expect(isPlanned).toBe(true);
    expect(await faultsForReaders(root)).toEqual([]);
    expect(await rejectNames(driveFolder(root))).toHaveLength(1);
  });
});
