import type { FixedColumn, NamedColumn } from "../../columnar/types.js";
import { type NumberColumn, profileNumbers } from "../profile/column.js";
import { blockValues } from "../profile/profile-loops.js";
import { numbersOfType } from "../profile/column-numbers.js";
import { createDifferentRows, type DifferentRow } from "./different-rows.js";
import { numberAt, type PredictionPair, textsAt } from "./prediction-pair.js";
import { isSampled, limitSample, type RankSample } from "./rank-sample.js";

/** How two columns of floating-point numbers differ, see `NumberAgreement`. */
export interface FloatAgreement {
  readonly differences: NumberColumn;
  readonly beyond: number;
  readonly sample: RankSample;
  readonly most: readonly DifferentRow[];
}

/** Compares two columns of floating-point numbers, block by block: a block stays in the cache of the processor. */
export function compareFloats({ rowNumbers, one, other, tolerance, options }: PredictionPair): FloatAgreement {
  const rows = rowNumbers.length;
  const [readOne, readOther] = [floatReader(one), floatReader(other)];
  const [blockOne, blockOther] = [new Float64Array(blockValues), new Float64Array(blockValues)];
  const { level, bins } = options;
  const most = createDifferentRows();
  const sample: { rows: number[]; one: number[]; other: number[] } = { rows: [], one: [], other: [] };
  let beyond = 0;
  let at = 0;
  /** Fills `target` with the differences of the next block's rows for which both numbers are finite. */
  const compareNext = (target: Float64Array): number => {
    const from = at;
    at = Math.min(rows, from + blockValues);
    readOne(from, at, blockOne);
    readOther(from, at, blockOther);
    let finite = 0;
    for (let index = 0; index < at - from; index += 1) {
      const [a, b] = [blockOne[index] as number, blockOther[index] as number];
      const row = numberAt(rowNumbers, from + index);
      const distance = distanceOf(a, b);
      if (Number.isFinite(a - b)) {
        target[finite] = distance;
        finite += 1;
        if (isSampled(row, level)) {
          sample.rows.push(row);
          sample.one.push(a);
          sample.other.push(b);
        }
      }
      beyond += distance > tolerance ? 1 : 0;
      if (most.takes(row, distance)) {
        most.add({ row, distance, ...textsAt({ one, other }, from + index) });
      }
    }
    return finite;
  };
  const differences = profileNumbers((target) => {
    for (;;) {
      const finite = at < rows ? compareNext(target) : 0;
      if (finite > 0 || at === rows) {
        return finite;
      }
    }
  }, bins);
  const numbers = {
    rows: Float64Array.from(sample.rows),
    one: Float64Array.from(sample.one),
    other: Float64Array.from(sample.other),
  };
  return { differences, beyond, sample: limitSample({ level, ...numbers }), most: most.rows };
}

/** The difference of two numbers; infinite if one of them is not finite and the other one differs. */
function distanceOf(one: number, other: number): number {
  const distance = Math.abs(one - other);
  return distance < Number.POSITIVE_INFINITY ? distance : Object.is(one, other) ? 0 : Number.POSITIVE_INFINITY;
}

/** Returns what copies the numbers of rows [from, to) of a column; NaN for NULL. */
function floatReader({ type, column }: NamedColumn): (from: number, to: number, target: Float64Array) => void {
  const read = numbersOfType(type);
  const { valid } = column;
  return (from, to, target) => {
    read?.(column as FixedColumn, from, to, target);
    if (valid !== undefined) {
      for (let row = from; row < to; row += 1) {
        target[row - from] = valid[row] === 0 ? Number.NaN : (target[row - from] as number);
      }
    }
  };
}
