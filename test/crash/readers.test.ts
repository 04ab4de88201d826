import { existsSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { scratchFolder } from "../support/job.js";
import { randomOf } from "../support/random.js";
import { expectNew, type Look, look, type TwoRuns, twoRuns } from "../support/two-runs.js";
import { runWatched } from "../support/watched.js";
import { torture } from "../support/torture.js";
import { until } from "../support/waiting.js";

/** INFER_BATCH_TORTURE=1: more rounds. */
const rounds = torture ? 20 : 1;
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

/**
 * Starts the new run again until it is complete. The first attempts are killed when they are under way; the last one
 * stands still before its `_SUCCESS` until `seenAmid` says that readers have looked.
 */
async function newRunThroughKills(
  { spec, out }: TwoRuns,
  { random, kills, held }: { random: () => number; kills: number; held: string },
  seenAmid: () => boolean,
): Promise<void> {
  for (let attempt = 0; attempt < kills; attempt += 1) {
    let armed = false;
    const { code, signal, stderr } = await runWatched(
      spec,
      { CRASH_ROOT: out, CRASH_PAUSE: pauseMs },
      {
        args: ["--new-run"],
        onStderr: (seen, child) => {
          if (!armed && /planned run|resuming run/.test(seen)) {
            armed = true;
            setTimeout(() => child.kill("SIGKILL"), random() * 800);
          }
        },
      },
    );
    expect(signal === "SIGKILL" || code === 0, stderr).toBe(true); // faster than the blow: the next is one more new run
  }
  const state = { ended: false };
  const env = { CRASH_ROOT: out, CRASH_PAUSE: pauseMs, CRASH_AT: "hold rename _SUCCESS #1", CRASH_HOLD: held };
  const last = runWatched(spec, env, { args: ["--new-run"] }).finally(() => {
    state.ended = true;
  });
  await until(() => state.ended || (existsSync(held) && seenAmid()));
  await rm(held, { force: true });
  const { code, stderr } = await last;
  expect(code, stderr).toBe(0);
}

test(`readers count the old rows or the new ones all through new runs and kills (${rounds} rounds)`, {
  timeout: 900_000,
}, async () => {
  const seen: Look[] = [];
  for (let round = 1; round <= rounds; round += 1) {
    await using scratch = await scratchFolder();
    const runs = await twoRuns(scratch.path, 40);
    const stop = { now: false };
    const before = seen.length;
    const reading = Promise.all(Array.from({ length: readers }, () => readUntil(runs, stop, seen)));
    await until(() => seen.length > before);
    const how = { random: randomOf(round), kills: round - 1, held: join(scratch.path, "held") };
    await newRunThroughKills(runs, how, () => seen.slice(before).includes("nothing"));
    stop.now = true;
    await reading;
    seen.push(await look(runs));
    await expectNew(runs);
  }

  expect(seen.filter((one) => typeof one !== "string")).toEqual([]);
  expect(new Set(seen)).toEqual(new Set(["old", "nothing", "new"]));
});
