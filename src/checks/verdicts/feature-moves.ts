import type { ColumnProfile } from "../profiles/column-profile.js";
import { quantileOfColumn } from "../profiles/shown-quantile.js";
import { type ComparedColumn, shareStep } from "./column-checks.js";
import { quantilesIn } from "./quantile-check.js";
import type { CheckResult } from "./verdict.js";

/**
 * Returns the result of a check of a feature. If a PSI did not pass, it adds numbers that describe the drift: the
 * shares of NULL and NaN if they rose, the median, the smallest, the middle and the largest median of the earlier runs, and
 * the factor if all numbers were multiplied by one (`times`): that of the median, from the middle of the earlier ones.
 */
export function featureResult(result: CheckResult, column: ComparedColumn): CheckResult {
  const moved = result.check === "psi" && result.level !== "pass";
  const numbers = moved ? { ...result.numbers, ...moveOf(column, result.against) } : result.numbers;
  return { ...result, numbers, isFeature: true };
}

function moveOf({ now, earlier }: ComparedColumn, against: string | null): CheckResult["numbers"] {
  const nearest = earlier.find(({ runId }) => runId === against);
  const profiles = earlier.map(({ profile }) => profile);
  const latestFirst = profiles.toReversed();
  const medians = mediansOf(now, profiles);
  return {
    runs_before: earlier.length,
    ...risenShare("nulls", now, { profiles, of: ({ nulls }) => nulls }),
    ...risenShare("nan", now, { profiles, of: nanIn }),
    ...medians,
    ...usualTimes(timesSinceAny(now, nearest === undefined ? latestFirst : [nearest.profile, ...latestFirst]), medians),
  };
}

/** The factor from the middle of the earlier medians: any one night may be off. */
function usualTimes(found: { readonly times?: number }, medians: Medians): { readonly times?: number } {
  const { median = 0, middle_median_before: middle = 0 } = medians;
  const times = median / middle;
  return found.times === undefined || !Number.isFinite(times) || times <= 0 ? found : { times };
}

function nanIn(profile: ColumnProfile): number {
  return profile.kind === "numbers" ? profile.numbers.nan : 0;
}

interface Counted {
  readonly profiles: readonly ColumnProfile[];
  readonly of: (profile: ColumnProfile) => number;
}

/** Returns a share of the rows and the largest share in earlier runs, if it rose. */
function risenShare(name: string, now: ColumnProfile, { profiles, of }: Counted): Readonly<Record<string, number>> {
  const shareIn = (profile: ColumnProfile): number => of(profile) / Math.max(profile.rows, 1);
  const before = Math.max(0, ...profiles.map(shareIn));
  return shareIn(now) > before + shareStep ? { [name]: shareIn(now), [`${name}_before`]: before } : {};
}

interface Medians {
  readonly median?: number;
  readonly smallest_median_before?: number;
  readonly middle_median_before?: number;
  readonly largest_median_before?: number;
}

function mediansOf(now: ColumnProfile, profiles: readonly ColumnProfile[]): Medians {
  const median = medianOf(now);
  const before = profiles.flatMap((profile) => medianOf(profile) ?? []).toSorted((one, other) => one - other);
  const [least, most] = [before[0], before.at(-1)];
  return median === undefined || least === undefined || most === undefined
    ? {}
    : {
        median,
        smallest_median_before: least,
        middle_median_before: middleOf(before),
        largest_median_before: most,
      };
}

/** The median of sorted numbers, of which there is at least one; of an even number of them, the mean of the middle two. */
function middleOf(sorted: readonly number[]): number {
  const [low = Number.NaN, high = Number.NaN] = [sorted[(sorted.length - 1) >> 1], sorted[sorted.length >> 1]];
  return low + (high - low) / 2;
}

/** The median as it is shown to people; undefined: there are no numbers. */
function medianOf(profile: ColumnProfile): number | undefined {
  return profile.kind === "numbers" ? quantileOfColumn(profile, 0.5) : undefined;
}

/** Returns p10, p50 and p90; undefined: there are no numbers. */
function quantilesOf(profile: ColumnProfile): number[] | undefined {
  return profile.kind === "numbers" && profile.numbers.finite > 0 ? quantilesIn(profile.numbers.histogram) : undefined;
}

/**
 * The ratios of p10, p50 and p90 between two runs may differ by this share if all numbers were multiplied by one
 * factor.
 */
const tolerance = 0.1;
/**
 * The ratio of p90 - p10 may differ from them by this factor, because coarse bins measure a narrow range less exactly.
 */
const rangeTolerance = 1.5;

/** A factor of at least so much, or its inverse, suggests that a unit changed: a mile is 1.61 km, a kilogram 2.2 pounds. */
const unitRatio = 1.45;

/** At the end of a month, amounts may be half as large again, but hardly this many times as large. */
export const certainUnitRatio = 2.1;

/** Whether a factor by which all numbers of a feature were multiplied suggests that a unit changed. */
export function isNewUnit(times: number, ratio = unitRatio): boolean {
  return times >= ratio || times <= 1 / ratio;
}

/**
 * Returns the factor by which the numbers grew, if p10, p50, p90 and the range between them grew by about the same
 * factor.
 */
export function timesSince(now: ColumnProfile, before: ColumnProfile): { readonly times?: number } {
  const [values, was] = [quantilesOf(now) ?? [], quantilesOf(before) ?? []];
  const ratios = values.flatMap((value, index) => {
    const old = was[index] ?? 0;
    return old === 0 && value === 0 ? [] : [value / old];
  });
  const [least, greatest] = [Math.min(...ratios), Math.max(...ratios)];
  const times = Math.sqrt(least * greatest);
  const range = rangeOf(values) / rangeOf(was) / times;
  const isScaled = ratios.length > 1 && least > 0 && greatest <= least * (1 + tolerance) ** 2;
  const isShifted = range > rangeTolerance || range < 1 / rangeTolerance;
  return isScaled && !isShifted && Number.isFinite(times) ? { times } : {};
}

/**
 * Returns the factor since the first of these runs that shows one. After a change of unit, the nearest run may be a
 * weekend, which shows none.
 */
function timesSinceAny(now: ColumnProfile, before: readonly ColumnProfile[]): { readonly times?: number } {
  return before.map((profile) => timesSince(now, profile)).find(({ times }) => times !== undefined) ?? {};
}

function rangeOf([p10 = 0, , p90 = 0]: readonly number[]): number {
  return p90 - p10;
}
