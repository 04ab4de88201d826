import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectFinished, failuresOf } from "../support/crash.js";
import { scratchFolder } from "../support/job.js";
import { listing } from "../support/output.js";
import { scoreHere } from "../support/score.js";
import { tellingCalls, torture } from "../support/torture.js";
import { until } from "../support/waiting.js";
import { runWatched, traceOf, watchedJob } from "../support/watched.js";
import { expectEnd } from "../support/cli.js";

const parallelRuns = 2;

/** Holds one process before a call, lets another carry the whole run out, and lets the first go on. */
async function supersede(call: string): Promise<void> {
  await using scratch = await scratchFolder();
  const { spec, out, expected } = await watchedJob(scratch.path);
  const held = join(scratch.path, "held");
  const state = { ended: false };
  const slow = runWatched(spec, { CRASH_ROOT: out, CRASH_AT: `hold ${call}`, CRASH_HOLD: held }).finally(() => {
    state.ended = true;
  });
  await until(() => existsSync(held) || state.ended);
  expect(state.ended, "the call was reached").toBe(false);

  let parts: string[];
  try {
    await scoreHere(spec);
    await expectFinished(out, expected);
    parts = await partsIn(out);
  } finally {
    await rm(held, { force: true });
  }

  await expectEnd(slow, 0);
  await expectFinished(out, expected);
  expect(await partsIn(out), "the first writer wins").toEqual(parts);
  expect((await scoreHere(spec)).status).toBe("already_complete");
}

/** The parts with their inodes and times. */
async function partsIn(out: string): Promise<string[]> {
  return (await listing(out)).filter((line) => line.startsWith("part-"));
}

/**
 * Others see the same before a flush and after it, before and after a temporary text is written, which is nobody else's,
 * and before and after a folder is made that is there: the short form leaves these out, and takes every sixth one of the
 * rest; sink/parquet/local/superseded-runs.test.ts stops an attempt at them without a process.
 */
async function momentsOf(): Promise<string[]> {
  const calls = tellingCalls(await traceOf(), (call) => call, { ends: true });
  const unseen = /^sync |^(?:create|write) control\/tmp\/|^mkdir (?:_infer-batch|control) #2$/;
  return torture ? calls : calls.filter((call) => !unseen.test(call)).filter((_, index) => index % 6 === 0);
}

test("a process that another one supersedes at any durable call ends well and does no harm", {
  timeout: 600_000,
}, async () => {
  const how = { limit: parallelRuns, name: (call: string) => `superseded before ${call}` };
  const failures = await failuresOf(await momentsOf(), how, supersede);

  expect(failures).toEqual([]);
});
