import type { ColumnProfile } from "../checks/profiles/column-profile.js";
import { binEdges, type Histogram } from "../checks/profiles/histogram.js";
import { mean, type NumberProfile, standardDeviation } from "../checks/profiles/number-profile.js";
import { assertNever } from "../util/errors.js";
import type { ValueCounts } from "../checks/profiles/value-counts.js";

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
  switch (profile.kind) {
    case "numbers":
      return numbersSummary(column, profile.numbers);
    case "values":
      return valuesSummary(column, profile.values);
    case "vectors": {
      const { norms, maxDimension } = profile.vectors;
      const of = `norm, ${maxDimension} dimensions`;
      return norms.finite === 0 ? undefined : { column, kind: "numbers", of, ...distribution(norms) };
    }
    case "rows":
      return undefined;
    default:
      return assertNever(profile);
  }
}

function numbersSummary(column: string, numbers: NumberProfile): ScoreSummary | undefined {
  if (numbers.finite === 0) {
    return undefined;
  }
  const few = numbers.values.kind === "few" ? [...numbers.values.counts] : [];
  if (few.length > 0 && few.length <= valuesShown && few.every(([value]) => Number.isInteger(Number(value)))) {
    const sorted = few.toSorted(([one], [other]) => Number(one) - Number(other));
    return { column, kind: "values", values: numbers.finite, counts: sorted.map(asCount), others: 0 };
  }
  return { column, kind: "numbers", ...distribution(numbers) };
}

const asCount = ([value, count]: readonly [string, number]): { value: string; count: number } => ({ value, count });

function distribution(
  numbers: NumberProfile,
): Pick<NumberSummary, "values" | "min" | "max" | "mean" | "deviation" | "bins"> {
  const { finite, min, max, histogram } = numbers;
  return {
    values: finite,
    min,
    max,
    mean: mean(numbers),
    deviation: standardDeviation(numbers),
    bins: equalSteps(histogram, min, max),
  };
}

function valuesSummary(column: string, values: ValueCounts): ScoreSummary | undefined {
  if (values.kind === "many") {
    const all = sum([...(values.hashed ?? [])]);
    return { column, kind: "values", values: all, counts: [], others: all };
  }
  if (values.counts.size === 0) {
    return undefined;
  }
  const sorted = [...values.counts].toSorted(([one, ones], [other, others]) => others - ones || (one < other ? -1 : 1));
  const all = sum(sorted.map(([, count]) => count));
  const counts = sorted.slice(0, valuesShown).map(asCount);
  return { column, kind: "values", values: all, counts, others: all - sum(counts.map(({ count }) => count)) };
}

function sum(counts: readonly number[]): number {
  return counts.reduce((total, count) => total + count, 0);
}

/** What is in a bin is spread evenly over it; counts add up to the whole. */
export function equalSteps({ shift, keys, counts }: Histogram, min: number, max: number): number[] {
  const ranges = [...keys].map((key, index) => {
    const [low, high] = binEdges(key, shift);
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
