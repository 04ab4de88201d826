import { type CastRules, type ColumnRef, type DecodedBinding, decodedInputs } from "../../binding/contract.js";
import { assertNever, JobError } from "../../util/errors.js";
import { quoteName, quotePath } from "../../duckdb/sql.js";
import { castSql, castTarget, columnSql } from "./cast-sql.js";
import { isKeptSql, rowStateSql, withExpressions } from "./expression-sql.js";
import type { Partitions, RowsRequest, SliceRequest } from "../port.js";

/** Name of the row-number column that DuckDB adds; a column of the file with this name is refused when planning. */
export const rowNumberColumn = "file_row_number";

/** The error for a shard with a column of that name. */
export function reservedName(path: string): JobError {
  return new JobError("SCHEMA_MISMATCH", `reading the schema of ${path}: a column is called ${rowNumberColumn}`, {
    hint: "the reader uses this name; rename the column",
  });
}

/** Returns `FROM …` for rows of a shard that fulfil a condition on their number, with the results of expressions. */
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
 * each input but masks, then the carried ones.
 */
export function sliceSql(slice: Omit<SliceRequest, "file">, table: string): string {
  return projectedSql(slice, { table, condition: inSlice(slice), numbers: [rowNumberColumn] });
}

/** The name of the column with the number of a row's shard. */
const shardNumberColumn = "input.shard";

/** The same of several whole shards, in order; before the row number comes that of the shard, from 0 on. */
export function coalescedSql(slices: readonly [SliceRequest, ...SliceRequest[]]): string {
  const shardNumber = quoteName(shardNumberColumn);
  const table = `(SELECT *, file_index AS ${shardNumber} FROM ${slicesTable(slices)})`;
  return projectedSql(slices[0], { table, condition: "true", numbers: [shardNumber, rowNumberColumn] });
}

/** The rows of several whole Parquet shards, in order. */
export function slicesTable(slices: readonly SliceRequest[]): string {
  const paths = slices.map(({ file }) => quotePath(file.path)).join(", ");
  return `read_parquet([${paths}], ${rowNumberColumn} = true, hive_partitioning = false)`;
}

/** One SELECT: how many rows of a slice its filter keeps. Rows on which the filter fails are not counted. */
export function keptCountSql(
  { projection: { expressions }, partitions, ...rows }: Omit<SliceRequest, "file">,
  table: string,
): string {
  const kept = expressions?.list.some(({ kind }) => kind === "where") === true ? isKeptSql : "true";
  return `SELECT count(*) FILTER (WHERE ${kept}) ${fromRows({ table, expressions, partitions }, inSlice(rows))}`;
}

function projectedSql(
  { projection, partitions }: Pick<SliceRequest, "projection" | "partitions">,
  { table, condition, numbers }: ShardTable & { condition: string; numbers: readonly string[] },
): string {
  const { expressions } = projection;
  const state = expressions === null ? [] : [rowStateSql(expressions)];
  const columns = [
    ...state,
    ...decodedInputs(projection).map((binding) => inputSql(binding, projection, partitions)),
    ...projection.passthrough.map(({ source }) => columnSql(source, partitions)),
  ].map((sql, index) => `${sql} AS c${index}`);
  const from = fromRows({ table, expressions, partitions }, condition);
  return `SELECT ${[...numbers, ...columns].join(", ")} ${from}`;
}

function inputSql(binding: DecodedBinding, rules: CastRules, partitions: Partitions): string {
  switch (binding.kind) {
    case "text":
      return columnSql(binding.column, partitions);
    case "list":
      return listSql(binding, rules, partitions);
    case "padded":
      return elementsSql(binding, rules, partitions);
    case "matrix":
      return matrixSql(binding, rules, partitions);
    default:
      return assertNever(binding);
  }
}

/** One list vector whose child data is the packed matrix; a lone column needs no list. */
function matrixSql(
  { columns, dtype }: Extract<DecodedBinding, { kind: "matrix" }>,
  rules: CastRules,
  partitions: Partitions,
): string {
  const values = columns.map((column) => castSql(columnSql(column, partitions), column.type, dtype, rules));
  return columns.length === 1 ? values.join("") : `list_value(${values.join(", ")})`;
}

/** A row of another length, or NULL, becomes NULLs: it does not fit. */
function listSql(binding: Extract<DecodedBinding, { kind: "list" }>, rules: CastRules, partitions: Partitions): string {
  const sql = columnSql(binding.column, partitions);
  const { dtype, width } = binding;
  const elements = elementsSql(binding, rules, partitions);
  return `CASE WHEN len(${sql}) = ${width} THEN ${elements} ELSE list_resize(CAST([] AS ${castTarget(dtype)}[]), ${width}) END`;
}

/** Lists, however long, whose elements are the tensor's; what does not fit is NULL. */
function elementsSql(
  { column, dtype }: Extract<DecodedBinding, { kind: "list" | "padded" }>,
  rules: CastRules,
  partitions: Partitions,
): string {
  const sql = columnSql(column, partitions);
  const element = typeof column.type === "object" && column.type.kind === "list" ? column.type.element : column.type;
  const value = castSql("x", element, dtype, rules);
  return value === "x" ? sql : `list_transform(${sql}, lambda x: ${value})`;
}

/** [rowStart, rowEnd) around some rows. */
export function boundsOf(rows: readonly number[]): { rowStart: number; rowEnd: number } {
  let [rowStart, last] = [Number.POSITIVE_INFINITY, -1];
  for (const row of rows) {
    rowStart = Math.min(rowStart, row);
    last = Math.max(last, row);
  }
  return { rowStart, rowEnd: last + 1 };
}
