import { nullColumn } from "../../columnar/column-rows.js";
import type { AllRows } from "../profiles/all-rows.js";
import { type ColumnProfile, mergeProfiles, profileColumn } from "../profiles/column-profile.js";
import { createFewAdder, exactSumOf } from "../profiles/few-sums.js";
import { blockValues, type NextNumbers } from "../profiles/number-profile.js";
import { profileNumbers } from "../profiles/profile-numbers.js";
import type { VectorLimits } from "../profiles/vector-profile.js";
import type { FeaturePart, SampledNumbers } from "./feature-part.js";
import { featureLimits } from "./feature-limits.js";
import { type FeatureColumn, type FeaturePlan, measuredColumn } from "./feature-plan.js";
import { counted, countOf, type MatrixCounts } from "./measure-matrix.js";

/** Collects the features of a span, or of a piece of one, while its rows come. */
export interface FeatureRows {
  add(part: FeaturePart): void;
  /** The bytes of the sampled values. */
  readonly bytes: number;
  /** The profiles of the sampled rows, each with counts of all rows; in the order of the plan. */
  finish(): ReadonlyMap<string, ColumnProfile>;
}

/** @param outputs columns whose profiles are stored beside these */
export function createFeatureRows(plan: FeaturePlan, outputs: number): FeatureRows {
  const parts: FeaturePart[] = [];
  let bytes = 0;
  return {
    add(part) {
      parts.push(part);
      bytes += part.bytes;
    },
    get bytes() {
      return bytes;
    },
    finish() {
      const limits = featureLimits(plan.columns.map(measuredColumn), outputs);
      return new Map(
        plan.columns.map((column, index) => {
          return [column.name, profileOf({ plan, parts, index }, limits[index] as VectorLimits)];
        }),
      );
    },
  };
}

interface OneColumn {
  readonly plan: FeaturePlan;
  readonly parts: readonly FeaturePart[];
  readonly index: number;
}

function profileOf(one: OneColumn, limits: VectorLimits): ColumnProfile {
  const column = one.plan.columns[one.index] as FeatureColumn;
  const all = allRowsOf(one);
  if (column.isKey === true) {
    return { type: measuredColumn(column).type, rows: all.rows, nulls: all.nulls, kind: "rows" };
  }
  const make = column.kind === "number" ? profileOfNumbers : profileOfOthers;
  return { ...make(one, limits), all };
}

function profileOfOthers({ plan, parts, index }: OneColumn, limits: VectorLimits): ColumnProfile {
  const { type } = plan.columns[index] as FeatureColumn;
  const columns = parts.flatMap(({ others }) => others.get(index) ?? []);
  return [nullColumn(type, 0), ...columns]
    .map((column) => profileColumn({ type }, column, limits))
    .reduce((one, other) => mergeProfiles(one, other, limits));
}

function profileOfNumbers({ plan, parts, index }: OneColumn, limits: VectorLimits): ColumnProfile {
  const column = plan.columns[index] as FeatureColumn;
  const place = placeAmong(plan, index);
  const samples = parts.flatMap(({ numbers }) => numbers.get(column.input) ?? []);
  const profile = profileNumbers(chained(samples, place), limits);
  const rows = samples.reduce((sum, sample) => sum + sample.rows, 0);
  const nulls = samples.reduce((sum, sample) => sum + (sample.nulls[place] as number), 0);
  const numbers = { ...profile, nan: profile.nan - nulls };
  return { type: measuredColumn(column).type, rows, nulls, kind: "numbers", numbers };
}

/** The sampled values of a column, NULLs as NaN. */
function chained(samples: readonly SampledNumbers[], place: number): NextNumbers {
  const columns = samples.map(({ values, rows }) => values.subarray(place * rows, (place + 1) * rows));
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

function allRowsOf({ plan, parts, index }: OneColumn): AllRows {
  const { input, kind } = plan.columns[index] as FeatureColumn;
  const rows = parts.reduce((sum, { from, to }) => sum + to - from, 0);
  if (kind !== "number") {
    return { rows, nulls: parts.reduce((sum, { nulls }) => sum + (nulls.get(index) ?? 0), 0) };
  }
  const column = placeAmong(plan, index);
  const matrices = parts.flatMap(({ counts }) => counts.get(input) ?? []);
  const found = (count: keyof typeof countOf): number[] =>
    matrices.map(({ counts }) => counts[column * counted + countOf[count]] as number);
  const sum = (count: keyof typeof countOf): number => found(count).reduce((one, other) => one + other, 0);
  return {
    rows,
    nulls: sum("nulls"),
    numbers: {
      nan: sum("nan"),
      positiveInfinite: sum("positiveInfinite"),
      negativeInfinite: sum("negativeInfinite"),
      finite: sum("finite"),
      min: Math.min(Number.POSITIVE_INFINITY, ...found("min")),
      max: Math.max(Number.NEGATIVE_INFINITY, ...found("max")),
      sum: addUp(matrices, column),
    },
  };
}

/** The place of a column of the plan among those of its input. */
function placeAmong({ columns }: FeaturePlan, index: number): number {
  const input = columns[index]?.input;
  return columns.slice(0, index).filter((column) => column.input === input).length;
}

/** The exact sum of a column. */
function addUp(matrices: readonly MatrixCounts[], column: number): bigint {
  let sum = 0n;
  const adder = createFewAdder();
  for (const { sums, sumsEach, others } of matrices) {
    adder.add(sums, column * 2 * sumsEach, (column + 1) * 2 * sumsEach);
    for (const other of others) {
      sum += other.column === column ? other.sum + exactSumOf(other.values) : 0n;
    }
  }
  return sum + adder.finish();
}
