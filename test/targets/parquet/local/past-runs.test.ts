import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { carryOutRun, faultsOfRun, onRunDisk, openAttempt, runPlan } from "../../../support/run-drive.js";
import { driveFolder, drivePlan, openDriveSink } from "../../../support/sink-drive.js";

const controlOf = (root: string, number: number): string =>
  join(driveFolder(root), "_infer-batch", runPlan(number).runId);

async function control(root: string, number: number): Promise<string[]> {
  return (await readdir(controlOf(root, number), { recursive: true })).toSorted();
}

async function leave(root: string, number: number): Promise<void> {
  for (const folder of ["tmp", "withdrawn/elsewhere.7.ab", ...(number > 1 ? ["parts"] : [])]) {
    await mkdir(join(controlOf(root, number), folder), { recursive: true });
    await writeFile(join(controlOf(root, number), folder, "part-0.elsewhere.7.ab"), "late");
  }
}

/** Does what the same command does when it finds the run complete. */
async function sameCommand(root: string, fs: FileSystem = nodeFileSystem): Promise<void> {
  await using sink = await openDriveSink(root, fs);
  const stored = await sink.find(drivePlan.runId);
  const run = stored === undefined ? undefined : await sink.open(stored);
  expect(run?.state.kind).toBe("published");
  await run?.finish();
}

const ofFinished = ["plan.json", "profile.json"];

describe("files that late attempts of past runs leave", () => {
  test("the command that finds the run complete removes files of late attempts of past runs", async () => {
    await onRunDisk(1, async (root) => {
      {
        await using late = await openAttempt(root, 1);
        await carryOutRun(root, 1);
        await carryOutRun(root, 2);
        await expect(late.commit(1)).rejects.toThrow("came after");
      }
      await mkdir(join(controlOf(root, 1), "tmp")); // as an attempt that dies while it stages a file
      await sameCommand(root);
      expect(await control(root, 1)).toEqual(ofFinished);
    });
  });

  test("readers do not see files of late attempts, also when the run after theirs has lost its plan", async () => {
    await onRunDisk(1, async (root) => {
      await using late = await openAttempt(root, 1);
      await carryOutRun(root, 2);
      await rm(join(controlOf(root, 2), "plan.json"));
      {
        await using next = await openAttempt(root, 3, nodeFileSystem, { looks: false });
        await next.rest();
      }
      await expect(late.commit(1)).rejects.toThrow("came after");
      expect(await faultsOfRun(root, 3)).toEqual([]);
    });
  });

  test("a complete run's working files are removed, and those of the runs before it", async () => {
    await onRunDisk(3, async (root) => {
      await leave(root, 1);
      await leave(root, 2);
      await sameCommand(root);
      expect([await control(root, 1), await control(root, 2)]).toEqual([ofFinished, ofFinished]);
      expect(await faultsOfRun(root, 2)).toEqual([]);
    });
  });

  test("the next run removes working files of past runs when it begins, and keeps those of its own attempts", async () => {
    await onRunDisk(3, async (root) => {
      await leave(root, 1);
      await leave(root, 2);
      await using attempt = await openAttempt(root, 3);
      await attempt.commit(0);
      const before = await control(root, 3);
      await using other = await openAttempt(root, 3);
      expect([await control(root, 1), await control(root, 2)]).toEqual([ofFinished, ofFinished]);
      expect(await control(root, 3)).toEqual(before);
      expect(before.some((name) => name.startsWith("parts/part-00000."))).toBe(true);
      await other.rest();
      expect(await faultsOfRun(root, 3)).toEqual([]);
    });
  });

  test("working files stay in a folder that cannot be written to, and the run is complete all the same", async () => {
    await onRunDisk(2, async (root) => {
      await leave(root, 1);
      const readOnly = Object.assign(new Error("read-only"), { code: "EROFS" });
      await sameCommand(root, { ...nodeFileSystem, removeFolder: () => Promise.reject(readOnly) });
      expect(await control(root, 1)).toContain("tmp/part-0.elsewhere.7.ab");
    });
  });

  test("a complete run without working files costs no removal", async () => {
    await onRunDisk(4, async (root) => {
      const removed: string[] = [];
      const removeFolder = async (path: string): Promise<void> => {
        removed.push(path);
      };
      await sameCommand(root, { ...nodeFileSystem, removeFolder });
      expect(removed).toEqual([]);
    });
  });
});

test("an attempt that checked for a later run just before one was opened publishes nothing", async () => {
  await onRunDisk(1, async (root) => {
    let isCommitting = false;
    const fs = hookedDisk(root, {
      async before(_at, call) {
        // The call before checked for the later run's plan; this attempt now writes into a folder that was made anew.
        if (isCommitting && call === `stat lake/out/_infer-batch/${runPlan(1).runId}/plan`) {
          isCommitting = false;
          await carryOutRun(root, 1);
          await carryOutRun(root, 2);
          await mkdir(join(controlOf(root, 1), "tmp"));
        }
      },
    });
    await using late = await openAttempt(root, 1, fs);
    isCommitting = true;
    await expect(late.commit(0)).rejects.toThrow("came after");
    expect(await faultsOfRun(root, 2)).toEqual([]);
  });
});

const isNamed = (call: string): boolean => /^link .*part-00001/.test(call);

test("an attempt whose span was committed by another, and removed by a later run, names that run", async () => {
  await onRunDisk(1, async (root) => {
    let stage: "idle" | "committing" | "beaten" = "idle";
    const other = await openAttempt(root, 1);
    const fs = hookedDisk(root, {
      async before(_at, call) {
        if (stage === "committing" && isNamed(call)) {
          stage = "beaten";
          await other.commit(1);
        }
      },
      async after(_at, call) {
        // The last call before it inspects the other's part.
        if (stage === "beaten" && call === "unlink tmp/part-00001-parquet") {
          stage = "idle";
          await other[Symbol.asyncDispose]();
          await carryOutRun(root, 1);
          await carryOutRun(root, 2);
        }
      },
    });
    await using late = await openAttempt(root, 1, fs);
    stage = "committing";
    await expect(late.commit(1)).rejects.toThrow("came after");
    expect(stage).toBe("idle");
    expect(await faultsOfRun(root, 2)).toEqual([]);
  });
});
