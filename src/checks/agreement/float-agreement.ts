import type { FixedColumn, NamedColumn } from "../../columnar/types.js";
import { numbersOfType } from "../profiles/column-numbers.js";
import { blockValues, type NumberProfile } from "../profiles/number-profile.js";
import { profileNumbers } from "../profiles/profile-numbers.js";
import { type BlockComparer, type BlockDifferences, distanceOf } from "./block-comparer.js";
import { blockComparer } from "./block-differences.js";
import { createDifferentRows, type DifferentRow } from "./different-rows.js";
import { numberAt, type PredictionPair, textsAt } from "./prediction-pair.js";
import { limitSample, type RankSample } from "./rank-sample.js";

/** How two columns of floating-point numbers differ, see `NumberAgreement`. */
export interface FloatAgreement {
  readonly differences: NumberProfile;
  readonly beyond: number;
  readonly sample: RankSample;
  readonly most: readonly DifferentRow[];
}

/** Compares two columns of floating-point numbers, block by block: a block stays in the cache of the processor. */
export function compareFloats(pair: PredictionPair): FloatAgreement {
  const { rowNumbers, one, other, tolerance, options } = pair;
  const rows = rowNumbers.length;
  const [readOne, readOther] = [floatReader(one), floatReader(other)];
  const block = blockComparer();
  const found = createFound(pair);
  let at = 0;
  const compareNext = (): Float64Array => {
    const from = at;
    at = Math.min(rows, from + blockValues);
    readOne(from, at, block.one);
    readOther(from, at, block.other);
    const about = { rowNumbers, from, tolerance, least: found.least, level: options.level };
    const differences = block.compare(at - from, about);
    found.take(block, from, differences);
    return differences.finite;
  };
  const differences = profileNumbers((target) => {
    for (;;) {
      const finite = at < rows ? compareNext() : none;
      target.set(finite);
      if (finite.length > 0 || at === rows) {
        return finite.length;
      }
    }
  }, options.limits);
  return { differences, ...found.finish() };
}

const none = new Float64Array(0);

/** What is kept of rows one by one. */
interface Found {
  /** See `BlockRows`. */
  readonly least: number;
  /** Takes rows of a block whose first row has index `from`. */
  take(block: BlockComparer, from: number, differences: BlockDifferences): void;
  finish(): Omit<FloatAgreement, "differences">;
}

function createFound({ rowNumbers, one, other, options: { level } }: PredictionPair): Found {
  const most = createDifferentRows();
  const sample: { rows: number[]; one: number[]; other: number[] } = { rows: [], one: [], other: [] };
  let beyond = 0;
  return {
    get least() {
      return most.least;
    },
    take(block, from, differences) {
      beyond += differences.beyond;
      for (const index of differences.different) {
        const row = numberAt(rowNumbers, from + index);
        const distance = distanceOf(block.one[index] as number, block.other[index] as number);
        if (most.takes(row, distance)) {
          most.add({ row, distance, ...textsAt({ one, other }, from + index) });
        }
      }
      for (const index of differences.sampled) {
        sample.rows.push(numberAt(rowNumbers, from + index));
        sample.one.push(block.one[index] as number);
        sample.other.push(block.other[index] as number);
      }
    },
    finish() {
      const numbers = {
        rows: Float64Array.from(sample.rows),
        one: Float64Array.from(sample.one),
        other: Float64Array.from(sample.other),
      };
      return { beyond, sample: limitSample({ level, ...numbers }), most: most.rows };
    },
  };
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
