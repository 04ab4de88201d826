import { type DuckDBConnection, DuckDBStructType, type DuckDBType } from "@duckdb/node-api";
import type { SourceColumn } from "../columnar/types.js";
import { quotePath, quotePaths } from "./sql.js";
import { columnTypeOf } from "./types.js";

/** A digest of everything in a footer that the columns' types can depend on, for each file. */
export async function schemaDigests(
  connection: DuckDBConnection,
  paths: readonly string[],
): Promise<ReadonlyMap<string, string>> {
  const found = await connection.runAndReadAll(
    `SELECT file_name, md5(string_agg(concat_ws('|', name, type, type_length, duckdb_type, num_children, repetition_type,
       converted_type, logical_type, scale, precision), chr(10) ORDER BY column_id))
     FROM parquet_schema(${quotePaths(paths)}) GROUP BY file_name`,
  );
  return new Map(found.getRows().map(([path, digest]) => [String(path), String(digest)]));
}

/** The columns of one file, in file order. @throws Error of DuckDB */
export async function readColumns(connection: DuckDBConnection, path: string): Promise<SourceColumn[]> {
  const empty = await connection.run(
    `SELECT * FROM read_parquet(${quotePath(path)}, hive_partitioning = false) LIMIT 0`,
  );
  const types = empty.columnTypes();
  const tooWide = await wideDecimals(connection, path);
  return empty.columnNames().map((name, index) => {
    const type = types[index];
    const decimal = tooWide.get(index);
    return decimal === undefined ? sourceColumn(name, type) : { name, sourceType: decimal, type: undefined };
  });
}

function sourceColumn(name: string, from: DuckDBType | undefined): SourceColumn {
  const type = from === undefined ? undefined : columnTypeOf(from);
  const column = { name, sourceType: shownType(from), type };
  return type === undefined && from instanceof DuckDBStructType
    ? { ...column, fields: from.entryNames.map((field, index) => sourceColumn(field, from.entryTypes[index])) }
    : column;
}

/** DuckDB's name of a type, without a geometry's coordinate system, which can be a page of JSON. */
function shownType(type: DuckDBType | undefined): string {
  return String(type).replaceAll(/GEOMETRY\('(?:[^']|'')*'\)/g, "GEOMETRY");
}

/** DuckDB reads decimals of more than 38 digits as DOUBLE, and wrongly. */
const decimalDigits = 38;

/** By place in the file: columns that are, or hold, such decimals, with the type that they really have. */
async function wideDecimals(connection: DuckDBConnection, path: string): Promise<ReadonlyMap<number, string>> {
  const found = await connection.runAndReadAll(
    `SELECT num_children, precision, scale FROM parquet_schema(${quotePaths([path])}) ORDER BY column_id`,
  );
  const wide = new Map<number, string>();
  let column = -1;
  /** Elements that are still to come below the current column. */
  let left = 0;
  for (const [children, precision, scale] of found.getRows().slice(1)) {
    if (left === 0) {
      column += 1;
      left = 1;
    }
    left += Number(children ?? 0) - 1;
    if (Number(precision ?? 0) > decimalDigits) {
      wide.set(column, `DECIMAL(${Number(precision)},${Number(scale)})`);
    }
  }
  return wide;
}
