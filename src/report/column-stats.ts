import type { AllNumbers } from "../checks/profiles/all-rows.js";
import type { ColumnProfile } from "../checks/profiles/column-profile.js";
import { mean, type NumberProfile, standardDeviation } from "../checks/profiles/number-profile.js";
import { roundExact } from "../checks/profiles/exact-sum.js";
import { quantileOfColumn } from "../checks/profiles/shown-quantile.js";
import type { ValueCounts } from "../checks/profiles/value-counts.js";
import { repeatedShare, type VectorProfile } from "../checks/profiles/vector-profile.js";
import { assertNever } from "../util/errors.js";

/** The statistics of a column, as plain JSON, for the table and the JSON of `stats`. */
export interface ColumnStats {
  readonly type: string;
  readonly rows: number;
  readonly nulls: number;
  /** The number of sampled rows that quantiles, values and vectors describe; absent: they describe all rows. */
  readonly sampled_rows?: number;
  readonly numbers?: NumberStats;
  /** The number of different values; absent: there are too many. */
  readonly different_values?: number;
  /** The most frequent values, with their rows, without those that the profile does not name; absent: the column has too many different values. */
  readonly values?: readonly { readonly value: string; readonly rows: number }[];
  readonly vectors?: VectorStats;
}

interface NumberStats {
  readonly nan: number;
  readonly infinite: number;
  readonly finite: number;
  readonly min: number | null;
  readonly max: number | null;
  /** Infinite if it is larger than any float64; JSON has null for that. */
  readonly sum: number | null;
  readonly mean: number | null;
  readonly deviation: number | null;
  readonly quantiles: Readonly<Record<string, number>>;
}

interface VectorStats {
  readonly min_dimension: number;
  readonly max_dimension: number;
  readonly zero: number;
  readonly not_finite: number;
  readonly repeated: number;
  readonly norms: Readonly<Record<string, number>>;
}

const quantiles = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99];
const mostValues = 10;

/** Computes the statistics of a column. */
export function columnStats(profile: ColumnProfile): ColumnStats {
  const { type, all } = profile;
  const { rows, nulls } = all ?? profile;
  const sampled = all === undefined || all.rows === profile.rows ? {} : { sampled_rows: profile.rows };
  const counts = { type, rows, nulls, ...sampled };
  switch (profile.kind) {
    case "numbers": {
      const { numbers } = profile;
      return {
        ...counts,
        numbers: { ...numberStats(all?.numbers ?? numbers, numbers), quantiles: quantilesOf(profile) },
        ...valueStats(numbers.values, type === "float32" ? shortestFloat32 : undefined),
      };
    }
    case "values":
      return { ...counts, ...valueStats(profile.values) };
    case "vectors":
      return { ...counts, vectors: { ...vectorStats(profile.vectors), norms: quantilesOf(profile) } };
    case "rows":
      return counts;
    default:
      return assertNever(profile);
  }
}

/** Computes the statistics of numbers. The deviation describes the sample, if there is one. */
function numberStats(all: AllNumbers, sample: NumberProfile): Omit<NumberStats, "quantiles"> {
  const { nan, positiveInfinite, negativeInfinite, finite, min, max } = all;
  const orNull = (value: number): number | null => (finite === 0 ? null : value);
  return {
    nan,
    infinite: positiveInfinite + negativeInfinite,
    finite,
    min: orNull(min),
    max: orNull(max),
    sum: orNull(roundExact(all.sum)),
    mean: orNull(mean(all)),
    deviation: numberOrNull(standardDeviation(sample)),
  };
}

function numberOrNull(value: number): number | null {
  return Number.isNaN(value) ? null : value;
}

/** Computes the quantiles of numbers or of norms. Without any, there are none. */
function quantilesOf(profile: ColumnProfile): Readonly<Record<string, number>> {
  return Object.fromEntries(
    quantiles.flatMap((share) => {
      const found = quantileOfColumn(profile, share);
      return found === undefined ? [] : [[`p${share * 100}`, found] as const];
    }),
  );
}

/** @param show how a value is shown; default: as the profile names it */
function valueStats(
  values: ValueCounts,
  show: (value: string) => string = (value) => value,
): Pick<ColumnStats, "different_values" | "values"> {
  if (values.kind === "many") {
    return {};
  }
  const { counts, rare } = values;
  const sorted = [...counts].toSorted(([one, ones], [other, others]) => others - ones || (one < other ? -1 : 1));
  return {
    different_values: counts.size + (rare?.values ?? 0),
    values: sorted.slice(0, mostValues).map(([value, rows]) => ({ value: show(value), rows })),
  };
}

/** Returns the shortest decimal of a float32: "18.9" of 18.899999618530273. Another text stays as it is. */
function shortestFloat32(name: string): string {
  const value = Number(name);
  const digits = [1, 2, 3, 4, 5, 6, 7, 8, 9].find((some) => Math.fround(Number(value.toPrecision(some))) === value);
  return digits === undefined ? name : String(Number(value.toPrecision(digits)));
}

function vectorStats(vectors: VectorProfile): Omit<VectorStats, "norms"> {
  const { minDimension, maxDimension, zero, notFinite } = vectors;
  return {
    min_dimension: Math.min(minDimension, maxDimension),
    max_dimension: maxDimension,
    zero,
    not_finite: notFinite,
    repeated: repeatedShare(vectors),
  };
}
