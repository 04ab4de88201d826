import type { ColumnRef, InputBinding } from "../batch/contract.js";
import { assertNever } from "../errors.js";
import { quoteName, quotePath } from "../duckdb/instance.js";
import { type CastRules, castSql, castTarget, columnSql } from "./cast-sql.js";
import { rowStateSql, withExpressions } from "./expression-sql.js";
import { boundsOf } from "./parquet-windows.js";
import type { Partitions, RowsRequest, SliceRequest } from "./port.js";

/** Name of the row-number column that DuckDB adds; a column of the file with this name is refused when planning. */
export const rowNumberColumn = "file_row_number";

/** `FROM …`: some rows of a shard, told by a condition on their number, with what expressions make of them. */
export function fromRows(
  { table, expressions, partitions }: Pick<RowsRequest, "expressions" | "partitions"> & ShardTable,
  condition: string,
): string {
  const rows = rowsTable({ table, folders: expressions?.folders ?? [], partitions }, condition);
  return `FROM ${expressions === null ? rows : withExpressions(rows, expressions)}`;
}

/** A shard as SQL sees it: a table with a column for the row's number. */
export interface ShardTable {
  readonly table: string;
}

export function parquetTable(path: string): string {
  return `read_parquet(${quotePath(path)}, ${rowNumberColumn} = true, hive_partitioning = false)`;
}

/** Some rows of a shard, with columns from its folders. */
export function rowsTable(
  { table, folders, partitions }: ShardTable & { folders: readonly ColumnRef[]; partitions: Partitions },
  condition: string,
): string {
  const added = folders.map((column) => `${columnSql(column, partitions)} AS ${quoteName(column.name)}`);
  return `(SELECT ${["*", ...added].join(", ")} FROM ${table} WHERE ${condition})`;
}

/** Some rows, by number; row groups before and after them are not read. */
export function someRows(rows: readonly number[]): string {
  return `${rowNumberColumn} IN (${rows.join(", ")}) AND ${inSlice(boundsOf(rows))}`;
}

/** Rows [rowStart, rowEnd). */
export function inSlice({ rowStart, rowEnd }: Pick<SliceRequest, "rowStart" | "rowEnd">): string {
  return `${rowNumberColumn} >= ${rowStart} AND ${rowNumberColumn} < ${rowEnd}`;
}

/**
 * One SELECT: the row number in the file, what becomes of the row where there are expressions, then a column for
 * each input, then the carried ones.
 */
export function sliceSql(
  { rowStart, rowEnd, projection, partitions }: Omit<SliceRequest, "file">,
  table: string,
): string {
  const { expressions } = projection;
  const state = expressions === null ? [] : [rowStateSql(expressions)];
  const columns = [
    ...state,
    ...projection.inputs.map((binding) => inputSql(binding, projection, partitions)),
    ...projection.passthrough.map(({ source }) => columnSql(source, partitions)),
  ].map((sql, index) => `${sql} AS c${index}`);
  const from = fromRows({ table, expressions, partitions }, inSlice({ rowStart, rowEnd }));
  return `SELECT ${[rowNumberColumn, ...columns].join(", ")} ${from}`;
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
