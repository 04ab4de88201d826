import { cp, readdir } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import type { PruneOutcome } from "#src/run/lifecycle/pruned-run.js";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import { inParallel } from "../../../support/crash.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { scratchFolder } from "../../../support/job.js";
import { partNames } from "../../../support/output.js";
import {
  carryOutRun,
  faultsForReaders,
  faultsOfRun,
  onRunDisk,
  runPlan,
  successOf,
} from "../../../support/run-drive.js";
import { driveFolder, openDriveSink } from "../../../support/sink-drive.js";
import { readingCall } from "../../../support/sink-torture.js";
import { tellingCalls } from "../../../support/torture.js";
import { latch } from "../../../support/waiting.js";

async function pruneFirst(root: string, fs: FileSystem = nodeFileSystem): Promise<PruneOutcome | undefined> {
  await using sink = await openDriveSink(root, fs, { isDead: () => false });
  const pruning = {
    tombstone: runPlan(2).runId,
    plan: runPlan(1),
    rows: 10,
    rejected: 1,
    at: "2026-11-23T04:05:06.789Z",
    by: "ana",
  };
  return await sink.prune({ place: driveFolder(root), latest: runPlan(1).runId, pruning, dryRun: false });
}

interface Call {
  readonly at: number;
  readonly call: string;
}

async function atEachCall(work: (root: string, at: Call) => Promise<void>): Promise<string[]> {
  const failures: string[] = [];
  await onRunDisk(2, async (finished) => {
    await using scratch = await scratchFolder();
    const copy = async (name: string): Promise<string> => {
      const root = join(scratch.path, name, "disk");
      await cp(finished, root, { recursive: true });
      return root;
    };
    const calls: Call[] = [];
    const undisturbed = await copy("undisturbed");
    const before = async (at: number, call: string): Promise<void> => void calls.push({ at, call });
    expect(await pruneFirst(undisturbed, hookedDisk(undisturbed, { before }))).toMatchObject({ kind: "removed" });
    const changing = tellingCalls(
      calls.filter(({ call }) => !readingCall.test(call)),
      ({ call }) => call,
      { ends: true },
    );
    expect(changing.length).toBeGreaterThan(15);
    await inParallel(changing, 2, async (call) => {
      try {
        await work(await copy(String(call.at)), call);
      } catch (error) {
        failures.push(`${call.at} ${call.call}: ${error instanceof Error ? error.message : String(error)}`);
      }
    });
  });
  return failures;
}

test("a prune that is killed before any call leaves a whole run or no _SUCCESS, and the next prune finishes it", async () => {
  const failures = await atEachCall(async (root, { at }) => {
    const fs = hookedDisk(root, {
      before: async (call) => (call >= at ? await Promise.reject(new Error("killed")) : undefined),
    });
    await expect(pruneFirst(root, fs)).rejects.toThrow("killed");
    expect(await faultsForReaders(root)).toEqual([]);
    expect(await pruneFirst(root)).toMatchObject({ kind: "removed" });
    expect([await successOf(root), await partNames(driveFolder(root))]).toEqual([undefined, []]);
    const names = await readdir(driveFolder(root), { recursive: true });
    const [next, pruned] = [runPlan(2).runId, runPlan(1).runId];
    const stays = [`${next}/plan.json`, `${pruned}/plan.json`, `${pruned}/profile.json`, "run.json"];
    expect(names.filter((name) => /\.(json|jsonl|parquet|staged)/.test(name)).toSorted()).toEqual(
      stays.map((name) => `_infer-batch/${name}`),
    );
    expect(await pruneFirst(root)).toMatchObject({ kind: "removed", files: 0 });
  });
  expect(failures).toEqual([]);
});

test("a run that is opened and published while a prune is stopped before any call keeps all of its output", {
  timeout: 300_000,
}, async () => {
  const failures = await atEachCall(async (root, { at }) => {
    const [gate, reached] = [latch<void>(), latch<void>()];
    let published: number | undefined;
    const fs = hookedDisk(root, {
      async before(call) {
        if (call === at) {
          reached.resolve(undefined);
          await gate.promise;
        }
      },
      async after() {
        if (published !== undefined) {
          expect(await successOf(root), "at all times").toBe(published);
        }
      },
    });
    const pruned = pruneFirst(root, fs);
    await reached.promise;
    const next = await carryOutRun(root, 2).then(
      () => 2,
      () => 3, // the tombstone has the number of run 2
    );
    await (next === 3 ? carryOutRun(root, 3) : undefined);
    published = next;
    gate.resolve(undefined);
    await pruned;
    expect(await faultsOfRun(root, next)).toEqual([]);
  });
  expect(failures).toEqual([]);
});
