import { floorToScale, scaleOf, withPoint } from "../../columnar/decimals.js";
import type { FixedColumn, NamedColumn } from "../../columnar/types.js";
import { numbersOfType } from "../profile/column-numbers.js";
import { createDifferentRows } from "./different-rows.js";
import { exactReader } from "./exact-values.js";
import type { FloatAgreement } from "./float-agreement.js";
import { numberAt, type PredictionPair, profileOf, textsAt } from "./prediction-pair.js";
import { isSampled, limitSample, type RankSample } from "./rank-sample.js";

/**
 * Compares two columns of decimals. Differences are exact, and so is whether they are within the tolerance; their
 * statistics are in float64, to which each difference is rounded once. A NULL differs from every number.
 */
export function compareDecimals(pair: PredictionPair): FloatAgreement {
  const { rowNumbers, one, other, options } = pair;
  const distanceOf = distances(pair);
  const finite = new Float64Array(rowNumbers.length);
  const most = createDifferentRows();
  let [count, beyond] = [0, 0];
  for (let row = 0; row < rowNumbers.length; row += 1) {
    const found = distanceOf(row);
    if (found === undefined) {
      continue;
    }
    const { distance, isBeyond } = found;
    beyond += isBeyond ? 1 : 0;
    if (distance < Number.POSITIVE_INFINITY) {
      finite[count] = distance;
      count += 1;
    }
    const number = numberAt(rowNumbers, row);
    if (most.takes(number, distance)) {
      most.add({ row: number, distance, ...textsAt({ one, other }, row) });
    }
  }
  const differences = profileOf(finite.subarray(0, count), options.bins);
  return { differences, beyond, sample: sampleOf(pair), most: most.rows };
}

interface Distance {
  readonly distance: number;
  readonly isBeyond: boolean;
}

/** Returns what measures the distance of both values of a row; undefined: both are NULL. */
function distances({ one, other, tolerance }: PredictionPair): (row: number) => Distance | undefined {
  const [scaleA, scaleB] = [scaleOf(one.type) ?? 0, scaleOf(other.type) ?? 0];
  const scale = Math.max(scaleA, scaleB);
  const [readOne, readOther] = [
    exactReader(one, 10n ** BigInt(scale - scaleA)),
    exactReader(other, 10n ** BigInt(scale - scaleB)),
  ];
  const least = floorToScale(tolerance, scale);
  return (row) => {
    const [a, b] = [readOne(row), readOther(row)];
    if (a === undefined || b === undefined) {
      return a === b ? undefined : { distance: Number.POSITIVE_INFINITY, isBeyond: true };
    }
    const difference = a < b ? b - a : a - b;
    const distance = difference === 0n ? 0 : Number(withPoint(String(difference), scale));
    return { distance, isBeyond: difference > least };
  };
}

/** The rows of the sample for which both are numbers, rounded to float64. */
function sampleOf({ rowNumbers, one, other, options: { level } }: PredictionPair): RankSample {
  const [a, b] = [floatsOf(one, rowNumbers.length), floatsOf(other, rowNumbers.length)];
  const isValid = (row: number): boolean => one.column.valid?.[row] !== 0 && other.column.valid?.[row] !== 0;
  const sampled: number[] = [];
  for (let row = 0; row < rowNumbers.length; row += 1) {
    if (isSampled(numberAt(rowNumbers, row), level) && isValid(row)) {
      sampled.push(row);
    }
  }
  return limitSample({
    level,
    rows: Float64Array.from(sampled, (row) => numberAt(rowNumbers, row)),
    one: Float64Array.from(sampled, (row) => a[row] as number),
    other: Float64Array.from(sampled, (row) => b[row] as number),
  });
}

function floatsOf({ type, column }: NamedColumn, rows: number): Float64Array {
  const floats = new Float64Array(rows);
  numbersOfType(type)?.(column as FixedColumn, 0, rows, floats);
  return floats;
}
