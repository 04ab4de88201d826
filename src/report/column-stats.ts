import {
  areClasses,
  type ColumnProfile,
  countedRows,
  countedValues,
  meanOf,
  type NumberColumn,
  quantileOf,
  type ValueColumn,
  valueText,
  type VectorColumn,
} from "../checks/profile/column.js";
import { type Histogram, rangeOfBin } from "../checks/profile/histogram.js";
import { assertNever } from "../base/errors.js";

/** How the values of a predicted column are distributed, for people. Plain JSON. */
export type ScoreSummary = NumberSummary | ValueSummary;

interface NumberSummary {
  readonly kind: "numbers";
  readonly column: string;
  /** What the numbers are, where they are not the column's values. */
  readonly of?: string;
  readonly values: number;
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  readonly deviation: number;
  /** The values in equal steps from `min` to `max`. */
  readonly bins: readonly number[];
}

interface ValueSummary {
  readonly kind: "values";
  readonly column: string;
  readonly values: number;
  /** Texts with the most frequent first, numbers in ascending order. */
  readonly counts: readonly { readonly value: string; readonly count: number }[];
  readonly others: number;
}

const valuesShown = 48;
const binCount = 24;

/** undefined where there is nothing to tell: no value, or values of a type whose distribution is not known. */
export function scoreSummary(column: string, profile: ColumnProfile): ScoreSummary | undefined {
  const values = countedRows(profile);
  if (profile.kind === "rows" || values === 0) {
    return undefined;
  }
  if (areClasses(profile) || profile.kind === "values") {
    return valuesSummary(column, profile);
  }
  const bins = { values, ...momentsOf(profile) };
  const of = profile.kind === "vectors" ? { of: `norm, ${profile.dimensions[1]} dimensions` } : {};
  return { column, kind: "numbers", ...of, ...bins, bins: equalSteps(profile.values, bins.min, bins.max) };
}

interface Moments {
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  /** As the bins of the histogram say. */
  readonly deviation: number;
}

/** Extremes, mean and standard deviation of numbers, or of the norms of vectors. */
export function momentsOf(profile: Extract<ColumnProfile, { kind: "numbers" | "vectors" }>): Moments {
  const { keys, counts, shift } = profile.values;
  const middles = keys.map((key) => {
    const [low, high] = rangeOfBin(key, shift);
    return (low + high) / 2;
  });
  const rows = countedRows(profile);
  const middle = middles.reduce((sum, value, index) => sum + value * ((counts[index] as number) / rows), 0);
  const squares = middles.reduce((sum, value, index) => sum + (value - middle) ** 2 * (counts[index] as number), 0);
  const [first, last] = [rangeOfBin(keys[0] ?? 0, shift), rangeOfBin(keys.at(-1) ?? 0, shift)];
  const numbers: NumberColumn | undefined = profile.kind === "numbers" ? profile : undefined;
  const mean = numbers === undefined ? Number.NaN : meanOf(numbers);
  return {
    min: numbers?.min ?? Number(first[0].toPrecision(6)),
    max: numbers?.max ?? Number(last[1].toPrecision(6)),
    mean: Number.isNaN(mean) ? middle : mean,
    deviation: rows === 0 ? Number.NaN : Math.sqrt(squares / rows),
  };
}

function valuesSummary(column: string, profile: ColumnProfile): ValueSummary {
  const values = countedRows(profile);
  const counted = (countedValues(profile) ?? []).map(({ key, rows }) => ({
    value: valueText(profile, key) ?? "a value without a name",
    count: rows,
  }));
  const sorted =
    profile.kind === "numbers"
      ? counted
      : counted.toSorted((left, right) => right.count - left.count || (left.value < right.value ? -1 : 1));
  const counts = sorted.slice(0, valuesShown);
  return {
    column,
    kind: "values",
    values,
    counts,
    others: values - counts.reduce((total, { count }) => total + count, 0),
  };
}

/** What is in a bin is spread evenly over it; counts add up to the whole. */
export function equalSteps({ shift, keys, counts }: Histogram, min: number, max: number): number[] {
  const ranges = keys.map((key, index) => {
    const [low, high] = rangeOfBin(key, shift);
    return { low: Math.max(low, min), high: Math.min(high, max), count: counts[index] as number };
  });
  const below = (limit: number): number =>
    ranges.reduce((total, { low, high, count }) => {
      const share = limit >= high ? 1 : limit <= low ? 0 : (limit - low) / (high - low);
      return total + count * share;
    }, 0);
  const inner = Array.from(
    { length: binCount - 1 },
    (_, index) => min + (max / binCount - min / binCount) * (index + 1),
  );
  const upTo = [...inner, Number.POSITIVE_INFINITY].map((limit) => Math.round(below(limit)));
  return upTo.map((count, index) => count - (upTo[index - 1] ?? 0));
}

/** The statistics of a column, as plain JSON, for the table and the JSON of `stats`. */
export interface ColumnStats {
  readonly type: string;
  readonly rows: number;
  readonly nulls: number;
  readonly numbers?: NumberStats;
  /** The number of different values; absent: there are too many. */
  readonly different_values?: number;
  /** The most frequent values, with their rows, without those that the profile does not name; absent: the column has too many different values. */
  readonly values?: readonly { readonly value: string; readonly rows: number }[];
  readonly vectors?: VectorStats;
}

/** What is usual of a column: the median of each figure over earlier nights, as plain JSON. */
export interface UsualStats {
  /** The nights that have this column. */
  readonly nights: number;
  readonly null_share: number | null;
  readonly numbers?: Pick<NumberStats, "min" | "max" | "mean" | "deviation" | "quantiles"> & {
    readonly nan_share: number | null;
  };
  /** How large a share of the rows tonight's most frequent values have. */
  readonly values?: readonly { readonly value: string; readonly share: number | null }[];
  readonly norms?: Readonly<Record<string, number>>;
}

interface NumberStats {
  readonly nan: number;
  readonly infinite: number;
  readonly finite: number;
  readonly min: number | null;
  readonly max: number | null;
  /** null if it may be larger than any float64. */
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
  readonly norms: Readonly<Record<string, number>>;
}

const quantiles = [0.01, 0.1, 0.25, 0.5, 0.75, 0.9, 0.99];
const mostValues = 10;

/** Computes the statistics of a column. */
export function columnStats(profile: ColumnProfile): ColumnStats {
  const { type, rows, nulls } = profile;
  const counts = { type, rows, nulls };
  switch (profile.kind) {
    case "numbers":
      return { ...counts, numbers: numberStats(profile), ...valueStats(profile) };
    case "values":
      return { ...counts, ...valueStats(profile) };
    case "vectors":
      return { ...counts, vectors: vectorStats(profile) };
    case "rows":
      return counts;
    default:
      return assertNever(profile);
  }
}

/** Computes what is usual of a column from its profiles of earlier nights; undefined: none has it. */
export function usualStats(tonight: ColumnProfile, earlier: readonly ColumnProfile[]): UsualStats | undefined {
  const nights = earlier.filter(({ kind, type, rows }) => kind === tonight.kind && type === tonight.type && rows > 0);
  if (nights.length === 0) {
    return undefined;
  }
  const all = nights.map(columnStats);
  const usual = (figure: (night: ColumnStats) => number | null | undefined): number | null =>
    median(all.map(figure).filter((value) => typeof value === "number"));
  const usualQuantiles = (of: (night: ColumnStats) => Readonly<Record<string, number>> | undefined) =>
    Object.fromEntries(
      Object.keys(quantilesOf(tonight)).flatMap((name) => {
        const value = usual((night) => of(night)?.[name]);
        return value === null ? [] : [[name, value] as const];
      }),
    );
  const { values } = columnStats(tonight);
  return {
    nights: nights.length,
    null_share: usual(({ nulls, rows }) => nulls / rows),
    ...(tonight.kind === "numbers" && {
      numbers: {
        nan_share: usual(({ numbers, rows }) => (numbers?.nan ?? 0) / rows),
        min: usual(({ numbers }) => numbers?.min),
        max: usual(({ numbers }) => numbers?.max),
        mean: usual(({ numbers }) => numbers?.mean),
        deviation: usual(({ numbers }) => numbers?.deviation),
        quantiles: usualQuantiles(({ numbers }) => numbers?.quantiles),
      },
    }),
    ...(values && { values: usualShares(tonight, nights) }),
    ...(tonight.kind === "vectors" && { norms: usualQuantiles(({ vectors }) => vectors?.norms) }),
  };
}

export function median(values: readonly number[]): number | null {
  const sorted = values.toSorted((left, right) => left - right);
  const middle = Math.floor(sorted.length / 2);
  const [low, high] = [sorted[sorted.length % 2 === 0 ? middle - 1 : middle], sorted[middle]];
  return low === undefined || high === undefined ? null : low + (high - low) / 2;
}

/** Of tonight's values, on nights whose values are counted, by their keys: a rare value has no name there. */
function usualShares(
  tonight: ColumnProfile,
  nights: readonly ColumnProfile[],
): readonly { readonly value: string; readonly share: number | null }[] {
  const shares = nights.flatMap((night) => {
    const counted = countedValues(night);
    return counted === undefined ? [] : [new Map(counted.map(({ key, rows }) => [key, rows / night.rows]))];
  });
  return frequentValues(tonight).map(({ key, value }) => ({
    value,
    share: median(shares.map((of) => of.get(key) ?? 0)),
  }));
}

function numberStats(profile: NumberColumn): NumberStats {
  const { nan, infinite, sum } = profile;
  const finite = countedRows(profile);
  const moments = finite === 0 ? { min: null, max: null, mean: null, deviation: Number.NaN } : momentsOf(profile);
  return {
    nan,
    infinite: infinite[0] + infinite[1],
    finite,
    min: moments.min,
    max: moments.max,
    sum: finite === 0 || Number.isNaN(sum[0]) ? null : sum[0],
    mean: moments.mean,
    deviation: Number.isNaN(moments.deviation) ? null : moments.deviation,
    quantiles: quantilesOf(profile),
  };
}

function quantilesOf(profile: ColumnProfile): Readonly<Record<string, number>> {
  return Object.fromEntries(
    quantiles.flatMap((share) => {
      const value = quantileOf(profile, share);
      return value === undefined ? [] : [[`p${share * 100}`, value] as const];
    }),
  );
}

function valueStats(profile: NumberColumn | ValueColumn): Pick<ColumnStats, "different_values" | "values"> {
  const values = countedValues(profile);
  if (values === undefined) {
    return {};
  }
  if (profile.kind === "numbers" && !areClasses(profile) && values.length > mostValues) {
    return { different_values: values.length };
  }
  return {
    different_values: values.length,
    values: frequentValues(profile).map(({ value, rows }) => ({ value, rows })),
  };
}

function frequentValues(
  profile: ColumnProfile,
): readonly { readonly key: number; readonly value: string; readonly rows: number }[] {
  const named = (countedValues(profile) ?? []).flatMap(({ key, rows }) => {
    const value = valueText(profile, key);
    return value === undefined ? [] : [{ key, value, rows }];
  });
  return named
    .toSorted((left, right) => right.rows - left.rows || (left.value < right.value ? -1 : 1))
    .slice(0, mostValues);
}

function vectorStats(profile: VectorColumn): VectorStats {
  const [least, largest] = profile.dimensions;
  return {
    min_dimension: Math.min(least, largest),
    max_dimension: largest,
    zero: profile.zero,
    not_finite: profile.notFinite,
    norms: quantilesOf(profile),
  };
}
