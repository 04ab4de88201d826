import { appendFile, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { expectFinished } from "../support/crash.js";
import { holdRun, refusalOf, watching } from "../support/faulty.js";
import { goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { runSpec, scoreHere, workerOf } from "../support/score.js";
import { type OwnJob, ownJob } from "../support/world.js";
import { firstOf } from "../support/torture.js";
import { expectEnd } from "../support/cli.js";

/** 178 wines in 4 spans of 50. */
const settings = { commit_rows: 50 };
const id = "wine-forest-4f53cda18c2b";

/** Runs the command and kills it at a call, as preload.mjs names them. */
async function kill({ spec, out }: OwnJob, at: string, args: readonly string[] = []): Promise<void> {
  const result = await runSpec(spec, { args, ...watching(out, { CRASH_AT: at }) });
  expect(result.signal, result.stderr).toBe("SIGKILL");
}

async function takeInputAway({ spec, model }: OwnJob): Promise<void> {
  await rm(model);
  await rm(join(spec, "../in"), { recursive: true });
}

const finished = { status: "complete", rows_scored: 0, spans_committed: 4, spans_resumed: 4 };

async function expectWhole(job: OwnJob): Promise<void> {
  await expectFinished(job.out, { golden: await goldenRows(job.fixture) });
}

test.each(["before rename _manifest.json #1", "before rename _SUCCESS #1"])(
  "a run whose spans were all committed when it was killed (%s) is finished without model and shards",
  async (at) => {
    const job = await ownJob(scratch.path, "wine-forest", settings);
    await kill(job, at);
    await takeInputAway(job);

    const { summary } = await expectEnd(runSpec(job.spec), 0);
    expect(summary).toMatchObject({ ...finished, provider: null, batch_size: null });
    await expectWhole(job);
    expect((await scoreHere(job.spec)).status).toBe("already_complete");
  },
);

const moments = [
  { at: "before link part-00001 #1", newRun: true },
  { at: "before rename _SUCCESS #1", newRun: false },
  { at: "before mkdir control/withdrawn #1", newRun: true }, // all parts have their names
  { at: "after rename control/withdrawn/own/_SUCCESS #1", newRun: false },
];

test.each(firstOf(moments, 2))(
  "a run that was killed when all was committed as a new run ($at) is finished, with --new-run: $newRun",
  async ({ at, newRun }) => {
    const job = await ownJob(scratch.path, "wine-forest", settings);
    await scoreHere(job.spec);
    await kill(job, at, ["--new-run"]);
    await takeInputAway(job);

    const report = await scoreHere(job.spec, { newRun });

    expect(report).toMatchObject({ runId: `${id}-r2`, status: "complete", rowsScored: 0, spansResumed: 4 });
    await expectWhole(job);
  },
);

test("a run that was killed when all was committed ends with 66 over another model, and --new-run abandons it", async () => {
  const job = await ownJob(scratch.path, "wine-forest", settings);
  await kill(job, "before rename _SUCCESS #1");
  // An unknown field at the end of the protobuf: another digest, the same model.
  await appendFile(job.model, Buffer.from([0xa0, 0x1f, 0x01]));

  expect(await refusalOf(scoreHere(job.spec))).toMatch(/^66 MODEL_CHANGED/);
  expect(await readdir(job.out)).not.toContain("_SUCCESS");
  expect(await scoreHere(job.spec, { newRun: true })).toMatchObject({ runId: `${id}-r2`, rowsScored: 178 });
  await expectWhole(job);
});

test("a run that was killed when all was committed is finished by a worker whose share was already done", async () => {
  const job = await ownJob(scratch.path, "wine-forest", settings);
  expect((await scoreHere(job.spec, workerOf(0, 2))).status).toBe("partial");
  await kill(job, "before rename _manifest.json #1", ["--worker", "1/2"]);
  await takeInputAway(job);

  expect(await scoreHere(job.spec, workerOf(0, 2))).toMatchObject({ status: "complete", provider: null });
  await expectWhole(job);
});

test("a worker whose share is committed needs no model, unless it takes over spans of others", async () => {
  const job = await ownJob(scratch.path, "wine-forest", settings);
  await scoreHere(job.spec, workerOf(0, 2));
  await rm(job.model);

  expect(await scoreHere(job.spec, workerOf(0, 2))).toMatchObject({ status: "partial", spansCommitted: 2 });
  await expect(scoreHere(job.spec, { ...workerOf(0, 2), steal: true })).rejects.toThrow(/there is no such file/);
});

test("a worker whose share is committed finishes the run when other workers have committed theirs meanwhile", async () => {
  const job = await ownJob(scratch.path, "wine-forest", settings);
  await scoreHere(job.spec, workerOf(0, 2));
  const held = join(scratch.path, "held");
  const call = "unlink control/tmp/probe-link #1";
  const idle = await holdRun(job.spec, { out: job.out, call, held, args: ["--worker", "0/2"] });
  await kill(job, "before rename _manifest.json #1", ["--worker", "1/2"]);

  const { stdout } = await expectEnd(idle.release(), 0);
  expect(JSON.parse(stdout)).toMatchObject(finished);
  await expectWhole(job);
});
