import type { FixedColumn, NamedColumn } from "../../columnar/types.js";
import { numbersOfType } from "../profile/column-numbers.js";
import type { NumberColumn } from "../profile/column.js";
import { createDifferentRows, type DifferentRow } from "./different-rows.js";
import { numberAt, type PredictionPair, profileOf, textsAt } from "./prediction-pair.js";

export interface VectorAgreement {
  readonly kind: "vectors";
  /** Cosines of the angles between both vectors of a row. */
  readonly cosines: NumberColumn;
  /**
   * Rows whose vectors differ and have no cosine: one is NULL, zero or not finite, or they have different lengths. Rows
   * where both are NULL are in neither.
   */
  readonly without: number;
}

type Reader = (row: number) => Float64Array | undefined;

/** Compares lists of floating-point numbers as vectors. */
export function compareVectors({
  rowNumbers,
  one,
  other,
  options,
}: PredictionPair): VectorAgreement & { readonly most: readonly DifferentRow[] } {
  const [readOne, readOther] = [vectorReader(one), vectorReader(other)];
  const cosines = new Float64Array(rowNumbers.length);
  const most = createDifferentRows();
  let [count, without] = [0, 0];
  for (let row = 0; row < rowNumbers.length; row += 1) {
    const [a, b] = [readOne(row), readOther(row)];
    if (a === undefined && b === undefined) {
      continue;
    }
    const cosine = a === undefined || b === undefined || a.length !== b.length ? Number.NaN : cosineOf(a, b);
    if (Number.isNaN(cosine)) {
      without += 1;
    } else {
      cosines[count] = cosine;
      count += 1;
    }
    const distance = Number.isNaN(cosine) ? Number.POSITIVE_INFINITY : 1 - cosine;
    const number = numberAt(rowNumbers, row);
    if (most.takes(number, distance)) {
      most.add({ row: number, distance, ...textsAt({ one, other }, row) });
    }
  }
  const profile = profileOf(cosines.subarray(0, count), options.bins);
  return { kind: "vectors", cosines: profile, without, most: most.rows };
}

/** Reads the vector of a row into memory that the next call uses again; undefined for NULL. */
function vectorReader({ type, column }: NamedColumn): Reader {
  const read = typeof type === "object" && type.kind === "list" ? numbersOfType(type.element) : undefined;
  if (column.kind !== "list" || read === undefined) {
    throw new RangeError("a column of vectors is a list of numbers");
  }
  const { offsets, valid } = column;
  const child = column.child as FixedColumn;
  let values = new Float64Array(0);
  return (row) => {
    if (valid !== undefined && valid[row] === 0) {
      return undefined;
    }
    const [from, to] = [offsets[row] as number, offsets[row + 1] as number];
    if (values.length !== to - from) {
      values = new Float64Array(to - from);
    }
    read(child, from, to, values);
    for (let at = from; child.valid !== undefined && at < to; at += 1) {
      values[at - from] = child.valid[at] === 0 ? Number.NaN : (values[at - from] as number);
    }
    return values;
  };
}

/** Returns the cosine of two vectors of one length; 1 for equal ones, NaN where one is zero or not finite. */
function cosineOf(one: Float64Array, other: Float64Array): number {
  let [product, ones, others] = [0, 0, 0];
  let isEqual = true;
  for (let index = 0; index < one.length; index += 1) {
    const [a, b] = [one[index] as number, other[index] as number];
    isEqual &&= Object.is(a, b);
    product += a * b;
    ones += a * a;
    others += b * b;
  }
  return isEqual ? 1 : Math.max(-1, Math.min(1, product / Math.sqrt(ones * others)));
}
