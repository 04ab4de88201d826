import {
  areClasses,
  type ColumnProfile,
  countedRows,
  countedValues,
  meanOf,
  type NumberColumn,
  valueText,
} from "../checks/profile/column.js";
import { type Histogram, rangeOfBin } from "../checks/profile/histogram.js";

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
  /** The count of all other values together. */
  readonly others: number;
}

/** Values that are shown one by one. */
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
