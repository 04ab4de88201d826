import type { Expression, Expressions } from "../../binding/contract.js";
import { rowState } from "../../packing/select-rows.js";
import { quoteName } from "../../duckdb/sql.js";

/** Names of this kind are no column's: they hold what expressions gave. */
export function expressionAlias(name: string): string {
  return name === filterName ? filterName : `input.columns.${name}`;
}

const filterName = "input.where";

/** The result of an expression is the field of a struct, so that NULL and a failure differ. */
export const expressionValue = "v";

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
export function withExpressions(table: string, { list }: Expressions): string {
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

/** Whether the filter keeps a row: false if it fails on it. */
export const isKeptSql = `${keeps} IS TRUE`;

function layer(table: string, columns: readonly (readonly [Expression, string])[]): string {
  const added = columns.map(([{ name }, sql]) => `${sql} AS ${quoteName(expressionAlias(name))}`);
  // Before the shard's: of two columns of one name, DuckDB takes the first.
  return `(SELECT ${[...added, "*"].join(", ")} FROM ${table} AS ${tableAlias})`;
}

/** What becomes of each row: see `rowState`. */
export function rowStateSql({ list }: Expressions): string {
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
