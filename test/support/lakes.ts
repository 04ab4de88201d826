import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import avsc, { type Schema } from "avsc";
import { avroRecords, exactLong } from "#src/sources/lake/avro.js";
import { diskSource } from "#src/sources/disk.js";
import type { LakeFile, LakeReader, LakeSnapshot } from "#src/sources/lake/snapshot.js";
import { lakeReader } from "#src/sources/lake/source.js";
import { projectFolder } from "./cli.js";
import { query } from "./parquet.js";

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

/** Reads metadata from a disk. */
export function diskReader(): LakeReader {
  return lakeReader(diskSource({ folder: "/", output: undefined }), {
    async query(path, { select, where }) {
      const rows = await query(
        `SELECT to_json(t)::VARCHAR AS line FROM (SELECT ${select} FROM read_parquet(${quoted(path)}) WHERE ${where}) t`,
      );
      return rows.map(({ line }) => String(line));
    },
    unpack(codec) {
      throw new RangeError(codec);
    },
  });
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

/** The records of an Avro file. */
export function avroRecordsOf(path: string): Record<string, unknown>[] {
  return [...avroRecords(readFileSync(path), () => new Uint8Array())];
}

/** Writes the records of an Avro file anew, changed. */
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
