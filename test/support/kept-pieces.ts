import { mkdir, mkdtemp, readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect } from "vitest";
import { projectFolder, runHere } from "./cli.js";
import { partNames } from "./output.js";
import { query, writeRows } from "./parquet.js";
import type { Database } from "./pg-database.js";
import type { Bucket } from "./s3.js";
import { mirror } from "./s3-target.js";

const path = join(projectFolder, "fixtures/models/bench-linear.onnx");
const numbers = Array.from({ length: 32 }, (_, index) => `f${index}`);
/** The challenger takes the columns in another order, and one of its own. */
const inputs = { input: ["g", ...numbers.slice(1).toReversed()] };

/** Rows whose spans are scored in several pieces, because 4 MiB of output are held at once. */
export interface Rows {
  readonly rows: number;
  readonly commitRows: number;
  readonly columns: readonly string[];
  /** SQL of the column `body`. */
  readonly body: string;
}

/** Spans of 6 MB whose values are long: a piece ends when its values have come, before the row that it could reach. */
export const long: Rows = {
  rows: 120,
  commitRows: 40,
  columns: ["id", "body"],
  body: "repeat(chr(97 + (range % 26)::INT), 150000)",
};

/** Spans of 8 MB of numbers: the row that a piece ends at is known when the piece begins. */
export const wide: Rows = { rows: 90_000, commitRows: 60_000, columns: ["id", ...numbers], body: "NULL::TEXT" };

const filtered = "id % 11 = 7";
const rejected = "id % 13 = 5";
const missed = "id % 17 = 3";

/** Writes two shards; some rows are filtered out, and some cannot be scored by one of the models. */
export async function writeShards(folder: string, { rows, body }: Rows): Promise<void> {
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
export interface Place {
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

/** A folder below `folder`. */
export const onDisk = (folder: string, name: string, rows: Rows): Place => ({
  output: { parquet: { path: name } },
  rows: () => rowsIn(join(folder, name), rows),
  isFinished: async () => (await listed(join(folder, name))).includes("_SUCCESS"),
  spans: async () => (await partNames(join(folder, name))).length,
});

interface Store {
  readonly bucket: Bucket;
  readonly endpoint: string;
}

interface Stored {
  readonly name: string;
  readonly rows: Rows;
}

/** A folder of a bucket. */
export const inStore = (scratch: string, { bucket, endpoint }: Store, { name, rows }: Stored): Place => ({
  output: {
    parquet: { path: `s3://${bucket.name}/${name}`, endpoint, spool: { path: "spool" } },
  },
  async rows() {
    const here = await mkdtemp(join(scratch, "mirror-"));
    await mirror(bucket, name, here);
    return await rowsIn(here, rows);
  },
  isFinished: async () => (await bucket.keys()).includes(`${name}/_SUCCESS`),
  spans: async () => (await bucket.keys()).filter((key) => key.startsWith(`${name}/part-`)).length,
});

/** A table; `table`: as the runs that write to it are named. */
export const inDatabase = (database: Database, table: string, { columns }: Rows): Place => {
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

/** A job whose challenger keeps its predictions. */
export interface Job {
  readonly folder: string;
  readonly rows: Rows;
  readonly published: Place;
  readonly kept: Place;
}

/** The name of the job; its runs and their tables begin with it. */
export const name = "pieces";

/** Writes the spec, and returns its path. */
export async function writeJob({ folder, rows, published, kept }: Job): Promise<string> {
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

const expectedOf = new Map<Rows, Promise<Found[]>>();

/**
 * The rows that are to be kept: those of a job whose only model is the challenger, without rows that one model cannot
 * score. Shards of the same rows are equal, so they are scored once.
 */
export function expectedRows(folder: string, rows: Rows): Promise<Found[]> {
  const expected = expectedOf.get(rows) ?? scoredAlone(folder, rows);
  expectedOf.set(rows, expected);
  return expected;
}

async function scoredAlone(folder: string, rows: Rows): Promise<Found[]> {
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
