import type { ColumnProfile } from "../profiles/column-profile.js";
import { quantile } from "../profiles/histogram.js";
import type { ComparedColumn } from "./column-checks.js";
import type { CheckResult } from "./verdict.js";

/** Shares of NULL and NaN that rose by less are not told. */
const shareStep = 0.05;

/**
 * The result of a check of a feature. To a PSI that did not pass it adds what people recognise a move by: the shares of
 * NULL and NaN that rose, the median, the smallest and the largest median of the earlier runs, and by how much all numbers
 * were multiplied (`times`).
 */
export function featureResult(result: CheckResult, column: ComparedColumn): CheckResult {
  const moved = result.check === "psi" && result.level !== "pass";
  const numbers = moved ? { ...result.numbers, ...moveOf(column, result.against) } : result.numbers;
  return { ...result, numbers, isFeature: true };
}

function moveOf({ now, earlier }: ComparedColumn, against: string | null): CheckResult["numbers"] {
  const nearest = earlier.find(({ runId }) => runId === against) ?? earlier.at(-1);
  const profiles = earlier.map(({ profile }) => profile);
  return {
    runs_before: earlier.length,
    ...risenShare("nulls", now, { profiles, of: ({ nulls }) => nulls }),
    ...risenShare("nan", now, { profiles, of: nanIn }),
    ...mediansOf(now, profiles),
    ...(nearest === undefined ? {} : timesSince(now, nearest.profile)),
  };
}

function nanIn(profile: ColumnProfile): number {
  return profile.kind === "numbers" ? profile.numbers.nan : 0;
}

interface Counted {
  readonly profiles: readonly ColumnProfile[];
  readonly of: (profile: ColumnProfile) => number;
}

/** A share of the rows, and the largest one before, if it rose. */
function risenShare(name: string, now: ColumnProfile, { profiles, of }: Counted): Readonly<Record<string, number>> {
  const shareIn = (profile: ColumnProfile): number => of(profile) / Math.max(profile.rows, 1);
  const before = Math.max(0, ...profiles.map(shareIn));
  return shareIn(now) > before + shareStep ? { [name]: shareIn(now), [`${name}_before`]: before } : {};
}

function mediansOf(now: ColumnProfile, profiles: readonly ColumnProfile[]): Readonly<Record<string, number>> {
  const median = quantilesOf(now)?.[1];
  const before = profiles.flatMap((profile) => quantilesOf(profile)?.[1] ?? []);
  return median === undefined || before.length === 0
    ? {}
    : { median, smallest_median_before: Math.min(...before), largest_median_before: Math.max(...before) };
}

const quantiles = [0.1, 0.5, 0.9];

/** undefined: there are no numbers. */
function quantilesOf(profile: ColumnProfile): number[] | undefined {
  return profile.kind === "numbers" && profile.numbers.finite > 0
    ? quantiles.map((share) => quantile(profile.numbers.histogram, share))
    : undefined;
}

/** The ratios of p10, p50 and p90 of two runs differ by so much if all numbers were multiplied by one. */
const tolerance = 0.1;
/** That of p90 - p10 may differ from them by so many times: in coarse bins a narrow range is known less well. */
const rangeTolerance = 1.5;

/** How many times as large as before the numbers are, if p10, p50, p90 and the range between grew by about the same. */
function timesSince(now: ColumnProfile, before: ColumnProfile): { readonly times?: number } {
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

function rangeOf([p10 = 0, , p90 = 0]: readonly number[]): number {
  return p90 - p10;
}
