import type { ColumnProfile } from "../../checks/profiles/column-profile.js";
import { quantile } from "../../checks/profiles/histogram.js";
import { mean, type NumberProfile, standardDeviation } from "../../checks/profiles/number-profile.js";
import { type FewValues, matchNames } from "../../checks/profiles/few-values.js";
import { quantileOfColumn } from "../../checks/profiles/shown-quantile.js";
import type { ValueCounts } from "../../checks/profiles/value-counts.js";
import { equalSteps } from "../score-summary.js";
import { showNumber } from "./numbers.js";

/** The values of a column in a run, and in an earlier run if it has the column. Counts are exact. */
export type Distribution = NumberDistribution | ValueDistribution;

export interface NumberDistribution {
  readonly kind: "numbers";
  /** The range that the bins divide. Values outside of it count in the first or the last bin. */
  readonly range: readonly [low: number, high: number];
  readonly now: Binned;
  readonly before: Binned | undefined;
}

interface Binned {
  /** The number of values in each bin. */
  readonly bins: readonly number[];
  readonly total: number;
  readonly min: number;
  readonly max: number;
  readonly mean: number;
  /** NaN: it is not known. */
  readonly deviation: number;
}

export interface ValueDistribution {
  readonly kind: "values";
  /** The most frequent values, or whole numbers in ascending order. */
  readonly values: readonly ValueCount[];
  /** All other values together; undefined: there are none. */
  readonly others: ValueCount | undefined;
  readonly total: number;
  /** The number of values in the earlier run; 0: it has no such column. */
  readonly totalBefore: number;
}

export interface ValueCount {
  readonly name: string;
  readonly now: number;
  readonly before: number;
}

/** The largest numbers of different values that are shown one by one: of whole numbers, and of other numbers. */
const [mostNumbers, fewNumbers] = [24, 4];
/** The limit of bars. If there are more values, the last bar is that of all other values together. */
const mostBars = 10;

/**
 * Returns the distribution of a column; undefined: its values are not profiled. `before`: the profile of the column in
 * an earlier run. `failing`: values that checks name, which always have a bar.
 */
export function distributionOf(
  now: ColumnProfile,
  before: ColumnProfile | undefined,
  failing: ReadonlySet<string> = new Set(),
): Distribution | undefined {
  const [few, fewBefore] = [fewValues(now), before === undefined ? undefined : fewValues(before)];
  if (few !== undefined && (fewBefore !== undefined || before === undefined)) {
    return valuesOf([few, fewBefore], failing, now.kind === "numbers");
  }
  if (now.kind === "values") {
    return now.values.kind === "many" ? manyValues(now, before) : valuesOf([now.values, undefined], failing, false);
  }
  const [numbers, numbersBefore] = [numbersOf(now), before === undefined ? undefined : numbersOf(before)];
  if (numbers === undefined || numbers.finite === 0) {
    return undefined;
  }
  const earlier = numbersBefore === undefined || numbersBefore.finite === 0 ? undefined : numbersBefore;
  const range = rangeOf(earlier === undefined ? [numbers] : [numbers, earlier]);
  return {
    kind: "numbers",
    range,
    now: binned(numbers, range),
    before: earlier === undefined ? undefined : binned(earlier, range),
  };
}

/** Returns the numbers of a column, or the norms of its vectors. */
function numbersOf(profile: ColumnProfile): NumberProfile | undefined {
  return profile.kind === "numbers" ? profile.numbers : profile.kind === "vectors" ? profile.vectors.norms : undefined;
}

/** Returns the median of a column's numbers or of its vectors' norms; for other columns, the most frequent value. */
export function middleOf(profile: ColumnProfile): string | undefined {
  const middle = medianOf(profile);
  if (middle !== undefined) {
    return showNumber(middle);
  }
  const counts = profile.kind === "values" && profile.values.kind === "few" ? [...profile.values.counts] : [];
  return counts.toSorted(([, one], [, other]) => other - one)[0]?.[0];
}

/** Returns the median of a column's numbers or of its vectors' norms. */
export function medianOf(profile: ColumnProfile): number | undefined {
  return quantileOfColumn(profile, 0.5);
}

/** Returns the values that are shown one by one; undefined: they are shown as a histogram, or there are too many. */
function fewValues(profile: ColumnProfile): FewValues | undefined {
  const values: ValueCounts | undefined =
    profile.kind === "values" ? profile.values : profile.kind === "numbers" ? profile.numbers.values : undefined;
  if (values?.kind !== "few") {
    return undefined;
  }
  const { counts, rare } = values;
  const isScale = profile.kind === "numbers" && (rare !== undefined || !areClasses(counts));
  return isScale || (counts.size === 0 && rare === undefined) ? undefined : values;
}

function areClasses(counts: ReadonlyMap<string, number>): boolean {
  return (
    counts.size <= fewNumbers ||
    (counts.size <= mostNumbers && [...counts.keys()].every((name) => Number.isInteger(Number(name))))
  );
}

const noValues: FewValues = { kind: "few", counts: new Map() };

function valuesOf(
  [fewNow, fewBefore]: readonly [FewValues, FewValues | undefined],
  failing: ReadonlySet<string>,
  areNumbers: boolean,
): ValueDistribution {
  const [now, before] = matchNames(fewNow, fewBefore ?? noValues);
  const rare = { now: sum(now.rare?.hashed ?? []), before: sum(before.rare?.hashed ?? []) };
  const hasRare = rare.now + rare.before > 0;
  const [total, totalBefore] = [sum(now.counts.values()) + rare.now, sum(before.counts.values()) + rare.before];
  const all = [...new Set([...now.counts.keys(), ...before.counts.keys()])].map((name) => ({
    name,
    now: now.counts.get(name) ?? 0,
    before: before.counts.get(name) ?? 0,
  }));
  const share = (value: ValueCount): number =>
    Math.max(value.now / Math.max(total, 1), value.before / Math.max(totalBefore, 1));
  const byShare = all.toSorted((one, other) => share(other) - share(one) || (one.name < other.name ? -1 : 1));
  const fails = ({ name }: ValueCount): number => Number(failing.has(name));
  const ranked = byShare.toSorted((one, other) => fails(other) - fails(one));
  const rest = ranked.slice(all.length + Number(hasRare) <= mostBars ? mostBars : mostBars - 1);
  const shown = byShare.filter((value) => !rest.includes(value));
  const others = { ...mergedCount([...rest, rare]), name: hasRare ? "other values" : `${rest.length} other values` };
  const values = areNumbers ? shown.toSorted((one, other) => Number(one.name) - Number(other.name)) : shown;
  return { kind: "values", values, others: rest.length === 0 && !hasRare ? undefined : others, total, totalBefore };
}

function mergedCount(values: readonly Omit<ValueCount, "name">[]): Omit<ValueCount, "name"> {
  return { now: sum(values.map(({ now }) => now)), before: sum(values.map(({ before }) => before)) };
}

function manyValues(now: ColumnProfile, before: ColumnProfile | undefined): ValueDistribution {
  const [total, totalBefore] = [now, before].map((profile) =>
    profile === undefined ? 0 : profile.rows - profile.nulls,
  );
  const others = { name: "more different values than the profile counts", now: total ?? 0, before: totalBefore ?? 0 };
  return { kind: "values", values: [], others, total: total ?? 0, totalBefore: totalBefore ?? 0 };
}

/**
 * How far the axis may extend beyond the middle 98% of the values, in widths of their range. With an outlier on the
 * axis, all other values would share one bar.
 */
const farOff = 0.5;

/**
 * Returns the range of the axis: the smallest to the largest value, without a few values that are far from all others.
 */
function rangeOf(profiles: readonly NumberProfile[]): readonly [number, number] {
  const at = (share: number): number[] => profiles.map(({ histogram }) => quantile(histogram, share));
  const [low, high] = [Math.min(...at(0.01)), Math.max(...at(0.99))];
  const [min, max] = [Math.min(...profiles.map((one) => one.min)), Math.max(...profiles.map((one) => one.max))];
  if (low === high) {
    return [min, max];
  }
  const margin = farOff * (high - low);
  return [min < low - margin ? low : min, max > high + margin ? high : max];
}

function binned(numbers: NumberProfile, [low, high]: readonly [number, number]): Binned {
  const { finite, min, max, histogram } = numbers;
  return {
    bins: equalSteps(histogram, low, high),
    total: finite,
    min,
    max,
    mean: mean(numbers),
    deviation: standardDeviation(numbers),
  };
}

function sum(values: Iterable<number>): number {
  let total = 0;
  for (const value of values) {
    total += value;
  }
  return total;
}
