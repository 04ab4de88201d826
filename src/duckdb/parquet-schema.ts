import { type DuckDBConnection, DuckDBStructType, type DuckDBType } from "@duckdb/node-api";
import type { SourceColumn } from "../columnar/types.js";
import { quotePath, quotePaths } from "./sql.js";
import { columnTypeOf } from "./types.js";

/** For each file, a digest of all footer fields that the columns' types can depend on. */
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

/** Reads the columns of one file, in file order. @throws Error from DuckDB */
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
  const column = { name, sourceType: typeText(from), type };
  return type === undefined && from instanceof DuckDBStructType
    ? { ...column, fields: from.entryNames.map((field, index) => sourceColumn(field, from.entryTypes[index])) }
    : column;
}

/** DuckDB's name of a type, without the coordinate system of a geometry, which can be a page of JSON. */
function typeText(type: DuckDBType | undefined): string {
  return String(type).replaceAll(/GEOMETRY\('(?:[^']|'')*'\)/g, "GEOMETRY");
}

/** The most digits of DuckDB's decimals. It reads wider ones as DOUBLE, with wrong values. */
const decimalDigits = 38;

/** Finds columns that are, or contain, wider decimals; returns the Parquet type by the column's position in the file. */
async function wideDecimals(connection: DuckDBConnection, path: string): Promise<ReadonlyMap<number, string>> {
  const found = await connection.runAndReadAll(
    `SELECT num_children, precision, scale FROM parquet_schema(${quotePaths([path])}) ORDER BY column_id`,
  );
  const wide = new Map<number, string>();
  let column = -1;
  /** Schema elements left in the current column. */
  let remaining = 0;
  for (const [children, precision, scale] of found.getRows().slice(1)) {
    if (remaining === 0) {
      column += 1;
      remaining = 1;
    }
    remaining += Number(children ?? 0) - 1;
    if (Number(precision ?? 0) > decimalDigits) {
      wide.set(column, `DECIMAL(${Number(precision)},${Number(scale)})`);
    }
  }
  return wide;
}
