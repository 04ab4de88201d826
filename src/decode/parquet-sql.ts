import type { InputBinding } from "../batch/contract.js";
import { assertNever } from "../errors.js";
import { quotePath } from "../duckdb/instance.js";
import { type CastRules, castSql, castTarget, columnSql, type Partitions } from "./cast-sql.js";
import type { SliceRequest } from "./port.js";

/** Name of the row-number column that DuckDB adds; a column of the file with this name is refused when planning. */
export const rowNumberColumn = "file_row_number";

/** `FROM … WHERE …`: some rows of one file, told by a condition on their number. */
export function fromRows(path: string, condition: string): string {
  return `FROM read_parquet(${quotePath(path)}, file_row_number = true, hive_partitioning = false) AS shard WHERE ${condition}`;
}

/** Rows [rowStart, rowEnd). */
export function inSlice({ rowStart, rowEnd }: Pick<SliceRequest, "rowStart" | "rowEnd">): string {
  return `${rowNumberColumn} >= ${rowStart} AND ${rowNumberColumn} < ${rowEnd}`;
}

/** One SELECT: the row number in the file, then a column for each input, then the carried ones. */
export function sliceSql(slice: SliceRequest): string {
  const { projection, partitions } = slice;
  const columns = [
    ...projection.inputs.map((binding) => inputSql(binding, projection, partitions)),
    ...projection.passthrough.map(({ source }) => columnSql(source, partitions)),
  ].map((sql, index) => `${sql} AS c${index}`);
  return `SELECT ${[rowNumberColumn, ...columns].join(", ")} ${fromRows(slice.path, inSlice(slice))}`;
}

function inputSql(binding: InputBinding, rules: CastRules, partitions: Partitions): string {
  switch (binding.kind) {
    case "text":
      return columnSql(binding.column, partitions);
    case "list":
      return listSql(binding, rules, partitions);
    case "matrix":
      return matrixSql(binding, rules, partitions);
    default:
      return assertNever(binding);
  }
}

/** One list vector whose child data is the packed matrix; a lone column needs no list. */
function matrixSql(
  { columns, dtype }: Extract<InputBinding, { kind: "matrix" }>,
  rules: CastRules,
  partitions: Partitions,
): string {
  const values = columns.map((column) => castSql(columnSql(column, partitions), column.type, dtype, rules));
  return columns.length === 1 ? values.join("") : `list_value(${values.join(", ")})`;
}

/** A row of another length, or NULL, becomes NULLs: it does not fit. */
function listSql(
  { column, dtype, width }: Extract<InputBinding, { kind: "list" }>,
  rules: CastRules,
  partitions: Partitions,
): string {
  const sql = columnSql(column, partitions);
  const element = typeof column.type === "object" && column.type.kind === "list" ? column.type.element : column.type;
  const value = castSql("x", element, dtype, rules);
  const cast = value === "x" ? sql : `list_transform(${sql}, lambda x: ${value})`;
  return `CASE WHEN len(${sql}) = ${width} THEN ${cast} ELSE list_resize(CAST([] AS ${castTarget(dtype)}[]), ${width}) END`;
}
