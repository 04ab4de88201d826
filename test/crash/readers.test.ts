import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { scratchFolder } from "../support/job.js";
import { randomOf } from "../support/random.js";
import { expectNew, type Look, look, type TwoRuns, twoRuns } from "../support/two-runs.js";
import { runWatched } from "../support/watched.js";
import { torture } from "../support/torture.js";

/** INFER_BATCH_TORTURE=1: more rounds. */
const rounds = torture ? 20 : 2;
/** Slow enough for readers to look between any two calls of a swap. */
const pauseMs = "4";
const readers = 2;

/** Looks again and again until `stop`. */
async function readUntil(runs: TwoRuns, stop: { readonly now: boolean }, seen: Look[]): Promise<void> {
  while (!stop.now) {
    seen.push(await look(runs));
    await sleep(1);
  }
}

/** Starts the new run again until it is complete; the first attempts are killed. */
async function newRunThroughKills({ spec, out }: TwoRuns, random: () => number, kills: number): Promise<void> {
  for (let attempt = 0; ; attempt += 1) {
    const { code, stderr } = await runWatched(
      spec,
      { CRASH_ROOT: out, CRASH_PAUSE: pauseMs },
      {
        args: ["--new-run"],
        onStart: (child) => {
          if (attempt < kills) {
            setTimeout(() => child.kill("SIGKILL"), 500 + random() * 1000);
          }
        },
      },
    );
    if (code === 0) {
      return;
    }
    expect(code, stderr).toBeNull();
  }
}

test(`readers count the old rows or the new ones all through new runs and kills (${rounds} rounds)`, {
  timeout: 900_000,
}, async () => {
  const seen: Look[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    await using scratch = await scratchFolder();
    const runs = await twoRuns(scratch.path, 40);
    const stop = { now: false };
    const reading = Promise.all(Array.from({ length: readers }, () => readUntil(runs, stop, seen)));
    await newRunThroughKills(runs, randomOf(round), round - 1);
    stop.now = true;
    await reading;
    seen.push(await look(runs));
    await expectNew(runs);
  }

  expect(seen.filter((one) => typeof one !== "string")).toEqual([]);
  expect(new Set(seen)).toEqual(new Set(["old", "nothing", "new"]));
});
