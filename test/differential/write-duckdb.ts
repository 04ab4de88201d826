import { readFile, writeFile } from "node:fs/promises";
import {
  type DuckDBConnection,
  DuckDBDataChunk,
  DuckDBDateValue,
  DuckDBDecimalValue,
  DuckDBListValue,
  DuckDBStructValue,
  DuckDBTimestampNanosecondsValue,
  DuckDBTimestampTZValue,
  DuckDBTimestampValue,
  type DuckDBValue,
} from "@duckdb/node-api";
import { type ColumnType, showType } from "#src/columns/types.js";
import { connectToDuckDb } from "../support/parquet.js";
import type { Dice } from "./dice.js";
import { type TableColumn, type Value } from "./values.js";

/** Rows of one vector of DuckDB's. */
const chunkRows = 2048;

/** Options of DuckDB's `COPY … (FORMAT parquet)`. */
export function duckDbOptions(dice: Dice): string {
  const codec = dice.pick(["zstd", "snappy", "gzip", "uncompressed", "lz4_raw"]);
  const groups = dice.pick([2048, 4096, 122_880]);
  return `COMPRESSION ${codec}, ROW_GROUP_SIZE ${groups}, PARQUET_VERSION ${dice.pick(["V1", "V2"])}`;
}

/** Files of these options have statistics beside NaN, which DuckDB writes for no column with NaN. */
export const hidingNaN = "COMPRESSION uncompressed, ROW_GROUP_SIZE 2048, PARQUET_VERSION V1";

/** Makes a table of rows. */
export async function makeTable(
  connection: DuckDBConnection,
  table: string,
  columns: readonly TableColumn[],
  values: readonly (readonly Value[])[],
): Promise<void> {
  const definitions = columns.map(({ name, type }) => `${quoteName(name)} ${sqlType(type)}`).join(", ");
  await connection.run(`CREATE TEMP TABLE ${table} (${definitions})`);
  const described = await connection.run(`SELECT * FROM ${table}`);
  const appender = await connection.createAppender(table, "main", "temp");
  const rows = values[0]?.length ?? 0;
  for (let from = 0; from < rows; from += chunkRows) {
    const chunk = DuckDBDataChunk.create(described.columnTypes(), Math.min(chunkRows, rows - from));
    for (const [index, { type }] of columns.entries()) {
      const piece = values[index]?.slice(from, from + chunkRows) ?? [];
      chunk.setColumnValues(
        index,
        piece.map((value) => duckDbValue(value, type)),
      );
    }
    appender.appendDataChunk(chunk);
  }
  appender.closeSync();
}

/** Writes rows through DuckDB, as Parquet. */
export async function writeByDuckDb(
  path: string,
  columns: readonly TableColumn[],
  values: readonly (readonly Value[])[],
  options: string,
): Promise<void> {
  const connection = await connectToDuckDb();
  const table = `differential_${(tables += 1)}`;
  const hides = options === hidingNaN;
  try {
    await makeTable(connection, table, columns, hides ? values.map((column) => column.map(withMarks)) : values);
    // DuckDB's dictionaries keep one of 0 and -0, which compare equal.
    const plain = values.some((column) => column.some(holdsMinusZero)) ? ", DICTIONARY_SIZE_LIMIT 0" : "";
    await connection.run(`COPY ${table} TO '${path.replaceAll("'", "''")}' (FORMAT parquet, ${options}${plain})`);
    await connection.run(`DROP TABLE ${table}`);
  } finally {
    connection.closeSync();
  }
  if (hides) {
    await writeFile(path, withNaNs(await readFile(path)));
  }
}

/** A number that is in no table, which float32 holds, too. */
const mark = Math.fround(0.123_456_789);
const marks = [
  [Buffer.from(new Float64Array([mark]).buffer), Buffer.from(new Float64Array([Number.NaN]).buffer)],
  [Buffer.from(new Float32Array([mark]).buffer), Buffer.from(new Float32Array([Number.NaN]).buffer)],
] as const;

function withMarks(value: Value): Value {
  return Array.isArray(value) ? value.map(withMarks) : Number.isNaN(value) ? mark : value;
}

/** A file with NaN in place of the mark; what its footer says stays. */
function withNaNs(file: Buffer): Buffer {
  const footer = file.length - 8 - file.readUInt32LE(file.length - 8);
  for (const [from, to] of marks) {
    for (let at = file.indexOf(from); at >= 0 && at < footer; at = file.indexOf(from, at + 1)) {
      to.copy(file, at);
    }
  }
  return file;
}

const quoteName = (name: string): string => `"${name.replaceAll('"', '""')}"`;

let tables = 0;

const holdsMinusZero = (value: Value): boolean => [value].flat(9).some((one) => Object.is(one, -0));

const sqlNames: Readonly<Record<string, string>> = {
  int8: "TINYINT",
  int16: "SMALLINT",
  int32: "INTEGER",
  int64: "BIGINT",
  uint8: "UTINYINT",
  uint16: "USMALLINT",
  uint32: "UINTEGER",
  uint64: "UBIGINT",
  float32: "FLOAT",
  float64: "DOUBLE",
  bool: "BOOLEAN",
  utf8: "VARCHAR",
  date32: "DATE",
  "timestamp[us]": "TIMESTAMP",
  "timestamp[ns]": "TIMESTAMP_NS",
  "timestamp[us, UTC]": "TIMESTAMPTZ",
};

function sqlType(type: ColumnType): string {
  if (typeof type === "object" && type.kind === "list") {
    return `${sqlType(type.element)}[]`;
  }
  if (typeof type === "object" && type.kind === "decimal") {
    return `DECIMAL(${type.precision}, ${type.scale})`;
  }
  if (typeof type === "object" && type.kind === "struct") {
    return `STRUCT(${type.fields.map((field) => `"${field.name}" ${sqlType(field.type)}`).join(", ")})`;
  }
  return sqlNames[showType(type)] ?? "";
}

function duckDbValue(value: Value, type: ColumnType): DuckDBValue {
  if (value === null || typeof value === "boolean" || typeof value === "string") {
    return value;
  }
  if (typeof value === "object" && typeof type === "object" && type.kind === "struct") {
    const fields = type.fields.map((field, place) => [field.name, duckDbValue(value[place] ?? null, field.type)]);
    return new DuckDBStructValue(Object.fromEntries(fields) as Record<string, DuckDBValue>);
  }
  if (typeof value === "object") {
    const element = typeof type === "object" && type.kind === "list" ? type.element : type;
    return new DuckDBListValue(value.map((one) => duckDbValue(one, element)));
  }
  if (typeof type === "object" && type.kind === "decimal") {
    return new DuckDBDecimalValue(BigInt(value), type.precision, type.scale);
  }
  switch (showType(type)) {
    case "date32":
      return new DuckDBDateValue(Number(value));
    case "timestamp[us]":
      return new DuckDBTimestampValue(BigInt(value));
    case "timestamp[ns]":
      return new DuckDBTimestampNanosecondsValue(BigInt(value));
    case "timestamp[us, UTC]":
      return new DuckDBTimestampTZValue(BigInt(value));
    case "int64":
    case "uint64":
      return value;
    default:
      return Number(value);
  }
}
