import {
  type DuckDBConnection,
  DuckDBListType,
  DuckDBMapType,
  DuckDBStructType,
  type DuckDBType,
  LIST,
  MAP,
  TIMESTAMP_NS,
} from "@duckdb/node-api";
import type { SourceColumn } from "../columns/types.js";
import { quotePath, quotePaths } from "./sql.js";
import { columnTypeOf } from "./vectors.js";

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

/** What a footer says of a column of values. */
export interface ParquetLeaf {
  /** Names from the table's column down to the leaf. */
  readonly path: readonly string[];
  /** Number of the table's column that it is, or is a part of. */
  readonly column: number;
  /** "null" for the type null, whose values are all NULL. */
  readonly annotation: string;
  /** Set for nanoseconds in UTC. */
  readonly utcNanosAt: number | undefined;
}

/** Reads the columns of one file, in file order. DuckDB renames columns that only case tells apart. @throws Error from DuckDB */
export async function readColumns(
  connection: DuckDBConnection,
  path: string,
  leaves: readonly ParquetLeaf[] = [],
): Promise<SourceColumn[]> {
  const empty = await connection.run(
    `SELECT * FROM read_parquet(${quotePath(path)}, hive_partitioning = false) LIMIT 0`,
  );
  const types = empty.columnTypes();
  const tooWide = await wideDecimals(connection, path);
  const leavesOf = new Map<number, ParquetLeaf[]>();
  for (const leaf of leaves) {
    leavesOf.set(leaf.column, [...(leavesOf.get(leaf.column) ?? []), leaf]);
  }
  return empty.columnNames().map((name, index) => {
    const type = types[index];
    const decimal = tooWide.get(index);
    const own = leavesOf.get(index) ?? [];
    return decimal === undefined ? retyped(name, type, own) : { name, sourceType: decimal, type: undefined };
  });
}

/**
 * A column with the types of its leaves, and the names of its fields in the file. DuckDB takes the type null for INTEGER,
 * cuts nanoseconds in UTC to microseconds, and renames fields that only case tells apart.
 */
function retyped(name: string, type: DuckDBType | undefined, leaves: readonly ParquetLeaf[]): SourceColumn {
  const [first] = leaves;
  if (type === undefined || first === undefined) {
    return sourceColumn(name, type);
  }
  if (first.annotation === "null" && first.path.length === 1) {
    return { name, sourceType: "NULL", type: undefined, onlyNulls: true };
  }
  let next = 0;
  /** `depth`: steps of a leaf's path that lead to the type; NaN inside of lists, whose levels have names of their own. */
  const typed = (inner: DuckDBType, depth: number): DuckDBType => {
    if (inner instanceof DuckDBListType) {
      return LIST(typed(inner.valueType, Number.NaN));
    }
    if (inner instanceof DuckDBMapType) {
      return MAP(typed(inner.keyType, Number.NaN), typed(inner.valueType, Number.NaN));
    }
    if (inner instanceof DuckDBStructType) {
      const fields = inner.entryTypes.map((entry, index) => ({
        name: leaves[next]?.path[depth] ?? inner.entryNames[index] ?? "",
        type: typed(entry, depth + 1),
      }));
      return new DuckDBStructType(
        fields.map((field) => field.name),
        fields.map((field) => field.type),
      );
    }
    const leaf = leaves[next];
    next += 1;
    return leaf?.utcNanosAt === undefined ? inner : TIMESTAMP_NS;
  };
  const found = typed(type, 1);
  if (next !== leaves.length && leaves.some(({ utcNanosAt }) => utcNanosAt !== undefined)) {
    return { name, sourceType: typeText(type), type: undefined }; // VARIANT, of several leaves: those after it are not known
  }
  const column = sourceColumn(name, next === leaves.length ? found : type);
  return leaves.some(({ utcNanosAt }) => utcNanosAt !== undefined) ? { ...column, isUtc: true } : column;
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
