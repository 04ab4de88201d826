import { once } from "node:events";
import { readFileSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import avsc, { type Schema } from "avsc";
import { expect } from "vitest";
import { avroRecords, exactLong } from "#src/sources/lake/avro.js";
import { diskSource } from "#src/sources/disk.js";
import type { LakeFile, LakeReader, LakeSnapshot } from "#src/sources/lake/snapshot.js";
import { lakeReader, type LakeTools, tableSource } from "#src/sources/lake/source.js";
import type { Source } from "#src/sources/source.js";
import { projectFolder } from "./cli.js";
import { writeModel } from "./onnx.js";
import { outputRows } from "./output.js";
import { query, readFiles } from "./parquet.js";

/** Tables that Spark wrote, and the rows that it reads of them: spark_tables.py makes both anew. */
export const sparkTables = join(projectFolder, "fixtures/lakes");

export interface LakeAnswer {
  readonly kind: "delta" | "iceberg";
  readonly at: unknown;
  readonly rows: readonly Readonly<Record<string, unknown>>[];
}

export function sparkAnswers(): ReadonlyMap<string, LakeAnswer> {
  const text = readFileSync(join(sparkTables, "answers.json"), "utf8");
  return new Map(Object.entries(JSON.parse(text) as Record<string, LakeAnswer>));
}

/** Where the table of an answer is: `v2@tag` is the table v2 at another version. */
export function tableOf(name: string, { kind }: LakeAnswer): string {
  return join(sparkTables, kind === "iceberg" ? "ns" : "", name.split("@")[0] ?? "");
}

const tools: LakeTools = {
  async query(path, { select, where }) {
    const rows = await query(
      `SELECT to_json(t)::VARCHAR AS line FROM (SELECT ${select} FROM read_parquet(${quoted(path)}) WHERE ${where}) t`,
    );
    return rows.map(({ line }) => String(line));
  },
  unpack(codec) {
    throw new RangeError(codec);
  },
};

export function diskReader(): LakeReader {
  return lakeReader(diskSource({ folder: "/", output: undefined }), tools);
}

export const closingTools = { ...tools, [Symbol.asyncDispose]: () => Promise.resolve() };

export function diskTable(table: string, files: Source = diskSource({ folder: "/", output: undefined })): Source {
  return tableSource(files, { table, at: "latest", folder: table, tools: closingTools });
}

/** The rows of a snapshot as texts, in any order, read by DuckDB: columns by field id, or else by their stored names. */
export async function rowsOfSnapshot({ columns, files }: LakeSnapshot): Promise<string[]> {
  const rows: string[] = [];
  for (const file of files) {
    const removed = new Set(await file.removed());
    const stored = await query(`SELECT name, field_id FROM parquet_schema(${quoted(file.uri)})`);
    const selected = columns.map(({ name, storedNames, fieldId }) => {
      const found = stored.find(({ name: other, field_id: id }) =>
        fieldId === undefined || id === null ? storedNames.includes(String(other)) : Number(id) === fieldId,
      );
      return `${found === undefined ? constantOf(file, name) : `"${String(found["name"])}"`}::VARCHAR AS "${name}"`;
    });
    const read = `read_parquet(${quoted(file.uri)}, file_row_number = true, hive_partitioning = false)`;
    for (const { file_row_number: row, ...values } of await query(
      `SELECT file_row_number, ${selected.join(", ")} FROM ${read}`,
    )) {
      if (!removed.has(Number(row))) {
        rows.push(rowText(columns.map(({ name }) => values[name])));
      }
    }
  }
  return rows.toSorted();
}

export function rowText(values: readonly unknown[]): string {
  const normal = (value: unknown): unknown => {
    const text = `${value as string | number}`;
    return value === null || value === undefined ? null : /^-?[\d.]+$/.test(text) ? Number(text) : text;
  };
  return JSON.stringify(values.map(normal));
}

function constantOf({ partition }: LakeFile, name: string): string {
  const value = partition.get(name);
  return value === undefined || value === null ? "NULL" : quoted(value);
}

function quoted(text: string): string {
  return `'${text.replaceAll("'", "''")}'`;
}

export function avroRecordsOf(path: string): Record<string, unknown>[] {
  return [...avroRecords(readFileSync(path), () => new Uint8Array())];
}

export async function rewriteAvro(
  path: string,
  change: (record: Readonly<Record<string, unknown>>) => Record<string, unknown>,
): Promise<void> {
  const records = avroRecordsOf(path);
  const { meta } = avsc.extractFileHeader(path) as { meta: { "avro.schema": Schema } };
  const type = avsc.Type.forSchema(meta["avro.schema"], { registry: { long: exactLong } });
  const file = avsc.createFileEncoder(path, type);
  for (const record of records) {
    file.write(change(record));
  }
  file.end();
  await once(file, "finish");
}

export interface LakeJob {
  readonly table: string;
  /** Default: latest. */
  readonly at?: string;
  /** The columns of the table, all of which are carried; the first one is scored as itself. */
  readonly columns: readonly string[];
  /** More of the spec. */
  readonly input?: object;
  readonly more?: object;
}

/** Writes a job that reads a table, with its model, into a folder; the output is `out` there. */
export async function writeLakeJob(folder: string, { table, at, columns, input, more }: LakeJob): Promise<string> {
  await writeModel(join(folder, "model.onnx"), {
    inputs: [{ name: "x", dtype: "float64", shape: ["N", 1] }],
    outputs: [{ name: "score", dtype: "float64", shape: ["N", 1] }],
    nodes: [{ op: "Identity", from: ["x"], to: "score" }],
  });
  const spec = {
    version: 1,
    name: "lake",
    input: { table, ...(at === undefined ? {} : { at }), ...input },
    model: { path: "model.onnx", inputs: { x: columns.slice(0, 1) } },
    output: { columns, parquet: { path: "out" } },
    ...more,
  };
  const path = join(folder, "job.yaml");
  await writeFile(path, JSON.stringify(spec));
  return path;
}

type Rows = readonly Readonly<Record<string, unknown>>[];

/** Whether a run of such a job has each row of a table once, with all of its values and its prediction. */
export async function expectScored(folder: string, rows: Rows, columns: readonly string[]): Promise<void> {
  requireScored(await outputRows(join(folder, "out")), rows, columns);
}

/** Whether the runs of a chain of such a job have each row of a table once. */
export async function expectRuns(folder: string, rows: Rows, columns: readonly string[]): Promise<void> {
  const out = join(folder, "out");
  const runs = (await readdir(out)).filter((name) => name.startsWith("run="));
  requireScored((await Promise.all(runs.map((run) => outputRows(join(out, run))))).flat(), rows, columns);
}

function requireScored(scored: Rows, rows: Rows, columns: readonly string[]): void {
  const text = (row: Readonly<Record<string, unknown>>, score: unknown): string =>
    rowText([...columns.map((name) => row[name]), score]);
  const expected = rows.map((row) => text(row, row[columns[0] ?? ""]));
  expect(scored.map((row) => text(row, row["score"])).toSorted()).toEqual(expected.toSorted());
}

/** The rows of a Delta table on a disk, as its log names them, of files without deletion vectors. */
export async function rowsOfDelta(table: string): Promise<Rows> {
  return await readFiles(Object.values(await filesOfDelta(table)).flat());
}

interface DeltaAction {
  readonly add?: { readonly path: string; readonly partitionValues: Record<string, string> };
  readonly remove?: { readonly path: string };
  readonly txn?: { readonly appId: string };
}

/** What the log of a Delta table on a disk says, without its checkpoints. */
async function actionsOfDelta(table: string): Promise<readonly DeltaAction[]> {
  const log = join(table, "_delta_log");
  const names = (await readdir(log).catch(() => [])).filter((name) => name.endsWith(".json")).toSorted();
  const texts = await Promise.all(names.map((name) => readFile(join(log, name), "utf8")));
  return texts.flatMap((text) => text.trim().split("\n")).map((line) => JSON.parse(line) as DeltaAction);
}

/** The applications that a Delta table knows the last transaction of. */
export async function appsOfDelta(table: string): Promise<string[]> {
  return [...new Set((await actionsOfDelta(table)).flatMap(({ txn }) => (txn === undefined ? [] : [txn.appId])))];
}

/** The files of a Delta table by the values of their partition. */
export async function filesOfDelta(table: string): Promise<Readonly<Record<string, string[]>>> {
  const files = new Map<string, string>();
  for (const { add, remove } of await actionsOfDelta(table)) {
    files.delete(remove?.path ?? "");
    if (add !== undefined) {
      files.set(add.path, Object.values(add.partitionValues).join());
    }
  }
  const byPartition: Record<string, string[]> = {};
  for (const [path, partition] of files) {
    (byPartition[partition] ??= []).push(join(table, decodeURIComponent(path)));
  }
  return byPartition;
}
