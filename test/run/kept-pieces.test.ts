import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { openJob } from "#src/app/job-context.js";
import { runIdOf } from "#src/plan/identity.js";
import { openKeeper } from "#src/run/challenger/keep-predictions.js";
import { outputs, shifted } from "../support/challenger.js";
import { projectFolder, type RunningCli, runCli, runHere } from "../support/cli.js";
import { scratchFolder, writeSpec } from "../support/job.js";
import { lastJson } from "../support/nights.js";
import { partNames } from "../support/output.js";
import { query, writeRows } from "../support/parquet.js";
import type { Database } from "../support/pg-database.js";
import { usePostgres } from "../support/postgres.js";
import { type Bucket, s3Env, useS3 } from "../support/s3.js";
import { mirror } from "../support/s3-target.js";
import { fixtureNamed } from "../support/world.js";

const postgres = usePostgres();
const s3 = useS3();

const path = join(projectFolder, "fixtures/models/bench-linear.onnx");
const numbers = Array.from({ length: 32 }, (_, index) => `f${index}`);
/** The challenger takes the columns in another order, and one of its own. */
const inputs = { input: ["g", ...numbers.slice(1).toReversed()] };

/** Rows whose spans are scored in several pieces, because 4 MiB of output are held at once. */
interface Rows {
  readonly rows: number;
  readonly commitRows: number;
  readonly columns: readonly string[];
  /** SQL of the column `body`. */
  readonly body: string;
}

/** Spans of 9 MB whose values are long: a piece ends when its values have come, before the row that it could reach. */
const long: Rows = {
  rows: 180,
  commitRows: 60,
  columns: ["id", "body"],
  body: "repeat(chr(97 + (range % 26)::INT), 150000)",
};

/** Spans of 14 MB of numbers: the row that a piece ends at is known when the piece begins. */
const wide: Rows = { rows: 150_000, commitRows: 100_000, columns: ["id", ...numbers], body: "NULL::TEXT" };

const filtered = "id % 11 = 7";
const rejected = "id % 13 = 5";
const missed = "id % 17 = 3";

async function writeShards(folder: string, { rows, body }: Rows): Promise<void> {
  await mkdir(join(folder, "in"));
  const features = numbers.map((name, index) => `(range % ${index + 2})::FLOAT AS ${name}`).slice(1);
  const half = rows / 2;
  for (const from of [0, half]) {
    const select = `SELECT *, CASE WHEN ${missed} THEN NULL ELSE (id % 5)::FLOAT END AS g,
        CASE WHEN ${rejected} THEN NULL ELSE (id % 2)::FLOAT END AS f0
      FROM (SELECT range AS id, ${features.join(", ")}, ${body} AS body FROM range(${from}, ${from + half}))`;
    await writeRows(join(folder, `in/${from}.parquet`), select, "COMPRESSION snappy, DICTIONARY_SIZE_LIMIT 0");
  }
}

/** Where predictions go, and what is found there. */
interface Place {
  /** The keys that name it in a spec. */
  readonly output: object;
  rows(): Promise<readonly Found[]>;
  /** Whether the run there is finished. */
  isFinished(): Promise<boolean>;
  /** Spans that are committed there. */
  spans(): Promise<number>;
}

interface Found {
  readonly id: number;
  readonly score: number;
  /** The digest of the text; empty where the text is not copied. */
  readonly body: string;
}

const digestOf = (columns: readonly string[]): string => (columns.includes("body") ? "md5(body)" : "''");

const found = (rows: readonly Readonly<Record<string, unknown>>[]): Found[] =>
  rows.map(({ id, score, body }) => ({ id: Number(id), score: Math.fround(Number(score)), body: String(body) }));

async function rowsIn(folder: string, { columns }: Rows): Promise<Found[]> {
  const names = await partNames(folder);
  const list = names.map((name) => `'${join(folder, name)}'`).join(", ");
  const sql = `SELECT id, score, ${digestOf(columns)} AS body FROM read_parquet([${list}]) ORDER BY id`;
  return names.length === 0 ? [] : found(await query(sql));
}

const listed = (folder: string): Promise<string[]> => readdir(folder).catch((): string[] => []);

const onDisk = (folder: string, name: string, rows: Rows): Place => ({
  output: { parquet: { path: name } },
  rows: () => rowsIn(join(folder, name), rows),
  isFinished: async () => (await listed(join(folder, name))).includes("_SUCCESS"),
  spans: async () => (await partNames(join(folder, name))).length,
});

const inStore = (scratch: string, bucket: Bucket, { name, rows }: { name: string; rows: Rows }): Place => ({
  output: {
    parquet: { path: `s3://${bucket.name}/${name}`, endpoint: s3.server().endpoint, spool: { path: "spool" } },
  },
  async rows() {
    const here = await mkdtemp(join(scratch, "mirror-"));
    await mirror(bucket, name, here);
    return await rowsIn(here, rows);
  },
  isFinished: async () => (await bucket.keys()).includes(`${name}/_SUCCESS`),
  spans: async () => (await bucket.keys()).filter((key) => key.startsWith(`${name}/part-`)).length,
});

const inDatabase = (database: Database, table: string, { columns }: Rows): Place => {
  const count = async (control: string): Promise<number> => {
    const runs = `FROM infer_batch.${control} WHERE run_id LIKE '${table}-%'`;
    const counted = await database.query(`SELECT count(*)::int AS n ${runs}`).catch(() => []);
    return Number(counted[0]?.["n"] ?? 0);
  };
  return {
    output: { postgres: { url: database.url, table: table.replaceAll("-", "_"), mode: "append" } },
    rows: async () =>
      found(
        await database
          .query(`SELECT id, score, ${digestOf(columns)} AS body FROM ${table.replaceAll("-", "_")} ORDER BY id`)
          .catch(() => []),
      ),
    isFinished: async () => (await count("finishes")) > 0,
    spans: () => count("spans"),
  };
};

interface Job {
  readonly folder: string;
  readonly rows: Rows;
  readonly published: Place;
  readonly kept: Place;
}

const name = "pieces";

async function writeJob({ folder, rows, published, kept }: Job): Promise<string> {
  const spec = join(folder, "job.json");
  const job = {
    version: 1,
    name,
    input: { path: "in/*.parquet", where: `NOT (${filtered})` },
    model: { path, inputs: { input: numbers } },
    challenger: { path, inputs, output: kept.output },
    output: { columns: rows.columns, ...published.output },
    on_bad_row: "reject",
    max_rejects: "50%",
    commit_rows: rows.commitRows,
    engine: { memory: "64MiB" },
  };
  await writeFile(spec, JSON.stringify(job));
  return spec;
}

/** The rows that are to be kept: those of a job whose only model is the challenger, without rows that one model cannot score. */
async function expectedRows(folder: string, rows: Rows): Promise<Found[]> {
  const spec = join(folder, "alone.json");
  const job = {
    version: 1,
    name: "alone",
    input: { path: "in/*.parquet" },
    model: { path, inputs },
    output: { columns: rows.columns, parquet: { path: "alone" } },
    on_bad_row: "reject",
    max_rejects: "50%",
  };
  await writeFile(spec, JSON.stringify(job));
  const { code, stderr } = await runHere(["run", spec, "--quiet"]);
  expect(code, stderr).toBe(0);
  const alone = await rowsIn(join(folder, "alone"), rows);
  return alone.filter(({ id }) => id % 11 !== 7 && id % 13 !== 5);
}

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
  expect(keptRows).toEqual(expected);
  const ids = (await published.rows()).map(({ id }) => id);
  const all = Array.from({ length: rows.rows }, (_, id) => id);
  expect(ids).toEqual(all.filter((id) => id % 11 !== 7 && id % 13 !== 5));
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
    await using scratch = await scratchFolder();
    const folder = scratch.path;
    await runOnce({ folder, rows, published: onDisk(folder, "out", rows), kept: onDisk(folder, "kept", rows) });
  });

  test("a run in pieces that is killed and finished by two workers keeps each prediction once", async () => {
    await using scratch = await scratchFolder();
    const folder = scratch.path;
    const places = { published: onDisk(folder, "out", long), kept: onDisk(folder, "kept", long) };
    await killAndFinish({ folder, rows: long, ...places }, [1, 2]);
  });
});

describe("a span of kept predictions", () => {
  test("without rows that were lost on the way, it is not committed, and a warning says so", async () => {
    await using scratch = await scratchFolder();
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
});

postgres.describe("kept predictions of spans that are scored in pieces, in a database", () => {
  test.each([
    ["a table and a table", "table", "table", long],
    ["a table and a folder", "table", "folder", long],
    ["a folder and a table", "folder", "table", long],
    ["a table and a table of wide rows", "table", "table", wide],
  ])("published and kept in %s, they lose no row", async (_name, published, kept, rows) => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const folder = scratch.path;
    await runOnce({
      folder,
      rows,
      published: published === "table" ? inDatabase(database, name, rows) : onDisk(folder, "out", rows),
      kept: kept === "table" ? inDatabase(database, `${name}-challenger`, rows) : onDisk(folder, "kept", rows),
    });
  });

  test("a run in pieces into two tables that is killed and finished by two workers keeps each prediction once", async () => {
    await using scratch = await scratchFolder();
    await using database = await postgres.server().createDatabase();
    const published = inDatabase(database, name, long);
    const kept = inDatabase(database, `${name}-challenger`, long);
    await killAndFinish({ folder: scratch.path, rows: long, published, kept }, [1, 2]);
  });
});

s3.describe("kept predictions in S3", () => {
  const writtenTo = async (
    scratch: string,
    published: "store" | "folder",
    rows: Rows,
  ): Promise<Job & { bucket: Bucket }> => {
    const bucket = await s3.server().createBucket();
    const out = published === "store" ? inStore(scratch, bucket, { name: "out", rows }) : onDisk(scratch, "out", rows);
    return { folder: scratch, rows, bucket, published: out, kept: inStore(scratch, bucket, { name: "kept", rows }) };
  };

  test.each(["store", "folder"] as const)(
    "with the published rows in a %s, the kept ones are in S3, complete, and erase removes rows of both",
    async (published) => {
      await using scratch = await scratchFolder();
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
        const ids = (await place.rows()).map(({ id }) => id);
        expect([ids.includes(0), ids.includes(1), ids.includes(60)]).toEqual([true, false, false]);
        expect(await place.isFinished()).toBe(true);
      }
    },
  );

  test("a run in pieces into S3 that is killed and finished by two workers keeps each prediction once", async () => {
    await using scratch = await scratchFolder();
    const job = await writtenTo(scratch.path, "store", long);
    await killAndFinish(job, [1, 2]);
    expect(await readdir(join(scratch.path, "spool"))).toEqual([]); // those of killed attempts are gone as well
  });

  postgres.describe("with the published rows in a database", () => {
    test("the kept ones are in S3 and complete", async () => {
      await using scratch = await scratchFolder();
      await using database = await postgres.server().createDatabase();
      const { kept } = await writtenTo(scratch.path, "folder", long);
      await runOnce({ folder: scratch.path, rows: long, published: inDatabase(database, name, long), kept });
    });
  });
});
