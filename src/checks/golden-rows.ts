import type { ColumnType, NamedColumn } from "../columnar/types.js";
import { isElementType } from "../columnar/values.js";
import { areEqual, type Scalar, shown, valueAt } from "./row-values.js";

/** How far a number may be from the expected one: `atol + rtol * |expected|`. */
export interface Tolerance {
  readonly atol: number;
  readonly rtol: number;
}

/** A prediction that is not the expected one. */
export interface Difference {
  /** Index of the row. */
  readonly row: number;
  /** The output column; for an element of a list, `name[index]`. */
  readonly column: string;
  readonly expected: string;
  readonly found: string;
}

type Kind = "number" | "text" | "bool" | { readonly listOf: "number" | "text" | "bool" };

/** Whether expected values of one type can be compared with predictions of another. */
export function isComparable(expected: ColumnType, predicted: ColumnType): boolean {
  const kind = kindOf(expected);
  return kind !== undefined && JSON.stringify(kind) === JSON.stringify(kindOf(predicted));
}

function kindOf(type: ColumnType): Kind | undefined {
  if (typeof type === "string") {
    return isElementType(type) ? "number" : type === "utf8" ? "text" : type === "bool" ? "bool" : undefined;
  }
  const element = type.kind === "list" ? kindOf(type.element) : undefined;
  return typeof element === "string" ? { listOf: element } : undefined;
}

/**
 * Finds the first row in which a prediction is not the expected value, and counts such rows. Floating-point predictions
 * may differ by the tolerance; texts, booleans and integers may not. NaN equals NaN, and a NULL that represents a
 * floating-point number.
 * @param pairs columns of equal length whose types are comparable
 */
export function findDifferences(
  pairs: readonly { readonly expected: NamedColumn; readonly predicted: NamedColumn }[],
  { rowCount, tolerance }: { readonly rowCount: number; readonly tolerance: Tolerance },
): { readonly rows: number; readonly first: Difference | undefined } {
  let rows = 0;
  let first: Difference | undefined;
  for (let row = 0; row < rowCount; row += 1) {
    let found: Difference | undefined;
    for (const { expected, predicted } of pairs) {
      found ??= differenceAt(row, { expected, predicted }, tolerance);
    }
    rows += found === undefined ? 0 : 1;
    first ??= found;
  }
  return { rows, first };
}

/**
 * Whether a prediction that is not finite is the expected value.
 * @param expected the value as DuckDB's text, a list in brackets; null for NULL
 * @param found "NaN", "Infinity" or "-Infinity"
 */
export function isExpectedNotFinite(expected: string | null, found: string | null): boolean {
  const name = { NaN: "nan", Infinity: "inf", "-Infinity": "-inf" }[found ?? ""];
  const values = expected === null ? ["nan"] : expected.toLowerCase().split(/[[\], ]+/);
  return name !== undefined && values.includes(name);
}

function differenceAt(
  row: number,
  { expected, predicted }: { readonly expected: NamedColumn; readonly predicted: NamedColumn },
  tolerance: Tolerance,
): Difference | undefined {
  const wanted = valueAt(expected.type, expected.column, row);
  const found = valueAt(predicted.type, predicted.column, row);
  const { name: column, type } = predicted;
  if (!Array.isArray(wanted) || !Array.isArray(found)) {
    const isSame = areSame(wanted as Scalar, found as Scalar, isFloating(type) ? tolerance : undefined);
    return isSame ? undefined : { row, column, expected: shown(wanted), found: shown(found) };
  }
  if (wanted.length !== found.length) {
    return { row, column, expected: `${wanted.length} elements`, found: `${found.length} elements` };
  }
  const element = typeof type === "object" && type.kind === "list" ? type.element : type;
  const within = isFloating(element) ? tolerance : undefined;
  const at = found.findIndex((one: Scalar, index) => !areSame(wanted[index] as Scalar, one, within));
  return at === -1
    ? undefined
    : { row, column: `${column}[${at}]`, expected: shown(wanted[at] as Scalar), found: shown(found[at] as Scalar) };
}

/** @param tolerance undefined: the values must be equal */
function areSame(expected: Scalar, found: Scalar, tolerance: Tolerance | undefined): boolean {
  if (tolerance !== undefined) {
    const [wanted, is] = [numberOf(expected), numberOf(found)];
    const limit = tolerance.atol + tolerance.rtol * Math.abs(wanted);
    return Object.is(wanted, is) || (Number.isFinite(wanted) && Math.abs(is - wanted) <= limit);
  }
  return areEqual(expected, found);
}

/** Converts a value to a number. NULL becomes NaN, because writers such as pandas store NaN as NULL. */
function numberOf(value: Scalar): number {
  return value === null ? Number.NaN : Number(value);
}

function isFloating(type: ColumnType): boolean {
  return type === "float32" || type === "float64";
}
