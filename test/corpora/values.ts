import {
  DuckDBBlobValue,
  DuckDBDecimalValue,
  DuckDBListType,
  DuckDBListValue,
  DuckDBStructType,
  DuckDBStructValue,
  DuckDBTimeTZValue,
  DuckDBTimestampNanosecondsValue,
  DuckDBTimestampTZValue,
  DuckDBTimestampValue,
  type DuckDBType,
  DuckDBTypeId,
  type DuckDBValue,
} from "@duckdb/node-api";
import { connectToDuckDb } from "../support/parquet.js";

/** Each column of Parquet files as texts, row by row, files in the order given. */
export async function columnTexts(paths: readonly string[]): Promise<ReadonlyMap<string, readonly string[]>> {
  const connection = await connectToDuckDb();
  try {
    const list = paths.map((path) => `'${path.replaceAll("'", "''")}'`).join(", ");
    const result = await connection.runAndReadAll(`FROM read_parquet([${list}], hive_partitioning = false)`);
    const columns = result.getColumns();
    const types = result.columnTypes();
    return new Map(
      result.columnNames().map((name, index) => {
        const type = types[index];
        if (type === undefined) {
          throw new Error(`column ${name} has no type`);
        }
        return [name, (columns[index] ?? []).map((value) => text(value, type))];
      }),
    );
  } finally {
    connection.closeSync();
  }
}

/** One value as text: the same as `text` of fixtures/corpora.py, which says how. */
function text(value: DuckDBValue, type: DuckDBType): string {
  const isPlain = typeof value === "boolean" || typeof value === "bigint" || value instanceof DuckDBDecimalValue;
  if (value === null || isPlain) {
    return String(value);
  }
  if (typeof value === "number") {
    return type.typeId === DuckDBTypeId.FLOAT || type.typeId === DuckDBTypeId.DOUBLE ? floatText(value) : String(value);
  }
  if (typeof value === "string") {
    return JSON.stringify(value);
  }
  if (value instanceof DuckDBTimestampValue || value instanceof DuckDBTimestampTZValue) {
    return String(value.micros);
  }
  if (value instanceof DuckDBTimestampNanosecondsValue) {
    return String(value.nanos);
  }
  if (value instanceof DuckDBTimeTZValue) {
    const time = new Date(Number(value.micros / 1000n)).toISOString().slice(11, -1);
    return time.endsWith(".000") ? time.slice(0, -4) : `${time}${String(value.micros % 1000n).padStart(3, "0")}`;
  }
  if (value instanceof DuckDBBlobValue) {
    return `0x${Buffer.from(value.bytes).toString("hex")}`;
  }
  if (value instanceof DuckDBListValue && type instanceof DuckDBListType) {
    return `[${value.items.map((item) => text(item, type.valueType)).join()}]`;
  }
  if (value instanceof DuckDBStructValue && type instanceof DuckDBStructType) {
    const fields = type.entryNames.map((name, index) => {
      const fieldType = type.entryTypes[index];
      return fieldType === undefined ? "" : `${JSON.stringify(name)}:${text(value.entries[name] ?? null, fieldType)}`;
    });
    return `{${fields.join()}}`;
  }
  throw new Error(`a value of ${String(type)}`);
}

export function floatText(value: number): string {
  if (!Number.isFinite(value)) {
    return Number.isNaN(value) ? "nan" : value > 0 ? "inf" : "-inf";
  }
  return Object.is(value, -0) ? "-0e+0" : value.toExponential();
}

/** Columns of a CSV file by place, as texts; an empty value is NULL, and `isText` says which columns are quoted. */
export function csvTexts(csv: string, isText: readonly boolean[]): string[][] {
  const columns: string[][] = isText.map(() => []);
  for (const line of csv.trimEnd().split("\n").slice(1)) {
    const values = [...line.matchAll(/(?:^|,)(?:"((?:[^"]|"")*)"|([^",]*))/g)];
    if (values.length !== isText.length) {
      throw new Error(`${values.length} values, expected ${isText.length}: ${line}`);
    }
    for (const [index, [, quoted, bare]] of values.entries()) {
      const value = (quoted ?? bare ?? "").replaceAll('""', '"');
      columns[index]?.push(value === "" ? "null" : isText[index] === true ? JSON.stringify(value) : value);
    }
  }
  return columns;
}
