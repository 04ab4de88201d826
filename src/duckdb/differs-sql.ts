import { floorToScale, scaleOf, withPoint } from "../columnar/decimals.js";
import type { ColumnType } from "../columnar/types.js";

type Both<T> = readonly [one: T, other: T];

/** The largest precision of a decimal in DuckDB. */
const mostDigits = 38;

/**
 * SQL that says whether two values differ by more than the tolerance, as `compareColumns` does. Values that DuckDB cannot
 * bring to one type differ: decimals with too many digits before and behind the point together, and timestamps outside
 * the range of those in nanoseconds.
 */
export function differsSql([a, b]: Both<string>, types: Both<ColumnType | undefined>, tolerance: number): string {
  const isDistinct = `${a} IS DISTINCT FROM ${b}`;
  // NULL, NaN and a difference that is too large for its type are beyond every tolerance.
  const and = (difference: string, most: string): string =>
    tolerance === 0 ? "" : ` AND coalesce(try(abs(${difference}) > ${most}), true)`;
  const scales = types.flatMap((type) => scaleOf(type) ?? []);
  if (scales.length === 2) {
    const scale = Math.max(...scales);
    return `(coalesce(try(${isDistinct}), true)${and(`${a} - ${b}`, decimalSql(tolerance, scale))})`;
  }
  if (types.every(isNumber)) {
    const [one, other] = [doubleSql(a, types[0]), doubleSql(b, types[1])];
    return `(${one} IS DISTINCT FROM ${other}${and(`${one} - ${other}`, String(tolerance))})`;
  }
  return types[0] === types[1] ? isDistinct : `coalesce(try(${isDistinct}), true)`;
}

/** A difference of this scale is above the tolerance if it is above the tolerance rounded down to this scale. */
function decimalSql(tolerance: number, scale: number): string {
  const most = 10n ** BigInt(mostDigits) - 1n;
  const units = floorToScale(tolerance, scale);
  return `${withPoint(String(units < most ? units : most), scale)}::DECIMAL(${mostDigits}, ${scale})`;
}

/** Rounds to a float64 once. DuckDB rounds a decimal of more digits than a float64 has twice, but its text once. */
function doubleSql(value: string, type: ColumnType | undefined): string {
  const isLong = typeof type === "object" && type.kind === "decimal" && type.precision > 15;
  return isLong ? `${value}::VARCHAR::DOUBLE` : `${value}::DOUBLE`;
}

function isNumber(type: ColumnType | undefined): boolean {
  return type === "float32" || type === "float64" || scaleOf(type) !== undefined;
}
