import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import type { Sink } from "#src/targets/target.js";
import { inParallel } from "../../../support/crash.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { scratchFolder } from "../../../support/job.js";
import { carryOutRun, faultsOfRun, onRunDisk } from "../../../support/run-drive.js";
import { drive, faultsOf, nothingTold } from "../../../support/sink-drive.js";
import { openDiskSink } from "../../../support/sink-options.js";
import { begun } from "../../../support/sinks.js";
import { commitProfiled } from "../../../support/staging-contract.js";
import { decisionOf, stagedPlan, verdictOf } from "../../../support/staged-plans.js";
import { torture } from "../../../support/torture.js";
import { latch } from "../../../support/waiting.js";
import { decisionDocument, verdictDocument } from "#src/stores/ledger.js";

function sinkOf(folder: string, writer: string, fs: FileSystem = nodeFileSystem): Sink {
  return openDiskSink({ folder, fs, writer });
}

interface Finished {
  readonly calls: readonly string[];
  readonly faults: readonly string[];
}

/**
 * Two attempts finish a staged run: the second, which committed none of its spans, stands still before its call `stop` while
 * the first goes to its end.
 */
async function finishTwice(stop: number): Promise<Finished> {
  await using scratch = await scratchFolder();
  const folder = join(scratch.path, "out");
  await using sink = sinkOf(folder, "first");
  const { stored, run } = await begun(sink, stagedPlan(sink.planTarget));
  await commitProfiled(run, stored);
  await run.create(verdictDocument, verdictOf("publish"));
  await run.create(decisionDocument, decisionOf("approved"));
  const calls: string[] = [];
  let isBegun = false;
  const held = hookedDisk(scratch.path, {
    async before(_, call) {
      if (isBegun && calls.push(call) === stop + 1) {
        await run.finish();
      }
    },
  });
  await using other = sinkOf(folder, "second", held);
  const second = await begun(other, stored.plan);
  isBegun = true;
  await second.run.finish();
  const names = await readdir(folder, { recursive: true });
  const control = join(folder, "_infer-batch", stored.plan.runId);
  const sha256 = createHash("sha256")
    .update(await readFile(join(control, "profile.json")))
    .digest("hex");
  const manifest = await readFile(join(folder, "_manifest.json"), "utf8");
  return {
    calls,
    faults: [
      ...names.filter((name) => /\.staged/.test(name)),
      ...(manifest.includes(sha256) ? [] : ["the manifest names another profile"]),
    ],
  };
}

test("a run that another attempt finishes between any two calls of this one is finished, with its profile", async () => {
  const { calls } = await finishTwice(Number.POSITIVE_INFINITY);
  expect(calls.length).toBeGreaterThan(20);
  const stops = [...calls.keys()].filter((at) => torture || at % 9 === 0 || calls[at]?.endsWith("/profile") === true);
  const failures: string[] = [];
  await inParallel(stops, 2, async (stop) => {
    const text = `stopped before ${stop}, ${calls[stop]}`;
    try {
      const { faults } = await finishTwice(stop);
      failures.push(...faults.map((fault) => `${text}: ${fault}`));
    } catch (error) {
      failures.push(`${text}: ${String(error)}`);
    }
  });
  expect(failures).toEqual([]);
});

/**
 * Two attempts: the first one stands still before its call `at`. After the second one's call `amid`, the first one makes that one
 * call, and dies. The second one goes on to its end.
 */
async function meet(
  root: string,
  { at, amid }: { readonly at: RegExp; readonly amid: RegExp },
  attempts: { readonly first: (fs: FileSystem) => Promise<void>; readonly second: (fs: FileSystem) => Promise<void> },
): Promise<void> {
  const standing = latch<void>();
  const gate = latch<void>();
  let isDead = false;
  const stopped = hookedDisk(root, {
    async before(_, call) {
      if (isDead) {
        throw new Error("the process is dead");
      }
      if (at.test(call)) {
        standing.resolve(undefined);
        await gate.promise;
        isDead = true;
      }
    },
  });
  const ended = attempts.first(stopped).catch((error: unknown) => error);
  await standing.promise;
  let hasMet = false;
  const other = hookedDisk(root, {
    async after(_, call) {
      if (!hasMet && amid.test(call)) {
        hasMet = true;
        gate.resolve(undefined);
        await ended;
      }
    },
  });
  await attempts.second(other);
  expect(hasMet).toBe(true);
}

test("a finisher that has read the earlier run's _SUCCESS cannot withdraw the one that another finisher has published", async () => {
  await onRunDisk(2, async (root) => {
    const finish = (fs: FileSystem): Promise<void> => carryOutRun(root, 2, fs);
    await meet(
      root,
      { at: /^rename .*withdrawn/, amid: /^rename lake\/out\/_SUCCESS/ },
      { first: finish, second: finish },
    );
    expect(await faultsOfRun(root, 2)).toEqual([]);
  });
});

test("rejects that were staged for a span that another attempt has committed are not published amid its finish", async () => {
  await onRunDisk(1, async (root) => {
    const told = nothingTold();
    await meet(
      root,
      { at: /^link .*_rejects/, amid: /^rename lake\/out\/_manifest/ },
      {
        first: (fs) => drive({ root, fs, told: nothingTold(), rejected: [4, 5] }),
        second: (fs) => drive({ root, fs, told, isDead: () => false }),
      },
    );
    expect(await faultsOf(root, told)).toEqual([]);
  });
});
