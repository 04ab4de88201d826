import type { CastRules, ColumnRef, NumericTensorType } from "../../binding/contract.js";
import { type ColumnType, showType } from "../../columnar/types.js";
import { quoteName, quoteText, sqlTypeOf } from "../../duckdb/sql.js";
import { expressionAlias, expressionValue } from "./expression-sql.js";
import type { Partitions } from "../port.js";

/** Integers of up to this many bits are exact in a float type. */
const exactBits: Partial<Record<NumericTensorType, number>> = { float64: 53, float32: 24, float16: 11 };

/** The largest value that rounds to a finite float16. */
const float16Limit = 65520;

/** The integers that float16 holds: up to each limit, the multiples of a step. */
const float16Integers = [2048, 4096, 8192, 16384, 32768, 65504].map((limit, power) => [limit, 2 ** power] as const);

export function castTarget(dtype: NumericTensorType): string {
  return sqlTypeOf(dtype === "float16" ? "float64" : dtype); // which FLOAT would round twice
}

/** The SQL of a column, of a field inside it, or of a value from the folder names. */
export function columnSql({ path, type, partition, computed }: ColumnRef, partitions: Partitions): string {
  const [first = "", ...fields] = path;
  if (partition === true) {
    const value = partitions.get(first) ?? null;
    return `CAST(${value === null ? "NULL" : quoteText(value)} AS ${sqlTypeOf(type)})`;
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
