import { cp, mkdir, readdir, readFile, rm, utimes, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { HeadObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { projectFolder } from "./cli.js";
import type { Database } from "./pg-database.js";
import type { Bucket, S3Server } from "./s3.js";
import { credentials } from "./s3-server.mjs";
import { writeModel } from "./onnx.js";
import { writeRows } from "./parquet.js";
import { plannedTime } from "./world.js";

const fixture = join(projectFolder, "fixtures/layout");

/** The bucket of the fixture: plans name it. */
export const layoutBucket = "layout";

/** The jobs of the fixture. Their paths are relative, and commands run in their folder: plans name no machine. */
export const layoutJobs = ["nightly", "plain", "answers", "swapped"] as const;
export type LayoutJob = (typeof layoutJobs)[number];

/** Nights of the job `nightly` that have too few rows, so that the checks hold them. */
const fewOn = "'2026-01-04', '2026-01-07'";

/** What a job's spec has, but for its output. `chatUrl`: of the server of prompts. */
function specOf(job: LayoutJob, chatUrl: string): object {
  const isNightly = job === "nightly";
  const prompts = {
    server: { protocol: "openai", url: chatUrl, name: "m", concurrency: 11, flush_seconds: 0.1 },
    prompt: { user: "row {{id}}" },
  };
  return {
    version: 1,
    name: job,
    params: { ds: { type: "date", default: "2026-01-01" } },
    input: { path: "in/*.parquet", ...(isNightly ? { where: `\${ds} NOT IN (${fewOn}) OR id IN (2, 3)` } : {}) },
    model: job === "answers" ? prompts : { path: "model.onnx" },
    on_bad_row: "reject",
    max_rejects: "60%",
    commit_rows: 6,
    engine: { threads: 1 },
    retry: { max_seconds: 10 },
    ...(isNightly ? { checks: { rejects: "60%" } } : {}),
  };
}

/** Makes the input and the model: eleven rows, of which two lack what the model needs. */
export async function makeInput(): Promise<void> {
  await rm(fixture, { recursive: true, force: true });
  await mkdir(join(fixture, "in"), { recursive: true });
  const rows = "SELECT i AS id, CASE WHEN i NOT IN (3, 8) THEN i / 4 END AS x FROM range(11) t(i) WHERE i // 6 =";
  await writeRows(join(fixture, "in/part-00000.parquet"), `${rows} 0`);
  await writeRows(join(fixture, "in/part-00001.parquet"), `${rows} 1`);
  await writeModel(join(fixture, "model.onnx"), {
    inputs: [{ name: "x", dtype: "float32", shape: ["N", 1] }],
    outputs: [{ name: "score", dtype: "float32", shape: ["N", 1] }],
    nodes: [{ op: "Neg", from: ["x"], to: "score" }],
  });
}

/** Writes the input, the model and the specs into a folder. `outputOf`: a job's output, undefined for a place without it. */
export async function layoutFolder(
  folder: string,
  chatUrl: string,
  outputOf: (job: LayoutJob) => object | undefined,
): Promise<void> {
  await cp(join(fixture, "in"), join(folder, "in"), { recursive: true });
  for (const name of await readdir(join(folder, "in"))) {
    await utimes(join(folder, "in", name), plannedTime, plannedTime);
  }
  await cp(join(fixture, "model.onnx"), join(folder, "model.onnx"));
  await writeFile(join(folder, "keys.txt"), "9\n");
  for (const job of layoutJobs) {
    const output = outputOf(job);
    if (output !== undefined) {
      const spec = { ...specOf(job, chatUrl), output: { columns: ["id"], ...output } };
      await writeFile(join(folder, `${job}.yaml`), JSON.stringify(spec));
    }
  }
}

export async function keepDisk(folder: string): Promise<void> {
  await cp(join(folder, "lake"), join(fixture, "disk/lake"), { recursive: true });
}

export async function loadDisk(folder: string): Promise<void> {
  await cp(join(fixture, "disk"), folder, { recursive: true });
}

const clientOf = ({ endpoint }: S3Server): S3Client =>
  new S3Client({ region: "us-east-1", endpoint, forcePathStyle: true, credentials });

/** Keeps the objects of a bucket as the fixture, and their metadata beside them. */
export async function keepBucket(server: S3Server, bucket: Bucket): Promise<void> {
  const client = clientOf(server);
  const lines: string[] = [];
  for (const key of await bucket.keys()) {
    const head = await client.send(new HeadObjectCommand({ Bucket: bucket.name, Key: key }));
    lines.push(`${JSON.stringify(key)}: ${JSON.stringify(head.Metadata)}`);
    await mkdir(dirname(join(fixture, "s3", key)), { recursive: true });
    await writeFile(join(fixture, "s3", key), await bucket.get(key));
  }
  await writeFile(join(fixture, "s3/metadata.json"), `{\n${lines.join(",\n")}\n}\n`);
  client.destroy();
}

export async function loadBucket(server: S3Server, bucket: Bucket): Promise<void> {
  const client = clientOf(server);
  await Promise.all((await bucket.keys()).map((key) => bucket.remove(key)));
  const text = await readFile(join(fixture, "s3/metadata.json"), "utf8");
  const all = Object.entries(JSON.parse(text) as Record<string, Record<string, string>>);
  await Promise.all(
    all.map(async ([Key, Metadata]) => {
      const Body = await readFile(join(fixture, "s3", Key));
      await client.send(new PutObjectCommand({ Bucket: bucket.name, Key, Body, Metadata }));
    }),
  );
  client.destroy();
}

export async function keepDatabase(database: Database): Promise<void> {
  await writeFile(join(fixture, "postgres.sql"), await dump(database));
}

export async function loadDatabase(database: Database): Promise<void> {
  await database.query(await readFile(join(fixture, "postgres.sql"), "utf8"));
}

const ours = "n.nspname IN ('scores', 'infer_batch')";

/**
 * The statements that make the schemas of the fixture again: pg_dump is not among the programs that npm brings. As OIDs
 * are others in each database, a table's is written as its name.
 */
async function dump(database: Database): Promise<string> {
  const lines = async (sql: string): Promise<string[]> =>
    (await database.query(sql)).map((row) => String(Object.values(row)[0]));
  const tables = await database.query(
    `SELECT c.oid::int8, format('%I.%I', n.nspname, c.relname) AS name FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE ${ours} AND c.relkind = 'r' ORDER BY 2`,
  );
  const made: string[] = ["CREATE SCHEMA scores;", "CREATE SCHEMA infer_batch;"];
  const filled: string[] = [];
  for (const { oid, name } of tables) {
    const columns = await lines(
      `SELECT format('%I %s', attname, format_type(atttypid, atttypmod))
          || CASE WHEN attidentity = 'a' THEN ' GENERATED ALWAYS AS IDENTITY' ELSE '' END
          || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '') || CASE WHEN attnotnull THEN ' NOT NULL' ELSE '' END
        FROM pg_attribute a LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE attrelid = ${String(oid)} AND attnum > 0 AND NOT attisdropped ORDER BY attnum`,
    );
    made.push(`CREATE TABLE ${String(name)} (\n  ${columns.join(",\n  ")}\n);`);
    filled.push(...(await insertsOf(database, String(oid), String(name))));
  }
  const after = await lines(
    `SELECT format('ALTER TABLE %I.%I ADD CONSTRAINT %I %s;', n.nspname, c.relname, k.conname, pg_get_constraintdef(k.oid))
      FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE ${ours} AND k.contype <> 'n' ORDER BY k.contype = 'f', 1`,
  );
  const indexes = await lines(
    `SELECT pg_get_indexdef(i.indexrelid) || ';' FROM pg_index i JOIN pg_class c ON c.oid = i.indrelid
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE ${ours} AND c.relkind = 'r'
      AND NOT EXISTS (SELECT FROM pg_constraint k WHERE k.conindid = i.indexrelid) ORDER BY 1`,
  );
  const views = await lines(
    `SELECT format(E'CREATE VIEW %I.%I AS\n%s', n.nspname, c.relname, pg_get_viewdef(c.oid)) FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE ${ours} AND c.relkind = 'v' ORDER BY c.oid`,
  );
  const comments = await lines(
    `SELECT format('COMMENT ON %s %I.%I IS %L;', CASE c.relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, n.nspname, c.relname,
        description) FROM pg_description JOIN pg_class c ON c.oid = objoid AND classoid = 'pg_class'::regclass AND objsubid = 0
      JOIN pg_namespace n ON n.oid = c.relnamespace WHERE ${ours} AND c.relkind IN ('r', 'v') ORDER BY 1`,
  );
  return [...made, ...filled, ...after, ...indexes, ...views, ...comments, ""].join("\n");
}

/** An INSERT for each row, each value as a text of its own. */
async function insertsOf(database: Database, oid: string, name: string): Promise<string[]> {
  const [columns] = await database.query(
    `SELECT string_agg(CASE WHEN atttypid = 'oid'::regtype
        THEN format('coalesce(quote_literal(to_regclass(%1$I::regclass::text)) || ''::regclass'', ''0'')', attname)
        ELSE format('quote_nullable(%I::text)', attname) END, ', ' ORDER BY attnum) AS values,
      bool_or(attidentity = 'a') AS numbered
      FROM pg_attribute WHERE attrelid = ${oid} AND attnum > 0 AND NOT attisdropped`,
  );
  const rows = await database.query(
    `SELECT concat_ws(', ', ${String(columns?.["values"])}) AS row FROM ${name} AS t ORDER BY 1`,
  );
  const overriding = columns?.["numbered"] === true ? " OVERRIDING SYSTEM VALUE" : "";
  const inserts = rows.map(({ row }) => `INSERT INTO ${name}${overriding} VALUES (${String(row)});`);
  const goOn = `SELECT setval(pg_get_serial_sequence('${name}', 'n'), ${rows.length}) WHERE ${rows.length} > 0;`;
  return columns?.["numbered"] === true ? [...inserts, goOn] : inserts;
}
