import { readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { openJob } from "#src/app/job-context.js";
import { runIdOf } from "#src/plan/identity.js";
import { openKeeper } from "#src/run/challenger/keep-predictions.js";
import { outputs, shifted } from "../support/challenger.js";
import { type RunningCli, runCli, runHere } from "../support/cli.js";
import { scratch, writeSpec } from "../support/job.js";
import {
  expectedRows,
  inDatabase,
  inStore,
  type Job,
  long,
  name,
  onDisk,
  type Place,
  type Rows,
  wide,
  writeJob,
  writeShards,
} from "../support/kept-pieces.js";
import { lastJson } from "../support/nights.js";
import { partNames } from "../support/output.js";
import { usePostgres } from "../support/postgres.js";
import { type Bucket, s3Env, useS3 } from "../support/s3.js";
import { torture } from "../support/torture.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const s3 = useS3();

const env = (): Readonly<Record<string, string>> => {
  const { AWS_ENDPOINT_URL_S3: _endpoint, ...credentials } = s3Env(0);
  return credentials;
};

const run = (spec: string, ...args: string[]): ReturnType<typeof runHere> =>
  runHere(["run", spec, "--no-progress", "--json", ...args], { env: env() });

async function expectKept(job: Job): Promise<void> {
  const { folder, rows, published, kept } = job;
  const expected = await expectedRows(folder, rows);
  const keptRows = await kept.rows();
  expect([keptRows.length, await kept.isFinished()]).toEqual([expected.length, true]);
  // As texts: to compare so many objects takes longer than to score them.
  const textOf = ({ id, score, body }: (typeof expected)[number]): string => `${id} ${score} ${body}`;
  expect(keptRows.find((row, index) => textOf(row) !== textOf(expected[index] ?? row))).toBeUndefined();
  const ids = (await published.rows()).map(({ id }) => id);
  const all = Array.from({ length: rows.rows }, (_, id) => id);
  expect(ids.join() === all.filter((id) => id % 11 !== 7 && id % 13 !== 5).join(), "all rows are published").toBe(true);
}

async function runOnce(job: Job): Promise<void> {
  await writeShards(job.folder, job.rows);
  const done = await run(await writeJob(job));
  expect(done.code, done.stderr).toBe(0);
  expect(done.stderr).toContain("the challenger's predictions are in");
  await expectKept(job);
}

/** Kills attempts when so many spans are kept, then has two workers finish the run. */
async function killAndFinish(job: Job, moments: readonly number[]): Promise<void> {
  await writeShards(job.folder, job.rows);
  const spec = await writeJob(job);
  let kills = 0;
  for (const spans of moments) {
    const onStart = (child: RunningCli): void => void killAt(child, job.kept, spans);
    const { signal } = await runCli(["run", spec, "--no-progress"], { env: env(), onStart });
    kills += signal === "SIGKILL" ? 1 : 0;
  }
  expect(kills).toBeGreaterThan(0);
  for (const worker of ["1/2", "0/2"]) {
    const { code, stderr } = await run(spec, "--worker", worker);
    expect(code, stderr).toBe(0);
  }
  await expectKept(job);
}

async function killAt(child: RunningCli, kept: Place, spans: number): Promise<void> {
  for (let tries = 0; tries < 3000 && (await kept.spans()) < spans; tries += 1) {
    await sleep(5);
  }
  child.kill("SIGKILL");
}

describe("kept predictions of spans that are scored in pieces, on a disk", () => {
  test.each([
    ["end when their long values have come", long],
    ["end at a row that is known before", wide],
  ])("pieces that %s lose no row of the kept predictions", async (_name, rows) => {
    const folder = scratch.path;
    await runOnce({ folder, rows, published: onDisk(folder, "out", rows), kept: onDisk(folder, "kept", rows) });
  });

  test("a run in pieces that is killed and finished by two workers keeps each prediction once", async () => {
    const folder = scratch.path;
    const places = { published: onDisk(folder, "out", long), kept: onDisk(folder, "kept", long) };
    await killAndFinish({ folder, rows: long, ...places }, torture ? [1, 2] : [1]);
  });
});

test("a span of kept predictions that has lost a row is not committed, and a warning says so", async () => {
  const spec = await writeSpec(scratch.path, fixtureNamed("cancer-logistic"), {
    model: { outputs },
    challenger: { path: shifted, outputs, output: { parquet: { path: "kept" } } },
  });
  expect((await run(spec, "--worker", "0/1")).code).toBe(0);
  await rm(join(scratch.path, "kept"), { recursive: true });
  const warnings: string[] = [];
  const log = { info() {}, debug() {}, warn: (message: string) => warnings.push(message) };
  const attempt = { worker: { index: 0, count: 1 }, steal: false, newRun: false };
  await using job = await openJob(spec, { param: [] }, { log, attempt });
  const stored = await job.sink.find(runIdOf(job.spec.name, job.spec.params, job.sha256));
  if (stored === undefined) {
    throw new Error("the run has no plan");
  }
  await using keeper = await openKeeper(job, stored.plan, "cpu");
  const span = { index: 0, rowStart: 0, rowEnd: 569 };
  const rows = { rowCount: 0, columns: [] };

  await keeper?.keep(span, { isLast: true, rows, leftOut: 568 });
  await keeper?.keep(span, { isLast: true, rows, leftOut: 569 });

  expect(warnings).toEqual([
    "the challenger's predictions are not kept from here on: writing span 0: 0 rows are kept and 568 left out of 569, which is a defect of this program",
  ]);
  expect(await partNames(join(scratch.path, "kept"))).toEqual([]);
});

/** INFER_BATCH_TORTURE=1: all of them. */
const pairs = [
  ["a table and a table", "table", "table", long],
  ["a table and a folder", "table", "folder", long],
  ["a folder and a table", "folder", "table", long],
  ["a table and a table of wide rows", "table", "table", wide],
] as const;

postgres.describe("kept predictions of spans that are scored in pieces, in a database", () => {
  test.each(torture ? pairs : pairs.slice(1, 2))(
    "kept predictions lose no row when rows are published and kept in %s",
    async (_name, published, kept, rows) => {
      await using database = await postgres.server().createDatabase();
      const folder = scratch.path;
      await runOnce({
        folder,
        rows,
        published: published === "table" ? inDatabase(database, name, rows) : onDisk(folder, "out", rows),
        kept: kept === "table" ? inDatabase(database, `${name}-challenger`, rows) : onDisk(folder, "kept", rows),
      });
    },
  );

  test.runIf(torture)(
    "a run in pieces into two tables that is killed and finished by two workers keeps each prediction once",
    async () => {
      await using database = await postgres.server().createDatabase();
      const published = inDatabase(database, name, long);
      const kept = inDatabase(database, `${name}-challenger`, long);
      await killAndFinish({ folder: scratch.path, rows: long, published, kept }, [1, 2]);
    },
  );
});

const writtenTo = async (
  folder: string,
  published: "store" | "folder",
  rows: Rows,
): Promise<Job & { bucket: Bucket }> => {
  const bucket = await s3.server().createBucket();
  const store = { bucket, endpoint: s3.server().endpoint };
  const out = published === "store" ? inStore(folder, store, { name: "out", rows }) : onDisk(folder, "out", rows);
  return { folder, rows, bucket, published: out, kept: inStore(folder, store, { name: "kept", rows }) };
};

s3.describe("kept predictions in S3", () => {
  test.each(torture ? (["store", "folder"] as const) : (["store"] as const))(
    "with the published rows in a %s, the kept ones are in S3, complete, and erase removes rows of both",
    async (published) => {
      const job = await writtenTo(scratch.path, published, long);
      await runOnce(job);
      const spec = join(scratch.path, "job.json");
      expect((await readdir(join(scratch.path, "spool"))).filter((entry) => !entry.startsWith("."))).toEqual([]);

      expect((await run(spec)).stdout).toContain('"already_complete"');
      const keys = join(scratch.path, "keys.txt");
      await writeFile(keys, "1\n60\n");
      const erased = await runHere(["erase", spec, "--keys", keys, "--key", "id", "--json"], { env: env() });
      expect(erased.code, erased.stderr).toBe(0);
      expect(lastJson(erased)["rows"]).toBe(4);
      for (const place of [job.published, job.kept]) {
        const ids = new Set((await place.rows()).map(({ id }) => id));
        expect([ids.has(0), ids.has(1), ids.has(60)]).toEqual([true, false, false]);
        expect(await place.isFinished()).toBe(true);
      }
    },
  );

  test.runIf(torture)(
    "a run in pieces into S3 that is killed and finished by two workers keeps each prediction once",
    async () => {
      const job = await writtenTo(scratch.path, "store", long);
      await killAndFinish(job, [1, 2]);
      expect(await readdir(join(scratch.path, "spool"))).toEqual([]); // those of killed attempts are gone as well
    },
  );

  postgres.describe("with the published rows in a database", () => {
    test("the kept ones are in S3 and complete", async () => {
      await using database = await postgres.server().createDatabase();
      const { kept } = await writtenTo(scratch.path, "folder", long);
      await runOnce({ folder: scratch.path, rows: long, published: inDatabase(database, name, long), kept });
    });
  });
});
