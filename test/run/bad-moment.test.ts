import { existsSync } from "node:fs";
import { readdir, rm, utimes } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectEnd, type RunningCli } from "../support/cli.js";
import { expectFinished } from "../support/crash.js";
import { holdRun, watching } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { faultsOfFinished, listing, outputRows, partNames } from "../support/output.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { firstOf } from "../support/torture.js";
import { tell, until } from "../support/waiting.js";
import { watchedJob } from "../support/watched.js";
import { fixtureNamed, ownJob } from "../support/world.js";

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

const ofFinish = [
  "rename _manifest.json #1",
  "rename _SUCCESS #1",
  "sync control/tmp/_manifest-json #1",
  "rm control/tmp #1",
];

test.each(firstOf(ofFinish, 2))(
  "SIGTERM before %s during the finish leaves a run that the same command reports as complete",
  async (call) => {
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
  },
);

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

async function partsOf(out: string): Promise<string[]> {
  return (await listing(out)).filter((line) => /^(part-|_SUCCESS|_manifest)/.test(line));
}

describe("an output folder that another attempt plans again during a run", () => {
  /** The same job with other spans: another plan of the same run. */
  const otherRows = 130;

  const ofFinished = [
    "link part-00002 #1",
    "sync control/tmp/part-00003-parquet #1",
    "rename _SUCCESS #1",
    "sync control/tmp/part-00001-parquet #1",
    "link part-00005 #1",
    "write control/tmp/_manifest-json #1",
  ];

  test.each(firstOf(ofFinished, 2))(
    "a run whose folder was planned again and finished leaves it as it is (held before %s)",
    async (call) => {
      const { spec, out, expected } = await watchedJob(scratch.path);
      const run = await holdRun(spec, { out, call, held: join(scratch.path, "held") });
      await rm(out, { recursive: true, maxRetries: 10 }); // the run may be writing into it
      await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { commit_rows: otherRows });
      await scoreHere(spec);
      const before = await partsOf(out);

      await expectEnd(run.release(), 66, /has planned the run again|is gone/);
      expect(await partsOf(out)).toEqual(before);
      expect(differences(await outputRows(out), expected.golden)).toEqual([]);
      expect(await faultsOfFinished(out, 442)).toEqual([]);
    },
  );

  const ofUnfinished = [
    "sync control/tmp/part-00001-parquet #1",
    "write control/tmp/_manifest-json #1",
    "link part-00002 #1",
    "link part-00005 #1",
  ];

  test.each(firstOf(ofUnfinished))(
    "a run whose folder was planned again and not finished adds no part and no _SUCCESS of the old plan (held before %s)",
    async (call) => {
      const { spec, out, expected } = await watchedJob(scratch.path);
      const run = await holdRun(spec, { out, call, held: join(scratch.path, "held") });
      await rm(out, { recursive: true, maxRetries: 10 }); // the run may be writing into it
      await writeSpec(scratch.path, fixtureNamed("diabetes-mlp"), { commit_rows: otherRows });
      await leaveUnfinished(spec, out, (span) => span === 1);

      await expectEnd(run.release(), 66);
      expect(await readdir(out)).not.toContain("_SUCCESS");
      expect((await partNames(out)).map((name) => name.slice(0, 10))).toEqual(["part-00001"]);
      expect(await scoreHere(spec)).toMatchObject({ status: "complete", spansPlanned: 4, spansResumed: 1 });
      await expectFinished(out, expected);
    },
  );
});
