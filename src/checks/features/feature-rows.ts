import { nullColumn } from "../../columnar/column-rows.js";
import type { Column } from "../../columnar/types.js";
import type { AllRows } from "../profiles/all-rows.js";
import { type ColumnProfile, mergeProfiles, profileColumn } from "../profiles/column-profile.js";
import { createFewAdder, exactSumOf } from "../profiles/few-sums.js";
import { blockValues, type NextNumbers } from "../profiles/number-profile.js";
import { profileNumbers } from "../profiles/profile-numbers.js";
import type { VectorLimits } from "../profiles/vector-profile.js";
import { counted } from "./feature-loops.js";
import type { FeaturePart } from "./feature-part.js";
import { featureLimits } from "./feature-limits.js";
import { type FeatureColumn, type FeaturePlan, measuredColumn } from "./feature-plan.js";
import { addCounts, createCounts, countOf } from "./measure-matrix.js";

/** Collects the features of a span, or of a piece of one, while its rows come. */
export interface FeatureRows {
  add(part: FeaturePart): void;
  /** The bytes of the sampled values. */
  readonly bytes: number;
  /** The profiles of the sampled rows, each with counts of all rows; in the order of the plan. */
  finish(): ReadonlyMap<string, ColumnProfile>;
}

/** @param outputs columns whose profiles are stored with these */
export function createFeatureRows(plan: FeaturePlan, outputs: number): FeatureRows {
  const features = plan.columns.map((column, index) => {
    const values =
      column.kind === "number" ? collectNumbers(column, placeAmong(plan, index)) : collectOthers(column, index);
    return { column, values };
  });
  let bytes = 0;
  return {
    add(part) {
      bytes += part.bytes;
      for (const { values } of features) {
        values.add(part);
      }
    },
    get bytes() {
      return bytes;
    },
    finish() {
      const limits = featureLimits(plan.columns.map(measuredColumn), outputs);
      return new Map(
        features.map(({ column, values }, index) => {
          return [column.name, profileOf(column, values, limits[index] as VectorLimits)];
        }),
      );
    },
  };
}

/** The place of a column of the plan among those of its input. */
function placeAmong({ columns }: FeaturePlan, index: number): number {
  const input = columns[index]?.input;
  return columns.slice(0, index).filter((column) => column.input === input).length;
}

/** What is kept of the values of a column. */
interface FeatureValues {
  add(part: FeaturePart): void;
  all(): AllRows;
  /** The profile of the sampled rows. */
  sampled(limits: VectorLimits): ColumnProfile;
}

function profileOf(column: FeatureColumn, values: FeatureValues, limits: VectorLimits): ColumnProfile {
  const all = values.all();
  return column.isKey === true
    ? { type: measuredColumn(column).type, rows: all.rows, nulls: all.nulls, kind: "rows" }
    : { ...values.sampled(limits), all };
}

/** Collects a column of texts or of lists. */
function collectOthers({ type }: FeatureColumn, index: number): FeatureValues {
  const columns: Column[] = [nullColumn(type, 0)];
  let [rows, nulls] = [0, 0];
  return {
    add(part) {
      rows += part.to - part.from;
      nulls += part.nulls.get(index) ?? 0;
      const column = part.others.get(index);
      if (column !== undefined) {
        columns.push(column);
      }
    },
    all: () => ({ rows, nulls }),
    sampled: (limits) =>
      columns
        .map((column) => profileColumn({ type }, column, limits))
        .reduce((one, other) => mergeProfiles(one, other, limits)),
  };
}

/** @param place the column's place among those of its input */
function collectNumbers(column: FeatureColumn, place: number): FeatureValues {
  const { counts } = createCounts(1);
  const adder = createFewAdder();
  const samples: Float64Array[] = [];
  let [rows, others, sampledRows, sampledNulls] = [0, 0n, 0, 0];
  return {
    add(part) {
      rows += part.to - part.from;
      const matrix = part.counts.get(column.input);
      const sample = part.numbers.get(column.input);
      if (matrix !== undefined) {
        addCounts(counts, 0, matrix.counts, place * counted);
        adder.add(matrix.sums, place, matrix.counts.length / counted);
        for (const { column: of, values, sum } of matrix.others) {
          others += of === place ? sum + exactSumOf(values) : 0n;
        }
      }
      if (sample !== undefined) {
        samples.push(sample.values.subarray(place * sample.rows, (place + 1) * sample.rows));
        sampledRows += sample.rows;
        sampledNulls += sample.nulls[place] as number;
      }
    },
    all: () => allNumbers(rows, counts, others + adder.finish()),
    sampled(limits) {
      const profile = profileNumbers(chained(samples), limits);
      const numbers = { ...profile, nan: profile.nan - sampledNulls };
      return { type: measuredColumn(column).type, rows: sampledRows, nulls: sampledNulls, kind: "numbers", numbers };
    },
  };
}

/** @param sum in units of 2^-1074 */
function allNumbers(rows: number, counts: Float64Array, sum: bigint): AllRows {
  const count = (of: keyof typeof countOf): number => counts[countOf[of]] as number;
  return {
    rows,
    nulls: count("nulls"),
    numbers: {
      nan: count("nan"),
      positiveInfinite: count("positiveInfinite"),
      negativeInfinite: count("negativeInfinite"),
      finite: count("finite"),
      min: count("min"),
      max: count("max"),
      sum,
    },
  };
}

/** The values of all columns, one after the other. */
function chained(columns: readonly Float64Array[]): NextNumbers {
  let [next, from] = [0, 0];
  return (target) => {
    let filled = 0;
    while (filled < blockValues && next < columns.length) {
      const column = columns[next] as Float64Array;
      const some = column.subarray(from, from + blockValues - filled);
      target.set(some, filled);
      filled += some.length;
      from += some.length;
      [next, from] = from === column.length ? [next + 1, 0] : [next, from];
    }
    return filled;
  };
}
