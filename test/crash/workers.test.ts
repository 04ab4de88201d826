import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { type RunningCli } from "../support/cli.js";
import { expectFinished, inspectWreck } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { randomOf } from "../support/random.js";
import { join } from "node:path";
import { runWatched } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";
import { torture } from "../support/torture.js";

const workers = 4;
/** Of all workers together; then they are left alone. */
const kills = torture ? 60 : 6;
const waitMs = torture ? [500, 3000] : [300, 900];
/** Before each call that makes something durable: the run takes as long as the kills do. */
const pauseMs = torture ? "150" : "25";
const commitRows = 20;
const fixture = fixtureNamed("digits-lightgbm");

interface Running {
  child: RunningCli | undefined;
  attempts: number;
  statuses: string[];
}

/** Starts one worker again and again until its share is done. */
async function keepWorking(spec: string, out: string, index: number, state: Running): Promise<void> {
  for (;;) {
    state.attempts += 1;
    const { code, signal, stdout, stderr } = await runWatched(
      spec,
      { CRASH_ROOT: out, CRASH_PAUSE: pauseMs },
      {
        args: ["--worker", `${index}/${workers}`, "--json"],
        onStart: (child) => {
          state.child = child;
        },
      },
    );
    state.child = undefined;
    if (signal !== "SIGKILL") {
      expect(code, stderr).toBe(0);
      state.statuses.push((JSON.parse(stdout.trimEnd()) as { status: string }).status);
      return;
    }
  }
}

test(`four workers, ${kills} times one of them killed and started again, score every row once`, {
  timeout: 1_200_000,
}, async () => {
  await using scratch = await scratchFolder();
  const spec = await writeSpec(scratch.path, fixture, { commit_rows: commitRows, engine: { batch_size: 20 } });
  const out = join(scratch.path, "out");
  const expected = { golden: await goldenRows(fixture), commitRows };
  const random = randomOf(Date.now());
  const running = Array.from({ length: workers }, (): Running => ({ child: undefined, attempts: 0, statuses: [] }));
  const ends = { count: 0 };
  const working = running.map((state, index) =>
    keepWorking(spec, out, index, state).finally(() => {
      ends.count += 1;
    }),
  );

  let killed = 0;
  const [least = 0, most = 0] = waitMs;
  while (killed < kills && ends.count < workers) {
    await sleep(least + random() * (most - least));
    const victims = running.filter(({ child }) => child !== undefined);
    killed += victims[Math.floor(random() * victims.length)]?.child?.kill("SIGKILL") === true ? 1 : 0;
    await inspectWreck(out, expected, "");
  }
  await Promise.all(working);

  await expectFinished(out, expected);
  const statuses = running.flatMap((state) => state.statuses);
  expect(statuses.filter((status) => status !== "partial").length).toBeGreaterThan(0);
  const attempts = running.reduce((sum, state) => sum + state.attempts, 0);
  console.info(`${killed} kills, ${attempts} attempts`);
  expect(attempts).toBeGreaterThan(workers);
});
