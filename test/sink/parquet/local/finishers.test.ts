import { createHash } from "node:crypto";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type FileSystem, nodeFileSystem } from "#src/stores/disk.js";
import type { Sink } from "#src/sink/port.js";
import { inParallel } from "../../../support/crash.js";
import { hookedDisk } from "../../../support/hooked-disk.js";
import { scratchFolder } from "../../../support/job.js";
import { openDiskSink } from "../../../support/sink-options.js";
import { begun } from "../../../support/sinks.js";
import { commitProfiled } from "../../../support/staging-contract.js";
import { decisionOf, stagedPlan, verdictOf } from "../../../support/staged-plans.js";
import { torture } from "../../../support/torture.js";

function sinkOf(folder: string, writer: string, fs: FileSystem = nodeFileSystem): Sink {
  return openDiskSink({ folder, fs, writer, isDead: () => false });
}

/** What two attempts that finish a run leave, and the calls of the second one. */
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
  await run.judge(verdictOf("publish"));
  await run.decide(decisionOf("approved"));
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
