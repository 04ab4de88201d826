import { quoteName, quoteText } from "../../base/sql.js";
import {
  type Expression,
  type Expressions,
  type CastRules,
  type ColumnRef,
  type NumericTensorType,
  type DecodedBinding,
  decodedInputs,
} from "../../models/binding/contract.js";
import { rowState } from "../../flow/pack/select-rows.js";
import { sqlTypeOf, quotePath, quotePaths } from "../../duckdb/sql.js";
import { type ColumnType, showType } from "../../columns/types.js";
import type { Partitions, RowsRequest, SliceRequest } from "../format.js";
import { assertNever, JobError } from "../../base/errors.js";

/** Names of this kind are no column's: they hold what expressions gave. */
export function expressionAlias(name: string): string {
  return name === filterName ? filterName : `input.columns.${name}`;
}

const filterName = "input.where";

/** The result of an expression is the field of a struct, so that NULL and a failure differ. */
const expressionValue = "v";

/** The table that expressions see; no column is called so. */
const tableName = "input.path";
const tableAlias = quoteName(tableName);

/** Whether a column of a shard has the name of an expression's result or of the table. */
export function isReservedName(name: string): boolean {
  const folded = name.toLowerCase();
  return folded === filterName || folded === tableName || folded.startsWith(expressionAlias(""));
}

/** Whether a field of a struct may be used: `s.f`, `s['f']`, `struct_extract(s, 'f')`. */
const mayUseField = /[.[]|extract/i;

/** An expression for each row of `table`: a struct with its value, or NULL where it fails. */
function tryExpression({ text, uses }: Expression): string {
  // DuckDB takes the cast of a field out of TRY, unless the column is used as a whole. That costs time.
  const whole =
    uses.length > 0 && mayUseField.test(text) ? `, whole := row(${uses.map(quoteName).join(", ")}) IS NULL` : "";
  // The line break ends a comment at the end of the text.
  return `TRY(struct_pack(${expressionValue} := (${text}\n)${whole}))`;
}

/** `table` with what the filter gives, then with what the computed columns give for the rows that it keeps. */
function withExpressions(table: string, { list }: Expressions): string {
  const filter = list.find(({ kind }) => kind === "where");
  const columns = list.filter(({ kind }) => kind === "column");
  const filtered = filter === undefined ? table : layer(table, [[filter, tryExpression(filter)]]);
  return layer(
    filtered,
    columns.map((column) => {
      const value = tryExpression(column);
      return [column, filter === undefined ? value : `CASE WHEN ${keeps} THEN ${value} END`];
    }),
  );
}

const keeps = `(${quoteName(filterName)}).${expressionValue}`;

function layer(table: string, columns: readonly (readonly [Expression, string])[]): string {
  const added = columns.map(([{ name }, sql]) => `${sql} AS ${quoteName(expressionAlias(name))}`);
  // Before the shard's: of two columns of one name, DuckDB takes the first.
  return `(SELECT ${[...added, "*"].join(", ")} FROM ${table} AS ${tableAlias})`;
}

/** What becomes of each row: see `rowState`. */
function rowStateSql({ list }: Expressions): string {
  const cases = list.map(({ kind, name }, index) => {
    const failed = `WHEN ${quoteName(expressionAlias(name))} IS NULL THEN ${rowState.kept + 1 + index}`;
    // A filter comes first: the columns of a row that it leaves out are not computed.
    return kind === "where" ? `${failed} WHEN ${keeps} IS NOT TRUE THEN ${rowState.filtered}` : failed;
  });
  return `CAST(CASE ${cases.join(" ")} ELSE ${rowState.kept} END AS USMALLINT)`;
}

/** A query for one value: the expression over `table`. */
export function expressionQuery(table: string, text: string): string {
  return `SELECT ${text} FROM ${table} AS ${tableAlias}`;
}

/** Integers of up to this many bits are exact in a float type. */
const exactBits: Partial<Record<NumericTensorType, number>> = { float64: 53, float32: 24, float16: 11 };

/** The largest value that rounds to a finite float16. */
const float16Limit = 65520;

/** The integers that float16 holds: up to each limit, the multiples of a step. */
const float16Integers = [2048, 4096, 8192, 16384, 32768, 65504].map((limit, power) => [limit, 2 ** power] as const);

/** @public so that tests see it */
export function castTarget(dtype: NumericTensorType): string {
  return sqlTypeOf(dtype === "float16" ? "float64" : dtype); // which FLOAT would round twice
}

/** SQL for a value as text, that of bytes in hex; null: NULL. */
export function constantSql(text: string | null, type: ColumnType): string {
  const value = text === null ? "NULL" : quoteText(text);
  return type === "binary" ? `unhex(${value})` : `CAST(${value} AS ${sqlTypeOf(type)})`;
}

/** The SQL of a column, of a field inside it, or of a value from the folder names. */
export function columnSql({ path, type, partition, computed }: ColumnRef, partitions: Partitions): string {
  const [first = "", ...fields] = path;
  if (partition === true) {
    return constantSql(partitions.get(first) ?? null, type);
  }
  const steps = computed === true ? [expressionAlias(first), expressionValue, ...fields] : path;
  const [column = "", ...others] = steps.map(quoteName);
  // In parentheses: "a"."b" could also be column b of a table called a.
  return others.length === 0 ? column : [`(${column})`, ...others].join(".");
}

/**
 * SQL for a number of type `from` as an element of a tensor; NULL for a NULL and for a value that does not fit.
 * `exact`: an integer that would be rounded does not fit, nor does a fraction for an integer; doubles and decimals are
 * rounded to floats in either case.
 * @public so that tests see it
 */
export function castSql(sql: string, from: ColumnType, dtype: NumericTensorType, contract: CastRules): string {
  const value = fitSql(sql, from, dtype, contract.cast === "exact");
  const isFloat = exactBits[dtype] !== undefined;
  return contract.missing === "nan" && isFloat
    ? `CASE WHEN ${sql} IS NULL THEN CAST('NaN' AS ${castTarget(dtype)}) ELSE ${value} END`
    : value;
}

function fitSql(sql: string, from: ColumnType, dtype: NumericTensorType, exact: boolean): string {
  const target = castTarget(dtype);
  if (from === dtype) {
    return sql;
  }
  if (dtype === "bool") {
    const flag = `TRY_CAST(${sql} AS TINYINT)`;
    return `CASE WHEN ${unchanged(flag, from, sql)} AND ${flag} IN (0, 1) THEN ${flag} = 1 END`;
  }
  const cast = `TRY_CAST(${castable(sql, from, dtype)} AS ${target})`;
  if (from === "bool") {
    return cast;
  }
  const bits = exactBits[dtype];
  if (bits === undefined) {
    // Into an integer: a range check is all that an integer needs; a fraction would be rounded.
    return exact && integerBits(from) === undefined ? `CASE WHEN ${unchanged(cast, from, sql)} THEN ${cast} END` : cast;
  }
  const wide = (integerBits(from) ?? 0) > bits;
  const exactly = exact && wide ? `CASE WHEN TRY_CAST(${cast} AS HUGEINT) = ${sql} THEN ${cast} END` : cast;
  if (dtype !== "float16") {
    return exactly;
  }
  const fits =
    exact && wide
      ? float16Integers.map(([limit, step]) => `abs(${cast}) <= ${limit} AND ${cast} % ${step} = 0`).join(" OR ")
      : `abs(${cast}) < ${float16Limit} OR isnan(${cast}) OR isinf(${cast})`;
  return `CASE WHEN ${fits} THEN ${exactly} END`;
}

/** What DuckDB casts right: it checks a float's range before it rounds, and rounds decimals twice on the way to FLOAT. */
function castable(sql: string, from: ColumnType, dtype: NumericTensorType): string {
  if (exactBits[dtype] === undefined) {
    return from === "float32" || from === "float64" ? `round(${sql})` : sql;
  }
  return typeof from === "object" && castTarget(dtype) === "FLOAT" ? `CAST(${sql} AS DOUBLE)` : sql;
}

/** Whether a value is still the same; cast back first, since the rounded value may not fit into the decimal. */
function unchanged(cast: string, from: ColumnType, sql: string): string {
  return `TRY_CAST(${cast} AS ${sqlTypeOf(from)}) = ${sql}`;
}

/** Bits that an integer type's values take without their sign; undefined for other types. */
function integerBits(type: ColumnType): number | undefined {
  const [, unsigned, bits] = /^(u?)int(\d+)$/.exec(showType(type)) ?? [];
  return bits === undefined ? undefined : Number(bits) - (unsigned === "u" ? 0 : 1);
}

/** Name of the row-number column that DuckDB adds; a column of the file with this name is refused when planning. */
export const fileRowNumber = "file_row_number";

/** DuckDB compares names without regard to case, and needs one for itself. @throws JobError SCHEMA_MISMATCH */
export function refuseNames(path: string, names: Iterable<string>, innerDouble?: string): void {
  const folded = new Set<string>();
  let double = innerDouble;
  for (const name of names) {
    double ??= folded.has(name.toLowerCase()) ? name : undefined;
    folded.add(name.toLowerCase());
  }
  if (double !== undefined) {
    throw new JobError("SCHEMA_MISMATCH", `reading the schema of ${path}: two columns are called \`${double}\``, {
      hint: "names must differ in more than upper and lower case; rename one of them",
    });
  }
  if (folded.has(fileRowNumber)) {
    throw new JobError("SCHEMA_MISMATCH", `reading the schema of ${path}: a column is called ${fileRowNumber}`, {
      hint: "the reader uses this name; rename the column",
    });
  }
}

/** Returns `FROM …` for rows of a shard that fulfil a condition on their number, with the results of expressions. */
export function fromRows(
  { table, expressions, partitions }: Pick<RowsRequest, "expressions" | "partitions"> & ShardTable,
  condition: string,
): string {
  const rows = rowsTable({ table, folders: expressions?.folders ?? [], partitions }, condition);
  return `FROM ${expressions === null ? rows : withExpressions(rows, expressions)}`;
}

interface ShardTable {
  readonly table: string;
}

/** The rows of a Parquet file. @param select what stands for its columns; undefined: they do */
export function parquetTable(path: string, select: string | undefined): string {
  const rows = `read_parquet(${quotePath(path)}, ${fileRowNumber} = true, hive_partitioning = false)`;
  return select === undefined ? rows : `(SELECT ${select} FROM ${rows})`;
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
  return `${fileRowNumber} IN (${rows.join(", ")}) AND ${inSlice(boundsOf(rows))}`;
}

/** Rows [rowStart, rowEnd). */
export function inSlice({ rowStart, rowEnd }: Pick<SliceRequest, "rowStart" | "rowEnd">): string {
  return `${fileRowNumber} >= ${rowStart} AND ${fileRowNumber} < ${rowEnd}`;
}

/**
 * One SELECT: the row number in the file, what becomes of the row where there are expressions, then a column for
 * each input but masks, then the carried ones.
 */
export function sliceSql(slice: Omit<SliceRequest, "file">, table: string): string {
  return projectedSql(slice, { table, condition: inSlice(slice), numbers: [fileRowNumber] });
}

const shardNumberColumn = "input.shard";

/** The same of several whole shards, in order; before the row number comes that of the shard, from 0 on. */
export function coalescedSql(slices: readonly [SliceRequest, ...SliceRequest[]], select: string | undefined): string {
  const numbers = [quoteName(shardNumberColumn), fileRowNumber];
  return projectedSql(slices[0], { table: slicesTable(slices, select), condition: "true", numbers });
}

/** The rows of several whole Parquet shards, in order. @param select what stands for their columns; undefined: they do */
function slicesTable(slices: readonly SliceRequest[], select = "*"): string {
  const files = quotePaths(slices.map(({ file }) => file.path));
  const rows = `read_parquet(${files}, ${fileRowNumber} = true, hive_partitioning = false)`;
  return `(SELECT ${select}, file_index AS ${quoteName(shardNumberColumn)} FROM ${rows})`;
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
