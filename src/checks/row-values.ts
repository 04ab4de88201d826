import type { BytesColumn, Column, ColumnType } from "../columnar/types.js";
import { assertNever } from "../util/errors.js";

export type Scalar = number | bigint | string | boolean | null;
/** A value of a column, or a list of them; null for NULL. */
export type Value = Scalar | readonly Scalar[];

/** Whether two values are equal; integers of different types are equal if their numbers are. */
export function areEqual(one: Scalar, other: Scalar): boolean {
  const [a, b] = [integerOf(one), integerOf(other)];
  return a === undefined || b === undefined ? one === other : BigInt(a) === BigInt(b);
}

function integerOf(value: Scalar): number | bigint | undefined {
  return typeof value === "bigint" || (typeof value === "number" && Number.isInteger(value)) ? value : undefined;
}

/** Reads the value of a row. A struct is read as NULL. */
export function valueAt(type: ColumnType, column: Column, row: number): Value {
  if (column.valid !== undefined && column.valid[row] === 0) {
    return null;
  }
  switch (column.kind) {
    case "fixed":
      return type === "bool" ? column.data[row] === 1 : (column.data[row] ?? null);
    case "bytes":
      return textAt(column, row);
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

function textAt({ bytes, offsets }: BytesColumn, row: number): string {
  return new TextDecoder().decode(bytes.subarray(offsets[row], offsets[row + 1]));
}

/** Shows a value: a number with the nine digits that a float32 has, a text in quotes. */
export function shown(value: Value): string {
  return typeof value === "number"
    ? String(Number(value.toPrecision(9)))
    : typeof value === "string"
      ? JSON.stringify(value.length > 60 ? `${value.slice(0, 57)}…` : value)
      : value === null
        ? "NULL"
        : String(value);
}
