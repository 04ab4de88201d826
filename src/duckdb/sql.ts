import { quoteName, quoteText } from "../base/sql.js";
import type { ColumnType, ScalarType, TypedColumn } from "../columns/types.js";
import { assertNever } from "../base/errors.js";

const scalarNames: Readonly<Record<ScalarType, string>> = {
  bool: "BOOLEAN",
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
  utf8: "VARCHAR",
  binary: "BLOB",
  uuid: "UUID",
  date32: "DATE",
  "time64[us]": "TIME",
  "time64[ns]": "TIME_NS",
  "time64[us, zone]": "TIME WITH TIME ZONE",
  "timestamp[us]": "TIMESTAMP",
  "timestamp[ns]": "TIMESTAMP_NS",
  "timestamp[us, UTC]": "TIMESTAMP WITH TIME ZONE",
  interval: "INTERVAL",
};

/** The SQL name of a column type, as DuckDB writes it: "BIGINT" for int64. */
export function sqlTypeOf(type: ColumnType): string {
  if (typeof type === "string") {
    return scalarNames[type];
  }
  switch (type.kind) {
    case "decimal":
      return `DECIMAL(${type.precision},${type.scale})`;
    case "list":
      return `${sqlTypeOf(type.element)}[]`;
    case "struct":
      return `STRUCT(${type.fields.map((field) => `${quoteName(field.name)} ${sqlTypeOf(field.type)}`).join(", ")})`;
    default:
      return assertNever(type);
  }
}

/** A glob that matches exactly this path: DuckDB's readers treat every path as a glob. */
export function exactGlob(path: string): string {
  return path.replaceAll(/[[*?]/g, (character) => `[${character}]`);
}

/** The literal of a glob that matches exactly this path. */
export function quotePath(path: string): string {
  return quoteText(exactGlob(path));
}

/** The list literal of files, for `read_parquet` and the metadata functions. */
export function quotePaths(paths: readonly string[]): string {
  return `[${paths.map(quotePath).join(", ")}]`;
}

/** The first line of a DuckDB error, which says what is wrong; the lines below quote the SQL. */
export function firstLine(message: string): string {
  return message.split("\n", 1)[0] ?? "";
}

/** SQL for the rows of CSV files without a header, as Postgres writes them, with \\N for NULL. */
export function csvRows(columns: readonly TypedColumn[], paths: readonly string[]): string {
  const types = columns.map(({ name, type }) => `${quoteText(name)}: ${quoteText(sqlTypeOf(type))}`).join(", ");
  // Without new_line, DuckDB takes the first line end that it meets, also within quotes, for that of all lines.
  const format = `new_line = '\\n', header = false, delim = ',', quote = '"', escape = '"', nullstr = '\\N', allow_quoted_nulls = false, auto_detect = false`;
  return `read_csv(${quotePaths(paths)}, columns = {${types}}, ${format})`;
}
