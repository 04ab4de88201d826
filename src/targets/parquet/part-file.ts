import { quoteText } from "../../base/sql.js";
import type { Column, ColumnType, NamedColumn, OutputRows } from "../../columns/types.js";
import { createTable } from "../../duckdb/vectors.js";
import type { DuckDBConnection, DuckDbAccess } from "../../duckdb/instance.js";
import { readColumns, schemaDigests } from "../../duckdb/parquet-schema.js";
import { quotePaths } from "../../duckdb/sql.js";
import type { Compression } from "../../job/jobfile/output-spec.js";
import { type PartFacts, type PartLabel, parseLabel } from "./manifest.js";
import { assertNever } from "../../base/errors.js";

const labelKey = "infer-batch";
const profileKey = "infer-batch-profile";

let tables = 0;

export interface PartToWrite {
  readonly path: string;
  readonly rows: OutputRows;
  /** undefined: it is no whole part. */
  readonly label: PartLabel | undefined;
  /** The profile of the rows, as `profileText` wrote it. */
  readonly profile: string | undefined;
  readonly compression: Compression;
  readonly columnIds: ColumnIds | undefined;
}

/** The ids of columns, by name; with those of what is in a list ("element") or a struct. */
export interface ColumnIds {
  readonly [name: string]: number | readonly [id: number, inside: ColumnIds];
}

function fieldIds(ids: ColumnIds): string {
  const pairs = Object.entries(ids).map(([name, id]) => {
    const value = typeof id === "number" ? String(id) : `{__duckdb_field_id: ${id[0]}, ${fieldIds(id[1]).slice(1)}`;
    return `${quoteText(name)}: ${value}`;
  });
  return `{${pairs.join(", ")}}`;
}

/**
 * Encodes a span's rows into a Parquet file, which is not durable yet. Returns the number of rows that DuckDB wrote.
 */
export async function writePart(
  duckdb: DuckDbAccess,
  { path, rows, label, profile, compression, columnIds }: PartToWrite,
): Promise<number> {
  const connection = await duckdb.connect();
  tables += 1;
  const table = `span_${tables}`;
  try {
    await createTable(connection, table, rows);
    // Off for the whole part: DuckDB has no such option for a column.
    const dictionaries = dictionaryMerges(rows.columns) ? "DICTIONARY_SIZE_LIMIT 0, " : "";
    const metadata = [
      ...(label === undefined ? [] : [[labelKey, JSON.stringify(label)] as const]),
      ...(profile === undefined ? [] : [[profileKey, profile] as const]),
    ];
    const pairs = metadata.map(([key, value]) => `${quoteText(key)}: ${quoteText(value)}`);
    const labelled = pairs.length === 0 ? "" : `, KV_METADATA {${pairs.join(", ")}}`;
    const numbered = columnIds === undefined ? "" : `, FIELD_IDS ${fieldIds(columnIds)}`;
    const result = await connection.run(
      `COPY ${table} TO ${quoteText(path)} (FORMAT parquet, COMPRESSION ${compression}, ${dictionaries}USE_TMP_FILE false${labelled}${numbered})`,
    );
    return result.rowsChanged;
  } finally {
    connection.closeSync(); // drops the temporary table, too
  }
}

/** Reads the footers of parts. @throws Error of DuckDB when one cannot be read */
export async function describeParts(connection: DuckDBConnection, paths: readonly string[]): Promise<PartFacts[]> {
  const list = quotePaths(paths);
  const labels = new Map<string, PartLabel>();
  for (const [path, text] of await readMetadata(connection, paths, labelKey)) {
    const label = parseLabel(text);
    if (label !== undefined) {
      labels.set(path, label);
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

/** Reads the profiles of parts, by path; those without one are left out. @throws Error of DuckDB when one cannot be read */
export async function describeProfiles(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<Map<string, string>> {
  return await readMetadata(connection, paths, profileKey);
}

async function readMetadata(
  connection: DuckDBConnection,
  paths: readonly string[],
  key: string,
): Promise<Map<string, string>> {
  const found = await connection.runAndReadAll(
    `SELECT file_name, decode(value) FROM parquet_kv_metadata(${quotePaths(paths)}) WHERE decode(key) = ${quoteText(key)}`,
  );
  return new Map(found.getRows().map(([path, text]) => [String(path), String(text)]));
}

/** A dictionary keeps one of several values that compare equal: 0 equals -0, and a month equals 30 days. */
function dictionaryMerges(columns: readonly NamedColumn[]): boolean {
  return columns.some(({ type, column }) => mergesIn(type, column));
}

function mergesIn(type: ColumnType, column: Column): boolean {
  switch (column.kind) {
    case "fixed":
      return type === "interval" || hasNegativeZero(type, column.data);
    case "bytes":
      return false;
    case "list":
      return typeof type === "object" && type.kind === "list" && mergesIn(type.element, column.child);
    case "struct":
      return (
        typeof type === "object" &&
        type.kind === "struct" &&
        type.fields.some((field, index) => {
          const child = column.children[index];
          return child !== undefined && mergesIn(field.type, child);
        })
      );
    default:
      return assertNever(column);
  }
}

/** Searches integers, since a search among floats finds 0 too. The search runs in native code. */
function hasNegativeZero(
  type: ColumnType,
  { buffer, byteOffset, length }: ArrayBufferView & { length: number },
): boolean {
  return type === "float32"
    ? new Uint32Array(buffer, byteOffset, length).includes(0x8000_0000)
    : type === "float64" && new BigUint64Array(buffer, byteOffset, length).includes(0x8000_0000_0000_0000n);
}
