import { execFileSync } from "node:child_process";
import { readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { holdRun, refusalOf, spoiltJob, watching } from "../support/faulty.js";
import { differences, goldenRows } from "../support/golden.js";
import { scratch } from "../support/job.js";
import { faultsOfFinished, listing, outputRows, partNames } from "../support/output.js";
import { expectAllThere, nameOfRejects, rejectNames, spoil } from "../support/rejects.js";
import { runSpec, scoreHere, workerOf } from "../support/score.js";
import { type OwnJob, ownJob } from "../support/world.js";
import { expectEnd } from "../support/cli.js";

const newRun = { newRun: true };
/** 178 wines in 4 spans of 50. */
const settings = { commit_rows: 50 };
const id = "wine-forest-4f53cda18c2b";
const later = new Date("2026-01-02T00:00:00Z");

/** Every row once, all of the n-th run, and nothing of another one left. */
async function expectRun({ out, fixture }: OwnJob, number: number): Promise<void> {
  const run = number === 1 ? id : `${id}-r${number}`;
  expect(differences(await outputRows(out), await goldenRows(fixture))).toEqual([]);
  expect(await faultsOfFinished(out, fixture.rows)).toEqual([]);
  expect((await partNames(out)).map((name) => name.slice("part-00000.".length))).toEqual(
    Array<string>(4).fill(`${run}.parquet`),
  );
  expect(JSON.parse(await readFile(join(out, "_SUCCESS"), "utf8"))).toMatchObject({ run_id: run });
  const control = await readdir(join(out, "_infer-batch"), { recursive: true });
  // One that came to plan the run when it was finished may have made the folder for temporary files again.
  expect(
    control.filter((name) => !/^run\.json$|^[^/]+$|^[^/]+\/(?:plan\.json|profile\.json|errors\.json|tmp)$/.test(name)),
  ).toEqual([]);
}

async function finishedJob(folder: string): Promise<OwnJob> {
  const job = await ownJob(folder, "wine-forest", settings);
  await scoreHere(job.spec);
  return job;
}

/** Runs the command and kills it at a call, as preload.mjs names them. */
async function kill({ spec, out }: OwnJob, at: string, args: readonly string[] = ["--new-run"]): Promise<void> {
  const result = await runSpec(spec, { args, ...watching(out, { CRASH_AT: at }) });
  expect(result.signal, result.stderr).toBe("SIGKILL");
}

async function visible(out: string): Promise<string[]> {
  return (await listing(out)).filter((line) => /^(part-|_SUCCESS|_manifest)/.test(line));
}

describe("--new-run over a finished run", () => {
  test("--new-run over a finished run scores all rows again and replaces the old ones, each time", async () => {
    const job = await finishedJob(scratch.path);
    for (const number of [2, 3]) {
      expect(await scoreHere(job.spec, newRun)).toMatchObject({
        runId: `${id}-r${number}`,
        status: "complete",
        rowsScored: 178,
        spansResumed: 0,
      });
      await expectRun(job, number);
      expect(await scoreHere(job.spec)).toMatchObject({ runId: `${id}-r${number}`, status: "already_complete" });
    }
  });

  test("--new-run scores the input as it is now, and a plain run refuses a changed one with that hint", async () => {
    const job = await finishedJob(scratch.path);
    await utimes(job.shard(1), later, later);

    expect((await refusalOf(scoreHere(job.spec))).replaceAll(scratch.path, "<folder>")).toMatchInlineSnapshot(`
      "66 INPUT_CHANGED
      comparing the input with the plan of this finished run: changed since it was planned: in/part-00001.parquet (it has the planned 4950 bytes, but was modified 2026-01-02T00:00:00Z, planned 2026-01-01T00:00:00Z)
      hint: the finished predictions are untouched
          if its content has not changed, set its planned time again: touch -c -d 2026-01-01T00:00:00Z <folder>/in/part-00001.parquet
          to score again with the current input, model and spec, which then replaces them: infer-batch run <folder>/job.yaml --new-run"
    `);
    await expectRun(job, 1);
    expect(await scoreHere(job.spec, newRun)).toMatchObject({ runId: `${id}-r2`, status: "complete" });
    await expectRun(job, 2);
  });

  test("the command in the hint gives files their planned times again, from the folder where the person is", async () => {
    const job = await finishedJob(scratch.path);
    await utimes(job.shard(1), later, later);
    await utimes(job.shard(2), later, later);

    const refused = await runSpec(job.spec, { cwd: scratch.path });
    const commands = [...refused.stderr.matchAll(/set its planned time again: (touch .*)/g)].map(
      ([, command]) => command,
    );
    expect([refused.code, commands], refused.stderr).toEqual([
      66,
      ["1", "2"].map((n) => expect.stringMatching(`Z in/part-0000${n}`) as string),
    ]);
    execFileSync("sh", ["-ec", commands.join("\n")], { cwd: scratch.path });
    expect((await runSpec(job.spec)).summary).toMatchObject({ status: "already_complete" });
  });

  test("--new-run takes a changed model and a changed spec", async () => {
    const job = await finishedJob(scratch.path);
    const bytes = await readFile(job.model);
    // An unknown field at the end of the protobuf: another digest, the same model.
    await writeFile(job.model, Buffer.concat([bytes, Buffer.from([0xa0, 0x1f, 0x01])]));
    expect(await refusalOf(scoreHere(job.spec))).toMatch(
      /^66 MODEL_CHANGED\n.*plan of this finished run(.|\n)*--new-run/,
    );
    expect((await scoreHere(job.spec, newRun)).status).toBe("complete");
    await expectRun(job, 2);

    await job.rewrite({ ...settings, commit_rows: 50, model: { outputs: { label: "label" } } });
    expect(await refusalOf(scoreHere(job.spec))).toMatch(
      /^66 PLAN_CHANGED\n.*plan of this finished run(.|\n)*--new-run/,
    );
    expect((await scoreHere(job.spec, newRun)).runId).toBe(`${id}-r3`);
    const rows = await outputRows(job.out);
    expect([rows.length, Object.keys(rows[0] ?? {})]).toEqual([178, ["id", "label"]]);
  });

  test("--new-run without an earlier run opens the first run", async () => {
    const job = await ownJob(scratch.path, "wine-forest", settings);
    expect(await scoreHere(job.spec, newRun)).toMatchObject({ runId: id, status: "complete" });
    await expectRun(job, 1);
  });

  test("--new-run among files that no run wrote is refused, and the files are kept", async () => {
    const job = await finishedJob(scratch.path);
    for (const name of ["mine.parquet", "part-00000.other-4f53cda18c2b.parquet"]) {
      await writeFile(join(job.out, name), "mine");
      const before = await listing(job.out);
      expect(await refusalOf(scoreHere(job.spec, newRun))).toMatch(/^64 OUTPUT_FOREIGN/);
      expect(await listing(job.out)).toEqual(before);
      await rm(join(job.out, name));
    }
    expect((await scoreHere(job.spec, newRun)).status).toBe("complete");
  });

  test("--new-run removes the rejects of the earlier run", async () => {
    const spoilt = [spoil(10, "bmi", "NULL", "null", null), spoil(300, "bmi", "NULL", "null", null)];
    const job = await spoiltJob(scratch.path, "diabetes-mlp", spoilt, {
      on_bad_row: "reject",
      max_rejects: 2,
      commit_rows: 100,
    });
    await scoreHere(job.spec);
    await scoreHere(job.spec, newRun);
    await expectAllThere(job, spoilt);
    const run = "diabetes-mlp-4f53cda18c2b-r2";
    expect(await rejectNames(job.out)).toEqual([nameOfRejects(0, run), nameOfRejects(3, run)]);
  });
});

describe("an unfinished new run", () => {
  test.each([
    { how: "a plain run", args: {} },
    { how: "--new-run", args: newRun },
  ])("an unfinished new run leaves readers the old predictions, and $how resumes it", async ({ args }) => {
    const job = await finishedJob(scratch.path);
    const before = await visible(job.out);
    await kill(job, "after link control/parts/part-00002 #1");
    expect(await visible(job.out)).toEqual(before);

    const report = await scoreHere(job.spec, args);

    expect(report).toMatchObject({ runId: `${id}-r2`, status: "complete" });
    expect(report.spansResumed).toBeGreaterThan(0);
    await expectRun(job, 2);
    expect((await scoreHere(job.spec)).status).toBe("already_complete");
  });

  test("several workers carry out one new run", async () => {
    const job = await finishedJob(scratch.path);
    await kill(job, "after link control/plan.json #1");
    expect(await scoreHere(job.spec, workerOf(0, 2))).toMatchObject({ runId: `${id}-r2`, status: "partial" });
    await expectVisible(job, 1);
    const outcomes = await Promise.all([scoreHere(job.spec, workerOf(1, 2)), scoreHere(job.spec, workerOf(1, 2))]);
    expect(outcomes.map(({ status }) => status)).toContain("complete");
    await expectRun(job, 2);
  });

  test("a plain run refuses a new run whose pins do not hold, and --new-run abandons it", async () => {
    const job = await finishedJob(scratch.path);
    await kill(job, "after link control/parts/part-00001 #1");
    await utimes(job.shard(4), later, later);

    expect((await refusalOf(scoreHere(job.spec))).replaceAll(scratch.path, "<folder>")).toMatchInlineSnapshot(`
      "66 INPUT_CHANGED
      comparing the input with the plan of this unfinished run: changed since it was planned: in/part-00004.parquet (it has the planned 14162 bytes, but was modified 2026-01-02T00:00:00Z, planned 2026-01-01T00:00:00Z)
      hint: restore the planned file with its modification time (cp -p), and run again
          if its content has not changed, set its planned time again: touch -c -d 2026-01-01T00:00:00Z <folder>/in/part-00004.parquet
          to abandon this run, and score with the current input, model and spec: infer-batch run <folder>/job.yaml --new-run"
    `);
    await expectVisible(job, 1);
    expect(await scoreHere(job.spec, newRun)).toMatchObject({ runId: `${id}-r3`, status: "complete", spansResumed: 0 });
    await expectRun(job, 3);
  });

  test("--new-run abandons a first run whose pins do not hold", async () => {
    const job = await ownJob(scratch.path, "wine-forest", settings);
    await kill(job, "after link part-00001 #1", []);
    await utimes(job.shard(4), later, later);

    expect(await scoreHere(job.spec, newRun)).toMatchObject({ runId: `${id}-r2`, status: "complete" });
    await expectRun(job, 2);
  });

  test("a new run that was killed before it was planned is planned by the next --new-run", async () => {
    const job = await finishedJob(scratch.path);
    await kill(job, "before link control/plan.json #1");
    expect(await scoreHere(job.spec)).toMatchObject({ runId: id, status: "already_complete" });
    expect(await scoreHere(job.spec, newRun)).toMatchObject({ runId: `${id}-r2`, status: "complete" });
    await expectRun(job, 2);
  });
});

/** Expects that readers see the n-th run, also while another command runs. */
async function expectVisible({ out, fixture }: OwnJob, number: number): Promise<void> {
  expect(differences(await outputRows(out), await goldenRows(fixture))).toEqual([]);
  expect(await faultsOfFinished(out, fixture.rows)).toEqual([]);
  const { run_id: run } = JSON.parse(await readFile(join(out, "_SUCCESS"), "utf8")) as { run_id: string };
  expect(run).toBe(number === 1 ? id : `${id}-r${number}`);
}

test("a process that finds its new run planned and finished by another has nothing to do", async () => {
  const job = await finishedJob(scratch.path);
  const held = join(scratch.path, "held");
  const slow = await holdRun(job.spec, {
    out: job.out,
    call: "write control/tmp/plan-json #1",
    held,
    args: ["--new-run"],
  });
  await scoreHere(job.spec, newRun);
  const before = await visible(job.out);

  const { stdout } = await expectEnd(slow.release(), 0);
  expect(JSON.parse(stdout)).toMatchObject({ run_id: `${id}-r2`, status: "already_complete", rows_scored: 0 });
  expect(await visible(job.out)).toEqual(before);
});

test("two processes with --new-run at once end well, and each row is there once", async () => {
  const job = await finishedJob(scratch.path);

  const results = await Promise.all([1, 2].map(() => runSpec(job.spec, { ownProcess: true, args: ["--new-run"] })));

  for (const { code, stderr, summary } of results) {
    // A process that comes when the other's run is complete opens the next one; a superseded one is told to run again.
    expect([0, 66], stderr).toContain(code);
    expect(code === 0 ? summary?.spans_committed : 4).toBe(4);
  }
  expect(results.map(({ code }) => code)).toContain(0);
  const { runId, status } = await scoreHere(job.spec);
  expect(status).toBe("already_complete");
  // Something may be left: staged parts of a superseded process, which the next run clears.
  await expectVisible(job, Number(/-r(\d)$/.exec(runId)?.[1]));
});
