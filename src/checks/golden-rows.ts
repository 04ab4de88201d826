import type { Column, ColumnType, NamedColumn } from "../columns/types.js";
import { isElementType } from "../columns/values.js";
import { assertNever } from "../base/errors.js";

interface Tolerance {
  readonly atol: number;
  readonly rtol: number;
}

export interface GoldenDifference {
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
 * Floats may differ by the tolerance; texts, booleans and integers may not. NaN equals NaN, and a float's NULL. Counts
 * all, returns the first. @param pairs columns of equal length whose types are comparable
 */
export function findDifferences(
  pairs: readonly { readonly expected: NamedColumn; readonly predicted: NamedColumn }[],
  { rowCount, tolerance }: { readonly rowCount: number; readonly tolerance: Tolerance },
): { readonly rows: number; readonly first: GoldenDifference | undefined } {
  let rows = 0;
  let first: GoldenDifference | undefined;
  for (let row = 0; row < rowCount; row += 1) {
    let different: GoldenDifference | undefined;
    for (const { expected, predicted } of pairs) {
      different ??= differenceAt(row, { expected, predicted }, tolerance);
    }
    rows += different === undefined ? 0 : 1;
    first ??= different;
  }
  return { rows, first };
}

/**
 * @param expected DuckDB's text, a list in brackets; null for NULL @param predicted "NaN", "Infinity" or "-Infinity"
 */
export function isExpectedNotFinite(expected: string | null, predicted: string | null): boolean {
  const name = { NaN: "nan", Infinity: "inf", "-Infinity": "-inf" }[predicted ?? ""];
  const values = expected === null ? ["nan"] : expected.toLowerCase().split(/[[\], ]+/);
  return name !== undefined && values.includes(name);
}

function differenceAt(
  row: number,
  { expected, predicted }: { readonly expected: NamedColumn; readonly predicted: NamedColumn },
  tolerance: Tolerance,
): GoldenDifference | undefined {
  const wanted = valueAt(expected.type, expected.column, row);
  const actual = valueAt(predicted.type, predicted.column, row);
  const { name: column, type } = predicted;
  if (!Array.isArray(wanted) || !Array.isArray(actual)) {
    const isSame = areSame(wanted as Scalar, actual as Scalar, isFloating(type) ? tolerance : undefined);
    return isSame ? undefined : { row, column, expected: showCell(wanted), found: showCell(actual) };
  }
  if (wanted.length !== actual.length) {
    return { row, column, expected: `${wanted.length} elements`, found: `${actual.length} elements` };
  }
  const element = typeof type === "object" && type.kind === "list" ? type.element : type;
  const within = isFloating(element) ? tolerance : undefined;
  const at = actual.findIndex((value: Scalar, index) => !areSame(wanted[index] as Scalar, value, within));
  return at === -1
    ? undefined
    : {
        row,
        column: `${column}[${at}]`,
        expected: showCell(wanted[at] as Scalar),
        found: showCell(actual[at] as Scalar),
      };
}

/** @param tolerance undefined: the values must be equal */
function areSame(expected: Scalar, actual: Scalar, tolerance: Tolerance | undefined): boolean {
  if (tolerance !== undefined) {
    const [wanted, is] = [numberOf(expected), numberOf(actual)];
    const limit = tolerance.atol + tolerance.rtol * Math.abs(wanted);
    return Object.is(wanted, is) || (Number.isFinite(wanted) && Math.abs(is - wanted) <= limit);
  }
  return areEqual(expected, actual);
}

/** NaN for NULL, because writers such as pandas store NaN as NULL. */
function numberOf(value: Scalar): number {
  return value === null ? Number.NaN : Number(value);
}

function isFloating(type: ColumnType): boolean {
  return type === "float32" || type === "float64";
}

export type Scalar = number | bigint | string | boolean | null;
/** A value of a column, or a list of them; null for NULL. */
type Value = Scalar | readonly Scalar[];

/** Integers of different types are equal if their numbers are. */
function areEqual(left: Scalar, right: Scalar): boolean {
  const [a, b] = [integerOf(left), integerOf(right)];
  return a === undefined || b === undefined ? left === right : BigInt(a) === BigInt(b);
}

function integerOf(value: Scalar): number | bigint | undefined {
  return typeof value === "bigint" || (typeof value === "number" && Number.isInteger(value)) ? value : undefined;
}

export function valueAt(type: ColumnType, column: Column, row: number): Value {
  if (column.valid !== undefined && column.valid[row] === 0) {
    return null;
  }
  switch (column.kind) {
    case "fixed":
      return type === "bool" ? column.data[row] === 1 : (column.data[row] ?? null);
    case "bytes":
      return new TextDecoder().decode(column.bytes.subarray(column.offsets[row], column.offsets[row + 1]));
    case "list": {
      const element = typeof type === "object" && type.kind === "list" ? type.element : type;
      const values: Scalar[] = [];
      for (let at = column.offsets[row] ?? 0; at < (column.offsets[row + 1] ?? 0); at += 1) {
        values.push(valueAt(element, column.child, at) as Scalar);
      }
      return values;
    }
    case "struct":
      return null; // nothing compares structs
    default:
      return assertNever(column);
  }
}

/** Shows a value: a number with the nine digits that a float32 has, a text in quotes. */
export function showCell(value: Value): string {
  return typeof value === "number"
    ? String(Number(value.toPrecision(9)))
    : typeof value === "string"
      ? JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}…` : value)
      : value === null
        ? "NULL"
        : String(value);
}
