import type { BytesColumn, NamedColumn } from "../../columnar/types.js";
import { areEqual, type Scalar, type Value, valueAt } from "../row-values.js";

/** Returns a function that says whether two columns have the same label in a row. It decodes no texts if it can. */
export function sameLabels(one: NamedColumn, other: NamedColumn): (row: number) => boolean {
  const [a, b] = [one.column, other.column];
  if (a.valid === undefined && b.valid === undefined) {
    if (a.kind === "bytes" && b.kind === "bytes") {
      return (row) => areSameBytes(a, b, row);
    }
    if (a.kind === "fixed" && b.kind === "fixed") {
      const [left, right] = [a.data, b.data];
      if (left instanceof BigInt64Array && right instanceof BigInt64Array) {
        // A BigInt for each value would take ten times as long as its two words.
        const [these, those] = [wordsOf(left), wordsOf(right)];
        return (row) => these[2 * row] === those[2 * row] && these[2 * row + 1] === those[2 * row + 1];
      }
      if (one.type === other.type) {
        return (row) => left[row] === right[row];
      }
    }
  }
  return (row) => areSame(valueAt(one.type, a, row), valueAt(other.type, b, row));
}

function wordsOf({ buffer, byteOffset, length }: BigInt64Array): Int32Array {
  return new Int32Array(buffer, byteOffset, length * 2);
}

function areSameBytes(one: BytesColumn, other: BytesColumn, row: number): boolean {
  const [from, to] = [one.offsets[row] as number, one.offsets[row + 1] as number];
  const start = other.offsets[row] as number;
  if ((other.offsets[row + 1] as number) - start !== to - from) {
    return false;
  }
  for (let at = from; at < to; at += 1) {
    if (one.bytes[at] !== other.bytes[start + at - from]) {
      return false;
    }
  }
  return true;
}

function areSame(one: Value, other: Value): boolean {
  if (!Array.isArray(one) || !Array.isArray(other)) {
    return areEqual(one as Scalar, other as Scalar);
  }
  return one.length === other.length && one.every((value: Scalar, index) => areEqual(value, other[index] as Scalar));
}
