import { existsSync, readdirSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, test } from "vitest";
import { type CliResult, expectEnd, runHere } from "../support/cli.js";
import { expectFinished, failuresOf } from "../support/crash.js";
import { goldenRows } from "../support/golden.js";
import { scratch, scratchFolder, writeSpec } from "../support/job.js";
import { listen, type Listener } from "../support/listener.js";
import { listing } from "../support/output.js";
import { scoreHere } from "../support/score.js";
import { tellingCalls, torture } from "../support/torture.js";
import { until } from "../support/waiting.js";
import { commitRows, runWatched, traceOf, watchedJob } from "../support/watched.js";
import { fixtureNamed } from "../support/world.js";

/** The time of day in UTC that is so many minutes away. */
const timeIn = (minutes: number): string => new Date(Date.now() + minutes * 60_000).toISOString().slice(11, 16);

async function lateJob(
  folder: string,
  server: Listener,
  deadline: string,
  input: Readonly<Record<string, string>> = {},
): Promise<string> {
  return await writeSpec(folder, fixtureNamed("diabetes-mlp"), {
    commit_rows: commitRows,
    input,
    report: { deadline, on_late: `${server.url}/late`, method: "post" },
  });
}

/** Whether an attempt has recorded its call of on_late. */
function isRecorded(out: string): boolean {
  const runs = join(out, "_infer-batch");
  return readdirSync(runs).some((run) => existsSync(join(runs, run, "late_told.json")));
}

/** Runs an attempt that stands still before its fourth part, until `isOver`; then kills it. */
async function standStill(spec: string, folder: string, isOver: () => boolean): Promise<CliResult> {
  const held = join(folder, "held");
  const env = { CRASH_ROOT: join(folder, "out"), CRASH_AT: "hold link part-00003 #1", CRASH_HOLD: held };
  const result = await runWatched(spec, env, {
    onStart: (child) => {
      void until(() => existsSync(held) && isOver()).then(() => child.kill("SIGKILL"));
    },
  });
  expect(result.signal, result.stderr).toBe("SIGKILL");
  await rm(held);
  return result;
}

test("a late run calls on_late once, although it is killed after that, resumed by two workers and finished", {
  timeout: 120_000,
}, async () => {
  await using server = await listen();
  const spec = await lateJob(scratch.path, server, timeIn(-1));
  const first = await standStill(spec, scratch.path, () => isRecorded(join(scratch.path, "out")));
  expect(first.stderr).toContain("WARN: the run missed report.deadline");

  for (const args of [["--worker", "0/2"], ["--worker", "1/2"], []]) {
    await expectEnd(runHere(["run", spec, ...args]), 0);
  }

  expect(server.calls.map(({ path }) => path)).toEqual(["/late"]);
  expect(JSON.parse(server.calls[0]?.body ?? "")).toMatchObject({ status: "late", expected_end: null });
});

const runLate = (spec: string): Promise<CliResult> => runHere(["run", spec, "--no-progress"]);

test("a run whose input is late calls on_late once, although each retry is late, and it is scored in the end", async () => {
  await using server = await listen();
  const spec = await lateJob(scratch.path, server, timeIn(-1), { ready: "in/_SUCCESS" });
  for (let retry = 0; retry < 3; retry += 1) {
    await expectEnd(runLate(spec), 75, "WARN: the run missed report.deadline");
  }
  expect(server.calls).toHaveLength(1);
  expect(JSON.parse(server.calls[0]?.body ?? "")).toMatchObject({ status: "late", run_id: null });
  await mkdir(join(scratch.path, "in"));
  await writeFile(join(scratch.path, "in/_SUCCESS"), "");
  const { code, stderr } = await runLate(spec);
  expect([code, server.calls.length], stderr).toEqual([0, 1]);
  await expectFinished(join(scratch.path, "out"), { golden: await goldenRows(fixtureNamed("diabetes-mlp")) });
});

test("a late run whose call of on_late failed is called again by the next attempt, and then no more", async () => {
  let answer = 404;
  await using server = await listen(() => answer);
  const spec = await lateJob(scratch.path, server, timeIn(-1), { ready: "in/_SUCCESS" });
  expect((await runLate(spec)).stderr).toContain("calling report.on_late: HTTP 404");
  answer = 200;
  for (let retry = 0; retry < 2; retry += 1) {
    await expectEnd(runLate(spec), 75);
  }
  expect(server.calls).toHaveLength(2);
});

test("each attempt of a late run calls on_late if the target cannot record it", async () => {
  await using server = await listen();
  const spec = await lateJob(scratch.path, server, timeIn(-1), { ready: "in/_SUCCESS" });
  await writeFile(join(scratch.path, "out"), "no folder");
  for (let retry = 0; retry < 2; retry += 1) {
    await runLate(spec);
  }
  expect(server.calls).toHaveLength(2);
});

const parallelRuns = 2;

/** Holds one process before a call, lets another carry the whole run out, and lets the first go on. */
async function supersede(call: string): Promise<void> {
  await using ownFolder = await scratchFolder();
  const { spec, out, expected } = await watchedJob(ownFolder.path);
  const held = join(ownFolder.path, "held");
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
 * and before and after a folder is made that is there: the short form leaves these out, and takes every ninth one of the
 * rest; sink/parquet/local/superseded-runs.test.ts stops an attempt at them without a process.
 */
async function momentsOf(): Promise<string[]> {
  const calls = tellingCalls(await traceOf(), (call) => call, { ends: true });
  const unseen = /^sync |^(?:create|write) control\/tmp\/|^mkdir (?:_infer-batch|control) #2$/;
  return torture ? calls : calls.filter((call) => !unseen.test(call)).filter((_, index) => index % 9 === 0);
}

test("a process that another one supersedes at any durable call ends well and does no harm", {
  timeout: 600_000,
}, async () => {
  const how = { limit: parallelRuns, name: (call: string) => `superseded before ${call}` };
  const failures = await failuresOf(await momentsOf(), how, supersede);

  expect(failures).toEqual([]);
});
