import { existsSync } from "node:fs";
import { rm, utimes } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { RunningCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { watching } from "../support/faulty.js";
import { goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { listing } from "../support/output.js";
import { runSpec, scoreHere } from "../support/score.js";
import { watchedJob } from "../support/watched.js";
import { tell, until } from "../support/waiting.js";
import { fixtureNamed, ownJob } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

/** 30 spans in small batches: long enough to be stopped in. */
const fixture = fixtureNamed("digits-lightgbm");
const slow = { commit_rows: 60, engine: { batch_size: 2, threads: 1 } };

async function partsIn(out: string): Promise<string[]> {
  return (await listing(out)).filter((line) => line.startsWith("part-"));
}

test("a process that is stopped while another one finishes the run continues, adopts all spans and exits with 0", async () => {
  const spec = await writeSpec(scratch.path, fixture, slow);
  const out = join(scratch.path, "out");
  const stopped: RunningCli[] = [];
  const first = runSpec(spec, {
    args: ["--log-level", "debug"],
    onStderr: (seen, child) => {
      if (stopped.length === 0 && seen.includes("span 3 committed")) {
        stopped.push(child);
        child.kill("SIGSTOP");
      }
    },
  });
  await until(() => stopped.length > 0);

  await writeSpec(scratch.path, fixture, { commit_rows: slow.commit_rows }); // in large batches: it is soon done
  const second = await runSpec(spec);
  const parts = await partsIn(out);
  stopped[0]?.kill("SIGCONT");

  const { code, stderr, summary } = await first;
  expect(second.code, second.stderr).toBe(0);
  expect(second.summary?.status).toBe("complete");
  expect(code, stderr).toBe(0);
  expect(summary).toMatchObject({ status: "complete", rows_planned: fixture.rows });
  expect(await partsIn(out), "the first writer wins").toEqual(parts);
  await expectFinished(out, { golden: await goldenRows(fixture) });
  expect((await runSpec(spec)).summary?.status).toBe("already_complete");
});

test.each([
  "sync control/tmp/_manifest-json #1",
  "rename _manifest.json #1",
  "rename _SUCCESS #1",
  "rm control/tmp #1",
])("SIGTERM before %s during the finish leaves a run that the same command reports as complete", async (call) => {
  const { spec, out, expected } = await watchedJob(scratch.path);
  const held = join(scratch.path, "held");
  const state: { child?: RunningCli; ended: boolean } = { ended: false };
  const run = runSpec(spec, {
    ...watching(out, { CRASH_AT: `hold ${call}`, CRASH_HOLD: held }),
    onStart: (started) => {
      state.child = started;
    },
  }).finally(() => {
    state.ended = true;
  });
  await until(() => existsSync(held) || state.ended);
  expect(state.ended, "the call was reached").toBe(false);

  await (state.child && tell(state.child, "SIGTERM"));
  await rm(held);

  const { code, stderr } = await run;
  expect([0, 143], stderr).toContain(code);
  const report = await scoreHere(spec);
  expect(report.status).toBe(code === 0 ? "already_complete" : "complete");
  expect(report.rowsScored).toBe(0);
  await expectFinished(out, expected);
});

describe("a clock", () => {
  /** Each look at the calendar is another day, the last one or the next; Node's own timers do not see it. */
  const jumping = `data:text/javascript,${encodeURIComponent(
    "const now = Date.now; let day = 0; Date.now = () => now() + 86400000 * (day++ % 2 === 0 ? -day : day);",
  )}`;

  test("a clock that jumps by days during a run changes neither its id nor its rows", async () => {
    const spec = await writeSpec(scratch.path, fixture, { ...slow, params: { ds: "${today}" } });

    const { summary } = await expectEnd(runSpec(spec, { node: [`--import=${jumping}`] }), 0);
    expect(summary).toMatchObject({ status: "complete", rows_scored: fixture.rows });
    expect(summary).toHaveProperty(
      "seconds",
      expect.toSatisfy((seconds: number) => seconds > 0 && seconds < 120),
    );
    await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixture) });
  });

  test("a run accepts shards with a modification time in the future", async () => {
    const job = await ownJob(scratch.path, "wine-forest", { commit_rows: 50 });
    for (const shard of job.shards) {
      await utimes(shard, new Date("2100-01-01"), new Date("2100-01-01"));
    }
    await scoreHere(job.spec);
    await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
  });
});
