import { DuckDBDataChunk } from "@duckdb/node-api";
import { z } from "zod";
import type { NamedColumn, OutputRows } from "../batch/types.js";
import { type DuckDbAccess, type DuckDBConnection, quoteName, quotePaths, quoteText } from "../duckdb/instance.js";
import { readColumns, schemaDigests } from "../duckdb/parquet-schema.js";
import { duckDbTypeOf, sqlTypeOf } from "../duckdb/types.js";
import { writeColumn } from "../duckdb/write-vector.js";
import { parseJson } from "../plan/parse-plan.js";
import type { Compression } from "../spec/parquet-spec.js";
import type { Maker } from "./port.js";
import { dictionaryMerges } from "./dictionary.js";

/** Rows of one DuckDB vector. */
const chunkRows = 2048;

/** What each part says of itself in Parquet's key-value metadata. */
export interface PartLabel {
  readonly runId: string;
  readonly planId: string;
  readonly span: number;
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Rows of the span that are not in the part but in its file under `_rejects/`. */
  readonly rejected: number;
  /** Of that file's text, in hex: the file is found by it. null: there is none. */
  readonly rejectsSha256: string | null;
  /** Rows of the span that `input.where` left out. */
  readonly filtered: number;
  readonly maker: Maker;
}

export interface PartFacts {
  readonly path: string;
  /** undefined: not labelled as a part. */
  readonly label: PartLabel | undefined;
  readonly rows: number;
  /** `name TYPE, …` */
  readonly schema: string;
}

const labelKey = "infer-batch";

/** The schema of a part, as `describeParts` reads it back. */
export function partSchema(columns: readonly Pick<NamedColumn, "name" | "type">[]): string {
  return columns.map(({ name, type }) => `${name} ${sqlTypeOf(type)}`).join(", ");
}

let tables = 0;

/** Encodes a span's rows into a Parquet file. Not durable yet. Returns the rows that DuckDB says it wrote. */
export async function writePart(
  duckdb: DuckDbAccess,
  { path, rows, label, compression }: { path: string; rows: OutputRows; label: PartLabel; compression: Compression },
): Promise<number> {
  const connection = await duckdb.connect();
  tables += 1;
  const table = `span_${tables}`;
  try {
    const definitions = rows.columns.map(({ name, type }) => `${quoteName(name)} ${sqlTypeOf(type)}`);
    await connection.run(`CREATE TEMP TABLE ${table} (${definitions.join(", ")})`);
    await appendRows(connection, table, rows);
    // Off for the whole part: DuckDB has no such option for a column.
    const dictionaries = dictionaryMerges(rows.columns) ? "DICTIONARY_SIZE_LIMIT 0, " : "";
    const result = await connection.run(
      `COPY ${table} TO ${quoteText(path)} (FORMAT parquet, COMPRESSION ${compression}, ${dictionaries}USE_TMP_FILE false,
         KV_METADATA {${quoteText(labelKey)}: ${quoteText(JSON.stringify(label))}})`,
    );
    return result.rowsChanged;
  } finally {
    connection.closeSync(); // and the temporary table with it
  }
}

async function appendRows(connection: DuckDBConnection, table: string, rows: OutputRows): Promise<void> {
  const appender = await connection.createAppender(table);
  const chunk = DuckDBDataChunk.create(rows.columns.map(({ type }) => duckDbTypeOf(type)));
  for (let from = 0; from < rows.rowCount; from += chunkRows) {
    const to = Math.min(from + chunkRows, rows.rowCount);
    chunk.reset();
    for (const [index, { column }] of rows.columns.entries()) {
      writeColumn(chunk, index, column, { from, to });
    }
    chunk.rowCount = to - from;
    appender.appendDataChunk(chunk);
  }
  appender.closeSync();
}

/** Reads the footers of parts. @throws Error of DuckDB when one of them cannot be read */
export async function describeParts(connection: DuckDBConnection, paths: readonly string[]): Promise<PartFacts[]> {
  const list = quotePaths(paths);
  const labels = new Map<string, PartLabel>();
  const found = await connection.runAndReadAll(
    `SELECT file_name, decode(value) FROM parquet_kv_metadata(${list}) WHERE decode(key) = ${quoteText(labelKey)}`,
  );
  for (const [path, text] of found.getRows()) {
    const label = parseLabel(String(text));
    if (label !== undefined) {
      labels.set(String(path), label);
    }
  }
  const digests = await schemaDigests(connection, paths);
  const schemaOf = new Map<string, string>();
  for (const [path, digest] of digests) {
    if (!schemaOf.has(digest)) {
      const columns = await readColumns(connection, path);
      schemaOf.set(digest, columns.map(({ name, sourceType }) => `${name} ${sourceType}`).join(", "));
    }
  }
  const files = await connection.runAndReadAll(`SELECT file_name, num_rows FROM parquet_file_metadata(${list})`);
  return files.getRows().map(([path, rows]) => ({
    path: String(path),
    label: labels.get(String(path)),
    rows: Number(rows),
    schema: schemaOf.get(digests.get(String(path)) ?? "") ?? "",
  }));
}

/** As it stands in labels and manifests. */
export const makerSchema = z.object({
  writer: z.string(),
  worker: z.int(),
  workers: z.int(),
  program: z.string(),
  provider: z.string(),
  batchSize: z.int(),
  onBadRow: z.enum(["fail", "reject"]),
}) satisfies z.ZodType<Maker>;

const labelSchema = z.object({
  runId: z.string(),
  planId: z.string(),
  span: z.int(),
  rowStart: z.int(),
  rowEnd: z.int(),
  rejected: z.int().min(0),
  rejectsSha256: z.string().nullable(),
  filtered: z.int().min(0),
  maker: makerSchema,
}) satisfies z.ZodType<PartLabel>;

function parseLabel(text: string): PartLabel | undefined {
  return labelSchema.safeParse(parseJson(text)).data;
}
