import {
  DuckDBDataChunk,
  DuckDBDateValue,
  DuckDBDecimalValue,
  DuckDBListValue,
  DuckDBTimestampTZValue,
  DuckDBTimestampValue,
  type DuckDBValue,
} from "@duckdb/node-api";
import { type ColumnType, showType } from "#src/columnar/types.js";
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

/** Writes rows through DuckDB, as Parquet. */
export async function writeByDuckDb(
  path: string,
  columns: readonly TableColumn[],
  values: readonly (readonly Value[])[],
  options: string,
): Promise<void> {
  const connection = await connectToDuckDb();
  const table = `differential_${(tables += 1)}`;
  try {
    const definitions = columns.map(({ name, type }) => `"${name}" ${sqlType(type)}`).join(", ");
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
    // DuckDB's dictionaries keep one of 0 and -0, which compare equal.
    const plain = values.some((column) => column.some(holdsMinusZero)) ? ", DICTIONARY_SIZE_LIMIT 0" : "";
    await connection.run(`COPY ${table} TO '${path.replaceAll("'", "''")}' (FORMAT parquet, ${options}${plain})`);
    await connection.run(`DROP TABLE ${table}`);
  } finally {
    connection.closeSync();
  }
}

let tables = 0;

const holdsMinusZero = (value: Value): boolean => [value].flat().some((one) => Object.is(one, -0));

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
  "timestamp[us, UTC]": "TIMESTAMPTZ",
};

function sqlType(type: ColumnType): string {
  if (typeof type === "object" && type.kind === "list") {
    return `${sqlType(type.element)}[]`;
  }
  if (typeof type === "object" && type.kind === "decimal") {
    return `DECIMAL(${type.precision}, ${type.scale})`;
  }
  return sqlNames[showType(type)] ?? "";
}

function duckDbValue(value: Value, type: ColumnType): DuckDBValue {
  if (value === null || typeof value === "boolean" || typeof value === "string") {
    return value;
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
    case "timestamp[us, UTC]":
      return new DuckDBTimestampTZValue(BigInt(value));
    case "int64":
    case "uint64":
      return value;
    default:
      return Number(value);
  }
}
