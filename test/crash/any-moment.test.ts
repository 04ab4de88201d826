import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { type RunningCli, runCli } from "../support/cli.js";
import { expectFewDoneAgain, expectFinished, failuresOf, inspectWreck, type Wreck } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { fixtures, scratchFolder, writeSpec } from "../support/job.js";
import type { Expected } from "../support/output.js";
import { randomOf } from "../support/random.js";
import { runSpec } from "../support/score.js";
import { torture } from "../support/torture.js";

const fixture = fixtures.find(({ name }) => name === "digits-lightgbm");
const commitRows = torture ? 20 : 40;
const spans = Math.ceil(1797 / commitRows);
const parallelRuns = 2;
/** INFER_BATCH_TORTURE=1: more moments. */
const moments = torture ? 100 : 2;

interface Pace {
  /** From the start of the process until it has a plan, and from then on for each span. */
  readonly planMs: number;
  readonly spanMs: number;
}

async function prepare(folder: string): Promise<{ spec: string; out: string; expected: Expected }> {
  if (fixture === undefined) {
    throw new Error("the fixture is gone");
  }
  const spec = await writeSpec(folder, fixture, { commit_rows: commitRows, engine: { threads: 2, batch_size: 4 } });
  return { spec, out: join(folder, "out"), expected: { golden: await goldenRows(fixture), commitRows } };
}

const underWay = /planned run|resuming run/;

/** How long an undisturbed run takes here and now. */
async function paceOf(): Promise<Pace> {
  await using scratch = await scratchFolder();
  const { spec, out, expected } = await prepare(scratch.path);
  const start = performance.now();
  let planned = start;
  const { code, stderr } = await runCli(["run", spec], {
    onStderr: (seen) => {
      planned = planned === start && underWay.test(seen) ? performance.now() : planned;
    },
  });
  expect(code, stderr).toBe(0);
  await expectFinished(out, expected);
  return { planMs: planned - start, spanMs: (performance.now() - planned) / spans };
}

/**
 * Sends SIGKILL from outside: one time in five before there is a plan, else at any moment after, by the spans that it
 * has told of and a share of the next one, so that it comes in the middle whatever else the machine does. `left`: spans
 * that are not committed yet.
 */
async function runAndKill(
  spec: string,
  random: () => number,
  { planMs, spanMs, left }: Pace & { readonly left: number },
): Promise<{ killed: boolean; stderr: string }> {
  const early = random() < 0.2;
  const spansFirst = Math.floor(random() * (left + 1));
  const delayMs = random() * (early ? planMs : spanMs);
  let armed = false;
  const arm = (child: RunningCli): void => {
    if (!armed) {
      armed = true;
      setTimeout(() => child.kill("SIGKILL"), delayMs);
    }
  };
  const result = await runCli(["run", spec, "--log-level", "debug", "--no-progress"], {
    onStart: (child) => {
      if (early) {
        arm(child);
      }
    },
    onStderr: (seen, child) => {
      if (underWay.test(seen) && [...seen.matchAll(/span \d+ committed/g)].length >= spansFirst) {
        arm(child);
      }
    },
  });
  if (result.signal !== "SIGKILL") {
    expect(result.code, result.stderr).toBe(0); // it was faster than the blow
  }
  return { killed: result.signal === "SIGKILL", stderr: result.stderr };
}

/** Kills a run once or several times in a row and lets it finish; returns what each kill left. */
async function killAtRandom(seed: number, pace: Pace): Promise<Wreck[]> {
  await using scratch = await scratchFolder();
  const { spec, out, expected } = await prepare(scratch.path);
  const random = randomOf(seed);
  const blows = 1 + Math.floor(random() * 3);
  const wrecks: Wreck[] = [];
  for (let blow = 0; blow < blows; blow += 1) {
    const earlier = wrecks.at(-1)?.committed ?? [];
    const { killed, stderr } = await runAndKill(spec, random, { ...pace, left: spans - earlier.length });
    const wreck = await inspectWreck(out, expected, stderr);
    expectFewDoneAgain(wreck);
    if (killed) {
      expect(earlier.filter((span) => !wreck.committed.includes(span))).toEqual([]); // nothing is taken back
      wrecks.push(wreck);
    }
  }
  const committed = (wrecks.at(-1)?.committed ?? []).length;
  const { code, stderr, summary } = await runSpec(spec);
  expect(code, stderr).toBe(0);
  if (summary?.status === "complete") {
    expect(summary.spans_resumed).toBe(committed);
  }
  await expectFinished(out, expected);
  return wrecks;
}

describe("a run of many spans, killed at random moments", () => {
  test(`a run that is killed at random moments and resumed has each row once, ${moments} seeds`, {
    timeout: 1_200_000,
  }, async () => {
    const pace = await paceOf();
    const wrecks: Wreck[] = [];
    const seeds = Array.from({ length: moments }, (_, index) => index + 1);
    const failures = await failuresOf(seeds, { limit: parallelRuns, name: (seed) => `seed ${seed}` }, async (seed) => {
      wrecks.push(...(await killAtRandom(seed, pace)));
    });

    const left = wrecks.map(({ committed }) => committed.length).toSorted((a, b) => a - b);
    console.info(`seeds 1 to ${moments}: ${wrecks.length} kills, which left ${left.join(", ")} of ${spans} spans`);
    expect(failures).toEqual([]);
    // The blows did land in the middle of runs.
    expect(left.filter((count) => count > 0 && count < spans).length).toBeGreaterThanOrEqual(moments / 3);
  });
});
