import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { tableRowBytes } from "#src/flow/pack/feature-hasher.js";
import { openJob } from "#src/job/open.js";
import type { RunReport } from "#src/report/report.js";
import { runJob } from "#src/run/run.js";
import { expectEnd, runHere } from "../support/cli.js";
import { scratch, scratchFolder } from "../support/job.js";
import { outputRows, partNames } from "../support/output.js";
import { query } from "../support/parquet.js";
import { reject, rejectLines } from "../support/rejects.js";
import { type ReuseJob, reuseJob, rowCount, rowsOf, scoresById, scoresOf } from "../support/reuse-job.js";
import { useCredentials } from "../support/s3-output.js";
import { mirror } from "../support/s3-target.js";
import { type Bucket, useS3 } from "../support/s3.js";
import { alone, runSpec, scoreHere, workerOf } from "../support/score.js";
import { servedJob } from "../support/served-job.js";

const [first, second, third] = ["2026-01-01", "2026-01-02", "2026-01-03"] as const;
/** A tenth of the rows is new each night, and the tenth of the night before is as it was. */
const unchanged = rowCount * 0.8;

interface World extends AsyncDisposable {
  readonly folder: string;
  readonly job: ReuseJob;
  out(ds: string): string;
  expectScores(ds: string): Promise<void>;
}

async function worldOf(base: Parameters<typeof reuseJob>[1] = {}): Promise<World> {
  const ownFolder = await scratchFolder();
  const out = (ds: string): string => join(ownFolder.path, `out/dt=${ds}`);
  return {
    folder: ownFolder.path,
    job: await reuseJob(ownFolder.path, base),
    out,
    async expectScores(ds) {
      expect(scoresById(await outputRows(out(ds)))).toEqual(scoresOf(ds));
    },
    [Symbol.asyncDispose]: () => ownFolder[Symbol.asyncDispose](),
  };
}

describe("rows that did not change", () => {
  test("rows that did not change take the prediction of the last night, and report and manifest count them", async () => {
    await using world = await worldOf();
    expect(await world.job.night(first)).toMatchObject({ rowsScored: rowCount, rowsReused: 0 });

    await world.job.prepare(second);
    const { summary, stderr } = await runSpec(world.job.spec);

    expect(summary, stderr).toMatchObject({ rows_scored: rowCount, rows_reused: unchanged });
    await world.expectScores(second);
    const manifest = JSON.parse(await readFile(join(world.out(second), "_manifest.json"), "utf8")) as object;
    expect(manifest).toMatchObject({ attempt: { rows_reused: unchanged } });
    expect(await world.job.night(third)).toMatchObject({ rowsReused: unchanged });
    await world.expectScores(third);
  });

  test("rows that did not change are reused by each of two workers, and by an attempt that resumes", async () => {
    await using world = await worldOf();
    await world.job.night(first);
    await world.job.prepare(second);
    const one = await scoreHere(world.job.spec, workerOf(0, 2));
    const other = await scoreHere(world.job.spec, workerOf(1, 2));
    expect([one.rowsReused, other.rowsReused]).toEqual([80, 160]);
    await world.expectScores(second);

    await rm(join(world.out(second), "_SUCCESS"));
    await rm(join(world.out(second), "_manifest.json"));
    await rm(join(world.out(second), (await partNames(world.out(second)))[1] ?? ""));
    expect(await scoreHere(world.job.spec)).toMatchObject({ rowsScored: 100, rowsReused: 80, spansResumed: 2 });
    await world.expectScores(second);
  });

  test("rows that did not change are reused by a run that is staged, and its profile has all rows", async () => {
    await using world = await worldOf({ checks: {} });
    await world.job.night(first);
    expect(await world.job.night(second)).toMatchObject({ rowsReused: unchanged, status: "complete" });
    const stats = await runHere(["stats", world.job.spec, "--json"]);
    expect(JSON.parse(stats.stdout)).toMatchObject({ rows: rowCount });
    await world.expectScores(second);
  });

  test("--new-run scores all rows, and with --reuse only those that changed", async () => {
    await using world = await worldOf();
    await world.job.night(first);
    await world.job.night(second);
    expect(await scoreHere(world.job.spec, { newRun: true })).toMatchObject({ rowsReused: 0, rowsScored: rowCount });
    const { summary, stderr } = await runSpec(world.job.spec, { args: ["--new-run", "--reuse"] });
    expect(summary, stderr).toMatchObject({ rows_reused: rowCount });
    await world.expectScores(second);
  });

  test("diff compares two nights by the key of reuse, without their hashes", async () => {
    await using world = await worldOf();
    await world.job.night(first);
    await world.job.night(second);
    const night = ["--param", `ds=${second}`, "--against", `ds=${first}`, "--json"];
    const { stdout, stderr } = await runHere(["diff", world.job.spec, ...night]);
    expect(JSON.parse(stdout), stderr).toMatchObject({ key: ["id"], rows_changed: rowCount * 0.2 });
    expect(stdout).not.toContain("reuse_hash");
  });
});

const again = ["--new-run", "--reuse"] as const;

/** Five rows of a night have no feature. */
const withBad = (ds: string): string => `SELECT id, if(id < 5, NULL, x)::FLOAT AS x FROM (${rowsOf(ds)})`;

describe("a new run of the same params with --reuse", () => {
  test("a new run scores the rejected rows of the run that it replaces and those that changed, and reuses all others", async () => {
    await using world = await worldOf(reject);
    await world.job.night(first);
    expect(await world.job.night(second, { select: withBad(second) })).toMatchObject({ rowsRejected: 5 });
    const select = `SELECT id, if(id % 100 = 50, -1, x)::FLOAT AS x FROM (${rowsOf(second)})`;
    await world.job.prepare(second, { select });

    const { summary, stderr } = await runSpec(world.job.spec, { args: again });

    expect(summary, stderr).toMatchObject({ rows_scored: rowCount, rows_rejected: 0, rows_reused: rowCount - 5 - 3 });
    expect(stderr).toContain("reusing predictions of run small-");
    const scores = new Map([...scoresOf(second)].map(([id, score]) => [id, id % 100 === 50 ? -1 : score]));
    expect(scoresById(await outputRows(world.out(second)))).toEqual(scores);
    expect(await rejectLines(world.out(second))).toEqual([]);
  });

  test("rows that are rejected again are scored by the next new run", async () => {
    await using world = await worldOf(reject);
    await world.job.night(first, { select: withBad(first) });
    const counts = { rows_scored: rowCount - 5, rows_reused: rowCount - 5, rows_rejected: 5 };
    const same = await runSpec(world.job.spec, { args: again });
    expect(same.summary, same.stderr).toMatchObject(counts);
    await world.job.prepare(first);
    const { summary, stderr } = await runSpec(world.job.spec, { args: again });
    expect(summary, stderr).toMatchObject({ rows_scored: rowCount, rows_reused: rowCount - 5, rows_rejected: 0 });
    await world.expectScores(first);
  });

  test("a job without a date reuses the run that the new one replaces", async () => {
    await using world = await worldOf({ ...reject, output: { parquet: { path: "out" } } });
    const undated = { params: { ds: first } };
    await world.job.night(first, { ...undated, select: withBad(first) });
    await world.job.prepare(first, undated);
    const { summary, stderr } = await runSpec(world.job.spec, { args: again });
    expect(summary, stderr).toMatchObject({ rows_scored: rowCount, rows_reused: rowCount - 5, rows_rejected: 0 });
    expect(stderr).not.toContain("no predictions can be reused");
  });

  test("a correction after a new run that failed reuses the published run, too", async () => {
    await using world = await worldOf();
    await world.job.night(first, { ...reject, select: withBad(first) });
    await world.job.prepare(first, { on_bad_row: "fail", select: withBad(first), commit_rows: 1000 });
    await expectEnd(runHere(["run", world.job.spec, ...again, "--no-progress"]), 65);
    await world.job.prepare(first);
    const { summary, stderr } = await runSpec(world.job.spec);
    expect(summary, stderr).toMatchObject({ rows_scored: rowCount, rows_reused: rowCount - 5 });
    await world.expectScores(first);
  });

  test.each([
    [["--reuse"], {}, "it goes with --new-run"],
    [again, { reuse: undefined }, "the spec has no `reuse`"],
  ])("options that reuse nothing are refused: %j", async (args, overrides, text) => {
    await using world = await worldOf();
    await world.job.prepare(first, overrides);
    await expectEnd(runHere(["run", world.job.spec, ...args]), 64, text);
  });
});

/** Runs a job whose memory holds so many stored rows. */
async function scoreWithin(spec: string, rows: number): Promise<{ report: RunReport; warnings: readonly string[] }> {
  await using job = await openJob(spec, { param: [] }, { attempt: alone });
  const warnings: string[] = [];
  const storedBytes = Math.ceil(rows * (tableRowBytes + Float32Array.BYTES_PER_ELEMENT));
  const log = { ...job.reporter.log, warn: (message: string) => void warnings.push(message) };
  const report = await runJob({ ...job, reporter: { ...job.reporter, log }, memory: { ...job.memory, storedBytes } });
  return { report, warnings };
}

/** Changes the first part behind the back of the manifest: it has the size that it names. */
async function changePart(
  folder: string,
  { score = "score", hash = "reuse_hash" }: { readonly score?: string; readonly hash?: string },
): Promise<void> {
  const [name = ""] = await partNames(folder);
  const path = join(folder, name);
  await query(
    `COPY (SELECT id, (${score})::FLOAT AS score, (${hash})::UUID AS reuse_hash FROM read_parquet('${path}')) TO '${path}' (FORMAT parquet, DICTIONARY_SIZE_LIMIT 0)`,
  );
  const manifestPath = join(folder, "_manifest.json");
  const manifest = JSON.parse(await readFile(manifestPath, "utf8")) as { parts: { size_bytes: number }[] };
  const [part] = manifest.parts;
  if (part !== undefined) {
    part.size_bytes = (await readFile(path)).length;
  }
  await writeFile(manifestPath, JSON.stringify(manifest));
}

const away = async (folder: string): Promise<void> => {
  await rm(folder, { recursive: true });
};
const cut = async (folder: string): Promise<void> => {
  const path = join(folder, (await partNames(folder))[1] ?? "");
  await writeFile(path, (await readFile(path)).subarray(0, 100));
};
const garbled = async (folder: string): Promise<void> => {
  const path = join(folder, (await partNames(folder))[1] ?? "");
  const bytes = await readFile(path);
  await writeFile(path, bytes.fill(0x5a, 4, bytes.length - 8));
};

describe("a source that cannot be used", () => {
  test.each([
    ["is gone", away],
    ["lacks a part of the right size", cut],
    ["is garbled", garbled],
  ])("all rows are scored, with a warning, if the run to reuse %s", async (_, spoil) => {
    await using world = await worldOf();
    await world.job.night(first);
    await world.job.prepare(second);
    // The plan pins the run of the first night; then it is spoilt, and the attempt goes on.
    await expectEnd(runHere(["run", world.job.spec, "--worker", "1/2", "--json"]), 0);
    await spoil(world.out(first));

    const { summary, stderr } = await runSpec(world.job.spec, { args: ["--worker", "0/2"] });

    expect(summary, stderr).toMatchObject({ status: "complete", rows_reused: 0, rows_scored: 100 });
    expect(stderr).toContain("all rows are scored: reusing the predictions of run small-");
    await world.expectScores(second);
  });

  test("predictions that were changed since they were stored are not reused", async () => {
    await using world = await worldOf();
    await world.job.night(first);
    await changePart(world.out(first), { score: "CASE WHEN id < 5 THEN 77 ELSE score END" });
    // Ids 0 to 4 have other predictions now; of these, 1 and 2 changed anyway.
    expect(await world.job.night(second)).toMatchObject({ rowsReused: unchanged - 3 });
    await world.expectScores(second);
  });

  test.each([
    ["that another version has made", "md5(reuse_hash::VARCHAR)"],
    ["of other rows", "lead(reuse_hash, 1, reuse_hash) OVER (ORDER BY id DESC)"],
  ])("rows with stored hashes %s are scored again", async (_, hash) => {
    await using world = await worldOf();
    await world.job.night(first);
    await changePart(world.out(first), { hash });
    // A part has 100 rows, of which 80 did not change; the last of the others has its own hash.
    const { rowsReused } = await world.job.night(second);
    expect(rowsReused).toBe(unchanged - 80 + (hash.startsWith("lead") ? 1 : 0));
    await world.expectScores(second);
  });

  test.each([150, 0])(
    "rows that belong to stored ones beyond the %i that fit in memory are scored, with a warning",
    async (fit) => {
      await using world = await worldOf();
      await world.job.night(first);
      await world.job.prepare(second, { select: `SELECT * FROM (${rowsOf(second)}) ORDER BY hash(id)` });
      const { report, warnings } = await scoreWithin(world.job.spec, fit);
      expect(report).toMatchObject({ rowsScored: rowCount, rowsReused: fit * 0.8 });
      expect(warnings.join()).toContain(
        `${rowCount - fit} rows of it do not fit in memory, and what belongs to them is scored; with engine.memory: 1MiB, all rows fit`,
      );
      await world.expectScores(second);
    },
  );

  test("predictions of a run without reuse are not reused, with a warning", async () => {
    await using world = await worldOf();
    await world.job.night(first, { reuse: undefined });
    await world.job.prepare(second);
    const { summary, stderr } = await runSpec(world.job.spec);
    expect(summary, stderr).toMatchObject({ rows_reused: 0 });
    expect(stderr).toContain("they have no column reuse_hash");
    expect(await world.job.night(third)).toMatchObject({ rowsReused: unchanged });
  });

  test("a row is scored if its key is NULL, or is twice in the run to reuse", async () => {
    await using world = await worldOf();
    await world.job.night(first, { select: `${rowsOf(first)} UNION ALL SELECT 5, 5 UNION ALL SELECT NULL, 1` });
    expect(await world.job.night(second)).toMatchObject({ rowsReused: unchanged - 1 });
    await world.expectScores(second);
  });
});

describe("what reuse cannot do", () => {
  test.each([
    [{ reuse: { key: ["other"] } }, "column `other` is not in output.columns"],
    [{ reuse: { key: [] } }, "reuse.key"],
    [
      { output: { parquet: undefined, postgres: { url: "postgres://localhost/db", table: "t", mode: "append" } } },
      "mode append keeps the rows of all runs in one table",
    ],
    [{ model: { outputs: { reuse_hash: "score" } } }, "output column `reuse_hash` is named twice"],
  ])("reuse is refused before anything is read: %j", async (overrides, text) => {
    await using world = await worldOf();
    await world.job.prepare(first, overrides);
    await expectEnd(runHere(["validate", world.job.spec]), 64, text);
  });

  test("reuse with a served model is refused unless its server names a version", async () => {
    await using unnamed = await servedJob({ versions: [], overrides: { reuse: { key: ["id"] } } });
    await expectEnd(runHere(["run", unnamed.spec]), 64, "the server names no version of the model");
  });

  test("a planned run is refused if reuse.key has changed", async () => {
    await using world = await worldOf();
    await world.job.night(first);
    await world.job.prepare(first, { reuse: undefined });
    await expectEnd(runHere(["run", world.job.spec]), 66, 'reuse.key is null, planned ["id"]');
  });
});

const s3 = useS3();

async function jobIn(folder: string, bucket: Bucket): Promise<ReuseJob> {
  useCredentials();
  const endpoint = `http://127.0.0.1:${s3.server().port}`;
  const parquet = { path: `s3://${bucket.name}/out/dt=\${ds}`, endpoint, spool: { path: "spool" } };
  return await reuseJob(folder, { output: { parquet } });
}

async function expectScores(folder: string, bucket: Bucket, ds: string): Promise<void> {
  const to = join(folder, `mirror-${ds}`);
  await mirror(bucket, `out/dt=${ds}`, to);
  expect(scoresById(await outputRows(to))).toEqual(scoresOf(ds));
}

s3.describe("predictions in S3 and their reuse", () => {
  test("predictions in S3 are reused by the next night", async () => {
    const bucket = await s3.server().createBucket();
    const job = await jobIn(scratch.path, bucket);
    await job.night(first);
    expect(await job.night(second)).toMatchObject({ rowsReused: unchanged, rowsScored: rowCount });
    await expectScores(scratch.path, bucket, second);
  });

  test("predictions in S3 are reused by a new run that scores the rejected rows, and by the next night", async () => {
    const bucket = await s3.server().createBucket();
    const job = await jobIn(scratch.path, bucket);
    const select = `SELECT id, if(id < 5, NULL, x)::FLOAT AS x FROM (${rowsOf(first)})`;
    expect(await job.night(first, { ...reject, select })).toMatchObject({ rowsRejected: 5 });
    await job.prepare(first);

    const repeated = await scoreHere(job.spec, { newRun: true, reuse: true });

    expect(repeated).toMatchObject({ rowsRejected: 0, rowsReused: rowCount - 5, rowsScored: rowCount });
    await expectScores(scratch.path, bucket, first);
    expect(await job.night(second)).toMatchObject({ rowsReused: unchanged, rowsScored: rowCount });
    await expectScores(scratch.path, bucket, second);
  });
});
