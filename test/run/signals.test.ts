import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import type { CliResult } from "../support/cli.js";
import { projectFolder } from "../support/cli.js";
import { differences } from "../support/golden.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { faultsOfFinished, listing, outputRows, partNames, spanOfName } from "../support/output.js";
import { readRows, writeRows } from "../support/parquet.js";
import { leaveUnfinished, runSpec, scoreHere } from "../support/score.js";
import { fixtureNamed } from "../support/world.js";

const fixture = fixtureNamed("diabetes-mlp");
const commitRows = 500;
/** 442 rows, 100 times over: tens of thousands of calls of the model at one row each. */
const copies = 100;
const rowCount = 442 * copies;

interface SlowJob {
  readonly spec: string;
  readonly out: string;
  /** From now on in batches of many rows: what is left when the run was stopped is soon done. */
  hurry(): Promise<void>;
  /** As it is at first. */
  slowDown(): Promise<void>;
}

async function slowJob(folder: string): Promise<SlowJob> {
  await mkdir(join(folder, "in"));
  await writeRows(
    join(folder, "in/many.parquet"),
    `SELECT t.* REPLACE (t.id + 442 * copy AS id) FROM read_parquet('${join(projectFolder, "fixtures/data/diabetes/*.parquet")}') t,
       range(${copies}) AS c(copy) ORDER BY copy, t.id`,
  );
  const write = (batchRows: number): Promise<string> =>
    writeSpec(folder, fixture, {
      input: { path: "in/many.parquet" },
      engine: { batch_size: batchRows },
      commit_rows: commitRows,
    });
  return {
    spec: await write(1),
    out: join(folder, "out"),
    async hurry() {
      await write(4096);
    },
    async slowDown() {
      await write(1);
    },
  };
}

interface Stopped extends CliResult {
  readonly stopMs: number;
}

/** Runs until `when` is seen on stderr, then sends `signals` after a while, 30 ms apart. */
async function stopAt(spec: string, when: RegExp, signals: readonly NodeJS.Signals[], delayMs = 0): Promise<Stopped> {
  let sentMs: number | undefined;
  const result = await runSpec(spec, {
    args: ["--log-level", "debug"],
    onStderr: (seen, child) => {
      if (sentMs === undefined && when.test(seen)) {
        sentMs = performance.now() + delayMs;
        for (const [index, signal] of signals.entries()) {
          setTimeout(() => child.kill(signal), delayMs + 30 * index);
        }
      }
    },
  });
  return { ...result, stopMs: performance.now() - (sentMs ?? Number.NaN) };
}

describe("a run that is told to stop", () => {
  test.each([
    { signal: "SIGTERM", exit: 143 },
    { signal: "SIGINT", exit: 130 },
  ] as const)(
    "ends with $exit within 5 s of $signal, keeps what is committed and can be resumed",
    async ({ signal, exit }) => {
      await using scratch = await scratchFolder();
      const job = await slowJob(scratch.path);
      const { spec, out } = job;

      const { code, stderr, stdout, stopMs } = await stopAt(spec, /span 3 committed/, [signal]);

      expect(code, stderr).toBe(exit);
      expect(stopMs).toBeLessThan(5000);
      expect(stderr).toMatch(new RegExp(`stopping on ${signal}: committed spans are kept`));
      expect(stdout).toBe("");
      const committed = (await partNames(out)).map(spanOfName);
      expect(committed.length).toBeGreaterThanOrEqual(4);
      expect(committed.length).toBeLessThan(rowCount / commitRows - 4);

      await job.hurry();
      const report = await scoreHere(spec);
      expect(report).toMatchObject({ status: "complete", spansResumed: committed.length });
      expect(report.rowsScored).toBe(rowCount - committed.length * commitRows);
      await expectAllRows(out);
    },
  );

  test("ends with 143 and without _SUCCESS when it is told so while it takes up an unfinished run", async () => {
    await using scratch = await scratchFolder();
    const job = await slowJob(scratch.path);
    const { spec, out } = job;
    await job.hurry();
    const kept = await leaveUnfinished(spec, out, (span) => span < 40);
    await job.slowDown();

    const { code } = await stopAt(spec, /taking up run/, ["SIGTERM"]);

    expect(code).toBe(143);
    expect((await partNames(out)).slice(0, kept.length)).toEqual(kept);
    expect((await listing(out)).filter((line) => line.startsWith("_SUCCESS"))).toEqual([]);
    await job.hurry();
    await scoreHere(spec);
    await expectAllRows(out);
  });

  test("ends at once, by the signal itself, when it is told again", async () => {
    await using scratch = await scratchFolder();
    const spec = await longCall(scratch.path);

    // The model is inside one call that takes seconds.
    const { code, signal, stopMs } = await stopAt(spec, /planned run/, ["SIGTERM", "SIGTERM"], 2500);

    expect({ code, signal }).toEqual({ code: null, signal: "SIGTERM" });
    expect(stopMs).toBeLessThan(1000);
  });
});

/** One batch of 600,000 rows through 200 trees, on one thread: read in about a second, scored in many. */
async function longCall(folder: string): Promise<string> {
  await mkdir(join(folder, "in"));
  const columns = Array.from({ length: 64 }, (_, index) => `(row % ${index + 2})::FLOAT AS f${index}`);
  await writeRows(join(folder, "in/a.parquet"), `SELECT row AS id, ${columns.join(", ")} FROM range(600000) AS t(row)`);
  return await writeSpec(folder, fixtureNamed("digits-lightgbm"), {
    input: { path: "in/a.parquet" },
    engine: { batch_size: 600_000 },
    commit_rows: 600_000,
  });
}

async function expectAllRows(out: string): Promise<void> {
  const once = await readRows(join(projectFolder, "fixtures/golden/diabetes-mlp.parquet"));
  const expected = Array.from({ length: copies }, (_, copy) =>
    once.map(({ id, score }) => ({ id: (id as bigint) + BigInt(442 * copy), score })),
  ).flat();
  expect(differences(await outputRows(out), expected)).toEqual([]);
  expect(await faultsOfFinished(out, rowCount)).toEqual([]);
}
