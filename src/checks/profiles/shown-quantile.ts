import type { ColumnProfile } from "./column-profile.js";
import { binEdges, findQuantile, quantile } from "./histogram.js";
import type { NumberProfile } from "./number-profile.js";

/**
 * A quantile of a column's numbers, or of the norms of its vectors, as it is shown to people. undefined: the column has no
 * numbers.
 */
export function quantileOfColumn(profile: ColumnProfile, share: number): number | undefined {
  const vectors = profile.kind === "vectors";
  const numbers = profile.kind === "numbers" ? profile.numbers : vectors ? profile.vectors.norms : undefined;
  if (numbers === undefined || numbers.finite === 0) {
    return undefined;
  }
  const { min, max } = profile.all?.numbers ?? numbers;
  return shownQuantile({ numbers, type: vectors ? "float64" : profile.type, min, max }, share);
}

interface ShownNumbers {
  /** The histogram and the counted values: of all rows, or of a sample. */
  readonly numbers: Pick<NumberProfile, "histogram" | "values">;
  /** The type of the column, as profiles name it; of norms, float64. */
  readonly type: string;
  /** The exact extremes of all rows. */
  readonly min: number;
  readonly max: number;
}

/**
 * A quantile as it is shown to people: a number that the column may have. It is the exact one where all values in its bin of the
 * histogram are counted by name. Otherwise it is spread evenly inside the bin: over the whole numbers in it if the type has no
 * others, and to the digits of a decimal. It is never beyond the extremes. NaN where there are no numbers.
 */
export function shownQuantile({ numbers, type, min, max }: ShownNumbers, share: number): number {
  const found =
    namedQuantile(numbers, share) ?? wholeQuantile(numbers, type, share) ?? quantile(numbers.histogram, share);
  return Math.min(max, Math.max(min, withScale(found, type)));
}

/** Ranks that are closer than this, as shares of a bin, are the same: they are rounded. */
const tolerance = 1e-9;

/** undefined: a value in the bin of the quantile has no name. */
function namedQuantile(
  { histogram, values }: Pick<NumberProfile, "histogram" | "values">,
  share: number,
): number | undefined {
  const { index, inside } = findQuantile(histogram, share);
  const count = histogram.counts[index];
  if (values.kind !== "few" || count === undefined) {
    return undefined;
  }
  const key = histogram.keys[index] as number;
  const [low, high] = binEdges(key, histogram.shift);
  const isInside = (value: number): boolean =>
    key < 0 ? value > low && value <= high && value < 0 : value >= low && value < high;
  const named = [...values.counts]
    .map(([name, rows]) => ({ value: Number(name), rows }))
    .filter(({ value }) => isInside(value))
    .toSorted((one, other) => one.value - other.value);
  if (named.reduce((sum, { rows }) => sum + rows, 0) !== count) {
    return undefined;
  }
  let rows = 0;
  return named.find((one) => {
    rows += one.rows;
    return rows / count >= inside - tolerance;
  })?.value;
}

/** undefined: the type has other numbers than whole ones, or no whole number is in the bin. */
function wholeQuantile(
  { histogram }: Pick<NumberProfile, "histogram">,
  type: string,
  share: number,
): number | undefined {
  const { index, inside } = findQuantile(histogram, share);
  const key = histogram.keys[index];
  if (key === undefined || !isWhole(type)) {
    return undefined;
  }
  const [low, high] = binEdges(key, histogram.shift);
  const [first, last] = key < 0 ? [Math.floor(low) + 1, Math.floor(high)] : [Math.ceil(low), Math.ceil(high) - 1];
  return key === 0 || first > last ? undefined : Math.min(first + Math.floor(inside * (last - first + 1)), last);
}

/** Integers, dates and times. */
function isWhole(type: string): boolean {
  return /^(?:u?int\d|date|time)/.test(type);
}

/** Rounds a number of a decimal to the digits that its type has. */
function withScale(value: number, type: string): number {
  const scale = /^decimal\(\d+,(\d+)\)$/.exec(type)?.[1];
  return scale === undefined || Number.isNaN(value) ? value : Number(value.toFixed(Number(scale)));
}
