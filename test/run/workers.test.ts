import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { expectFinished } from "../support/crash.js";
import { refusalOf, spoiltJob } from "../support/faulty.js";
import { goldenRows } from "../support/golden.js";
import { scratch, writeSpec } from "../support/job.js";
import { partNames, spanOfName } from "../support/output.js";
import { expectAllThere, spoil } from "../support/rejects.js";
import { leaveUnfinished, runSpec, scoreHere, workerOf } from "../support/score.js";
import { firstOf, torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");

/** 442 rows in 12 spans of 40, the last one of 2. */
async function job(folder: string, commitRows = 40): Promise<{ spec: string; out: string }> {
  return { spec: await writeSpec(folder, fixture, { commit_rows: commitRows }), out: join(folder, "out") };
}

async function spansIn(out: string): Promise<number[]> {
  return (await partNames(out)).map(spanOfName);
}

async function finished(out: string): Promise<void> {
  await expectFinished(out, { golden: await goldenRows(fixture) });
}

/** By span, which worker the manifest says made it. */
async function makersOf(out: string): Promise<string[]> {
  const { parts } = JSON.parse(await readFile(join(out, "_manifest.json"), "utf8")) as {
    parts: { maker: { worker: number; workers: number } }[];
  };
  return parts.map(({ maker }) => `${maker.worker}/${maker.workers}`);
}

describe("workers one after the other", () => {
  test("each do their share; the last one finishes the run", async () => {
    const { spec, out } = await job(scratch.path);

    expect(await scoreHere(spec, workerOf(2, 3))).toMatchObject({
      status: "partial",
      rowsPlanned: 442,
      rowsScored: 122,
      spansCommitted: 4,
      spansResumed: 0,
    });
    expect(await spansIn(out)).toEqual([8, 9, 10, 11]);
    expect(await scoreHere(spec, workerOf(0, 3))).toMatchObject({
      status: "partial",
      rowsScored: 160,
      spansCommitted: 8,
      spansResumed: 4,
    });
    expect(await scoreHere(spec, workerOf(0, 3))).toMatchObject({
      status: "partial",
      rowsScored: 0,
      spansCommitted: 8,
    });
    expect(await readdir(out)).not.toContain("_SUCCESS");
    expect(await scoreHere(spec, workerOf(1, 3))).toMatchObject({
      status: "complete",
      rowsScored: 160,
      spansCommitted: 12,
      spansResumed: 8,
    });
    await finished(out);
    expect(await makersOf(out)).toEqual(["0/3", "1/3", "2/3"].flatMap((maker) => Array<string>(4).fill(maker)));
    for (const index of [0, 1, 2]) {
      expect((await scoreHere(spec, workerOf(index, 3))).status).toBe("already_complete");
    }
  });

  test("workers that run one after the other succeed when there are more workers than spans", async () => {
    const { spec, out } = await job(scratch.path, 200);
    const statuses: string[] = [];
    for (const index of [3, 0, 4, 1, 2]) {
      statuses.push((await scoreHere(spec, workerOf(index, 5))).status);
    }
    expect(statuses.filter((status) => status !== "partial").length).toBeGreaterThan(0);
    await finished(out);
  });

  test("workers may have other counts from one attempt to the next", async () => {
    const { spec, out } = await job(scratch.path);
    await scoreHere(spec, workerOf(1, 2));
    expect(await spansIn(out)).toEqual([6, 7, 8, 9, 10, 11]);
    expect(await scoreHere(spec, workerOf(1, 3))).toMatchObject({ status: "partial", rowsScored: 80 });
    expect(await scoreHere(spec)).toMatchObject({ status: "complete", rowsScored: 160 });
    await finished(out);
  });
});

test("a worker that died leaves its share to its own next attempt", async () => {
  const { spec, out } = await job(scratch.path);
  await scoreHere(spec, workerOf(0, 2));
  expect((await scoreHere(spec, workerOf(0, 2))).status).toBe("partial");
  expect(await spansIn(out)).toEqual([0, 1, 2, 3, 4, 5]);
  expect((await scoreHere(spec, workerOf(1, 2))).status).toBe("complete");
  await finished(out);
});

test("a worker with --steal does the share of a worker that died, and finishes the run", async () => {
  const { spec, out } = await job(scratch.path);

  expect(await scoreHere(spec, { ...workerOf(2, 4), steal: true })).toMatchObject({
    status: "complete",
    rowsScored: 442,
    spansCommitted: 12,
    spansResumed: 0,
  });
  await finished(out);
  expect(new Set(await makersOf(out))).toEqual(new Set(["2/4"]));
  expect((await scoreHere(spec, workerOf(0, 4))).status).toBe("already_complete");
});

test("real workers at once, each share twice, some stealing, score every row once", async () => {
  const { spec, out } = await job(scratch.path, 20);
  const shares = [["0/2"], ["1/2"], ["1/2"], ["2/3", "--steal"]];

  const results = await Promise.all(
    shares.map((share) => runSpec(spec, { ownProcess: true, args: ["--worker", ...share] })),
  );

  for (const { code, stderr, summary } of results) {
    expect(code, stderr).toBe(0);
    expect(summary).toMatchObject({ rows_planned: 442, spans_planned: 23 });
    expect(summary?.spans_committed === 23).toBe(summary?.status !== "partial");
  }
  expect(results.filter(({ summary }) => summary?.status !== "partial").length).toBeGreaterThan(0);
  await finished(out);
  expect(await runSpec(spec, { args: ["--worker", "0/2"] })).toMatchObject({
    code: 0,
    summary: { status: "already_complete" },
  });
});

test("max_rejects counts the rows that all workers set aside", async () => {
  const spoilt = [10, 110, 210, 310, 410].map((row) => spoil(row, "bmi", "NULL", "null", null));
  const settings = { on_bad_row: "reject", commit_rows: 50 };
  const spoiled = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, { ...settings, max_rejects: 4 });

  // Neither of them set aside more than the limit; together they did.
  expect(await scoreHere(spoiled.spec, workerOf(0, 2))).toMatchObject({ status: "partial", rowsRejected: 2 });
  expect(await refusalOf(scoreHere(spoiled.spec, workerOf(1, 2)))).toMatch(
    /^65 TOO_MANY_REJECTS\nscoring: 5 rows could not be scored, max_rejects is 4; the last: /,
  );
  expect(await readdir(spoiled.out)).not.toContain("_SUCCESS");
  await spoiled.rewrite({ ...settings, max_rejects: 5 });
  expect((await scoreHere(spoiled.spec, workerOf(1, 2))).status).toBe("complete");
  await expectAllThere(spoiled, spoilt);
});

test("max_rejects counts at the end the rows that several workers rejected at the same time", async () => {
  const spoilt = [10, 410].map((row) => spoil(row, "bmi", "NULL", "null", null));
  const settings = { on_bad_row: "reject", commit_rows: 20 };
  const spoiled = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, { ...settings, max_rejects: 1 });

  const outcomes = await Promise.allSettled([0, 1].map((index) => scoreHere(spoiled.spec, workerOf(index, 2))));

  // One may have ended before the other one met its bad row; the last one must not have finished the run.
  expect(outcomes.map(({ status }) => status)).toContain("rejected");
  expect(await readdir(spoiled.out)).not.toContain("_SUCCESS");
  await spoiled.rewrite({ ...settings, max_rejects: 2 });
  await scoreHere(spoiled.spec, { ...workerOf(0, 2), steal: true });
  await expectAllThere(spoiled, spoilt);
});

/** Spans enough for two processes to meet in. */
const digits = fixtureNamed("digits-lightgbm");
const commitRows = torture ? 20 : 90;
const spans = Math.ceil(1797 / commitRows);
/** The test of real workers above begins a run, too. */
const rounds = [2, 1, 3, 4].map((round) => ({ round, processes: 2 })).concat({ round: 5, processes: 3 });

describe("processes started at the same moment on one run", () => {
  test.each(firstOf(rounds))(
    "all exit 0 and each row is there once (round $round, $processes processes)",
    async ({ processes, round }) => {
      const spec = await writeSpec(scratch.path, digits, { commit_rows: commitRows, engine: { batch_size: round } });
      const out = join(scratch.path, "out");
      // Every other round starts from an unfinished run: then neither writes a plan.
      if (round % 2 === 0) {
        await leaveUnfinished(spec, out, (span) => span % 3 === 0);
      }

      const results = await Promise.all(Array.from({ length: processes }, () => runSpec(spec, { ownProcess: true })));

      for (const { code, stderr, summary } of results) {
        expect(code, stderr).toBe(0);
        expect(["complete", "already_complete"]).toContain(summary?.status);
        expect(summary).toMatchObject({ rows_planned: 1797, spans_committed: spans });
      }
      await expectFinished(out, { golden: await goldenRows(digits) });
      expect((await runSpec(spec)).summary).toMatchObject({ status: "already_complete" });
    },
  );
});
