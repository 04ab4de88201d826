import { nullColumn } from "../../columnar/column-rows.js";
import type { Column } from "../../columnar/types.js";
import type { AllRows } from "../profiles/all-rows.js";
import { type ColumnProfile, mergeProfiles, profileColumn } from "../profiles/column-profile.js";
import { createExactAdder, type ExactAdder } from "../profiles/exact-sum.js";
import { blockValues, type NextNumbers } from "../profiles/number-profile.js";
import { profileNumbers } from "../profiles/profile-numbers.js";
import type { VectorLimits } from "../profiles/vector-profile.js";
import { counted } from "./feature-loops.js";
import type { FeaturePart, SampledNumbers } from "./feature-part.js";
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

/** @param bytesOfAll what the profiles of the features may take */
export function createFeatureRows(plan: FeaturePlan, bytesOfAll: number): FeatureRows {
  const matrices = new Map<number, MatrixValues>();
  const features = plan.columns.map((column, index): Feature => {
    if (column.kind !== "number") {
      return { column, values: collectOthers(column, index) };
    }
    const matrix = matrices.get(column.input) ?? collectMatrix(plan, column.input);
    matrices.set(column.input, matrix);
    return { column, values: matrix.column(column) };
  });
  const others = features.flatMap(({ values }) => ("add" in values ? [values] : []));
  let bytes = 0;
  return {
    add(part) {
      bytes += part.bytes;
      for (const values of [...matrices.values(), ...others]) {
        values.add(part);
      }
    },
    get bytes() {
      return bytes;
    },
    finish() {
      const limits = featureLimits(plan.columns.map(measuredColumn), bytesOfAll);
      return new Map(
        features.map(({ column, values }, index) => {
          return [column.name, profileOf(column, values, limits[index] as VectorLimits)];
        }),
      );
    },
  };
}

interface Feature {
  readonly column: FeatureColumn;
  readonly values: FeatureValues | OtherValues;
}

/** What is kept of the values of a column. */
interface FeatureValues {
  all(): AllRows;
  /** The profile of the sampled rows. */
  sampled(limits: VectorLimits): ColumnProfile;
}

interface OtherValues extends FeatureValues {
  add(part: FeaturePart): void;
}

/** What is kept of the columns of a matrix. */
interface MatrixValues {
  add(part: FeaturePart): void;
  column(column: FeatureColumn): FeatureValues;
}

function profileOf(column: FeatureColumn, values: FeatureValues, limits: VectorLimits): ColumnProfile {
  const all = values.all();
  return column.isKey === true
    ? { type: measuredColumn(column).type, rows: all.rows, nulls: all.nulls, kind: "rows" }
    : { ...values.sampled(limits), all };
}

/** Collects a column of texts or of lists. */
function collectOthers({ type }: FeatureColumn, index: number): OtherValues {
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

/** Collects the columns of an input with numbers. */
function collectMatrix(plan: FeaturePlan, input: number): MatrixValues {
  const columns = plan.columns.filter((column) => column.input === input);
  const { counts } = createCounts(columns.length);
  const adders = columns.map(createExactAdder);
  const others = columns.map(() => 0n);
  const samples: SampledNumbers[] = [];
  let rows = 0;
  return {
    add(part) {
      rows += part.to - part.from;
      const matrix = part.counts.get(input);
      const sample = part.numbers.get(input);
      if (matrix !== undefined) {
        for (const [place, adder] of adders.entries()) {
          addCounts(counts, place * counted, matrix.counts, place * counted);
          for (let at = place; at < matrix.sums.length; at += columns.length) {
            adder.add(matrix.sums[at] as number);
          }
        }
        for (const { column, sum } of matrix.others) {
          others[column] = (others[column] as bigint) + sum;
        }
      }
      if (sample !== undefined) {
        samples.push(sample);
      }
    },
    column(column) {
      const place = columns.indexOf(column);
      const [adder, other] = [adders[place] as ExactAdder, () => others[place] as bigint];
      const own = counts.subarray(place * counted, (place + 1) * counted);
      return {
        all: () => allNumbers(rows, own, other() + adder.finish()),
        sampled: (limits) => profileOfSamples(column, { samples, place }, limits),
      };
    },
  };
}

interface SampledColumn {
  readonly samples: readonly SampledNumbers[];
  /** The place of the column among those of its input. */
  readonly place: number;
}

function profileOfSamples(column: FeatureColumn, sampled: SampledColumn, limits: VectorLimits): ColumnProfile {
  const { samples, place } = sampled;
  const rows = samples.reduce((sum, sample) => sum + sample.rows, 0);
  const nulls = samples.reduce((sum, sample) => sum + (sample.nulls[place] as number), 0);
  const profile = profileNumbers(valuesOf(sampled), limits);
  const numbers = { ...profile, nan: profile.nan - nulls };
  return { type: measuredColumn(column).type, rows, nulls, kind: "numbers", numbers };
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

/** The values of a column, sample by sample. */
function valuesOf({ samples, place }: SampledColumn): NextNumbers {
  let [next, row] = [0, 0];
  return (target) => {
    let filled = 0;
    while (filled < blockValues && next < samples.length) {
      const { rows, values } = samples[next] as SampledNumbers;
      const count = Math.min(rows - row, blockValues - filled);
      const from = place * rows + row;
      target.set(values.subarray(from, from + count), filled);
      filled += count;
      row += count;
      if (row === rows) {
        [next, row] = [next + 1, 0];
      }
    }
    return filled;
  };
}
