import { readFile } from "node:fs/promises";
import { extname, resolve } from "node:path";
import { openDuckDb } from "../../duckdb/instance.js";
import { firstLine, quoteName, quotePath } from "../../duckdb/sql.js";
import type { KeyList } from "../../publish/erasure.js";
import { JobError, messageOf } from "../../util/errors.js";
import { fileError } from "./given-files.js";

/** A run reads all keys into memory. */
const keysLimit = 1_000_000;

/**
 * Reads a file of keys: Parquet or CSV with a header, whose columns are the key, or a text with a key on each line.
 * @param columns the key columns. Default: those of the file
 * @param usual returns the key columns for a text file, which has no header
 * @throws JobError USAGE, FILE_MISSING
 */
export async function readKeys(
  path: string,
  { columns, usual }: { readonly columns: readonly string[] | undefined; readonly usual: () => readonly string[] },
): Promise<KeyList> {
  const kind = extname(path).toLowerCase();
  const list =
    kind === ".parquet" || kind === ".csv"
      ? await readTable(path, kind, columns)
      : await readLines(path, columns ?? usual());
  if (list.keys.length === 0) {
    throw new JobError("USAGE", `reading ${path}: it has no keys`);
  }
  return list;
}

/** Reads the lines of a text; empty ones are no keys. */
async function readLines(path: string, key: readonly string[]): Promise<KeyList> {
  const [column, ...more] = key;
  if (column === undefined || more.length > 0) {
    const found = key.length === 0 ? "no column is its key" : `the key has several columns: ${key.join(", ")}`;
    throw new JobError("USAGE", `reading ${path}: it has one value a line, and ${found}`, {
      hint: "name one column with --key; or give a file .csv or .parquet with a column for each part of the key",
    });
  }
  const text = await readFile(path, "utf8").catch((cause: unknown) => {
    throw fileError(`reading ${path}`, cause, "--keys names a file with a key on each line, or .csv or .parquet");
  });
  const lines = text.split("\n").map((line) => [line.replace(/\r$/, "")]);
  return listOf([column], lines, (line) => `line ${line + 1}`);
}

async function readTable(path: string, kind: string, columns: readonly string[] | undefined): Promise<KeyList> {
  const file = resolve(path);
  await readFile(file).catch((cause: unknown) => {
    throw fileError(`reading ${path}`, cause, "--keys names a file with a key on each line, or .csv or .parquet");
  });
  using duckdb = await openDuckDb({ threads: 1, allowed: { files: [file] } });
  const connection = await duckdb.connect();
  const isCsv = kind === ".csv";
  const from = isCsv
    ? `read_csv(${quotePath(file)}, header = true, all_varchar = true, hive_partitioning = false)`
    : `read_parquet(${quotePath(file)}, hive_partitioning = false)`;
  try {
    const described = await connection.runAndReadAll(`DESCRIBE SELECT * FROM ${from}`);
    const there = described.getRows().map(([name]) => String(name));
    const missing = columns?.find((column) => !there.includes(column));
    if (missing !== undefined) {
      throw new JobError("USAGE", `reading ${path}: it has no column ${missing}`, {
        hint: `--key names columns of this file; it has ${there.join(", ")}`,
      });
    }
    const names = columns ?? there;
    const texts = names.map((name) => `${quoteName(name)}::VARCHAR`);
    const found = await connection.runAndReadAll(`SELECT ${texts.join(", ")} FROM ${from} LIMIT ${keysLimit + 1}`);
    const rows = found.getRows().map((row) => row.map((value) => (value === null ? "" : String(value))));
    return listOf(names, rows, (row) => (isCsv ? `line ${row + 2}` : `row ${row + 1}`));
  } catch (error) {
    throw error instanceof JobError
      ? error
      : new JobError("USAGE", `reading ${path}: ${firstLine(messageOf(error))}`, {
          hint: isCsv ? "a .csv has a header with the names of the key columns" : "a .parquet has the key columns",
          cause: error,
        });
  } finally {
    connection.closeSync();
  }
}

/** Removes keys that are there twice, and those with an empty part, which is no value. */
function listOf(
  columns: readonly string[],
  rows: readonly (readonly string[])[],
  placeOf: (row: number) => string,
): KeyList {
  if (rows.length > keysLimit) {
    throw new JobError("USAGE", `reading keys: there are more than ${keysLimit}`, {
      hint: "give them in several files",
    });
  }
  const seen = new Map<string, number>();
  for (const [row, key] of rows.entries()) {
    const text = JSON.stringify(key);
    if (!key.includes("") && !seen.has(text)) {
      seen.set(text, row);
    }
  }
  const places = [...seen.values()];
  return {
    columns,
    keys: places.map((row) => rows[row] ?? []),
    placeOf: (index) => placeOf(places[index] ?? 0),
  };
}
