import type { ColumnProfile } from "../profiles/column-profile.js";
import { type Histogram, quantile, quantileBin } from "../profiles/histogram.js";
import type { ValueCounts } from "../profiles/value-counts.js";
import { alignProfiles } from "./align/profiles.js";
import type { ComparedColumn, EarlierColumn } from "./column-checks.js";
import type { CheckResult } from "./verdict.js";

const quantiles = [0.1, 0.5, 0.9];
/** The largest shift of a quantile, as a share of the earlier interquartile range. */
const largestShift = 0.5;
/** With fewer numbers in one of the runs, quantiles are not compared. */
export const leastQuantileRows = 1000;

/**
 * A quantile has moved where at least this share of the rows lies between the two, beyond so many standard deviations of
 * a share. Where few values are, as between the probabilities of a sure model, a quantile jumps by chance.
 */
const rankStep = 0.05;
const chance = 3;

const formula = `the largest shift of p10, p50 and p90 / the interquartile range before, of those whose rank moved by more than ${rankStep} + ${chance} · sqrt(s (1 - s) (1 / values before + 1 / values)), s the quantile's share. The rank moves by the share of the values of one run that are between its quantile and the other run's: of the two runs, the one where it is more`;

/** The quantiles of a run beside those of an earlier one. */
interface Shifted {
  readonly runId: string;
  readonly before: readonly number[];
  /** The interquartile range before. */
  readonly range: number;
  readonly values: number;
  /** How far the rank of each quantile has moved, as a share. */
  readonly ranks: readonly number[];
  /** The largest shift of a quantile whose rank has moved beyond chance; 0: none has. */
  readonly shift: number;
}

/** How far p10, p50 and p90 have moved, in interquartile ranges; warns. */
export function checkQuantiles({ column, now, earlier }: ComparedColumn): CheckResult[] {
  if (now.kind !== "numbers" || now.numbers.finite < leastQuantileRows || areFew(now.numbers.values)) {
    return [];
  }
  let nearest: Shifted | undefined;
  for (const before of earlier.toReversed()) {
    const found = shiftFrom(before, now);
    if (found !== undefined && found.shift < (nearest?.shift ?? Number.POSITIVE_INFINITY)) {
      nearest = found;
    }
    if (nearest !== undefined && nearest.shift <= largestShift) {
      break; // one run like this is enough
    }
  }
  return nearest === undefined ? [] : [resultOf(column, now.numbers, nearest)];
}

function resultOf(
  column: string,
  { histogram, finite }: { readonly histogram: Histogram; readonly finite: number },
  { runId, before, range, values, ranks, shift }: Shifted,
): CheckResult {
  return {
    check: "quantiles",
    column,
    level: shift > largestShift ? "warn" : "pass",
    formula,
    measured: shift,
    limit: largestShift,
    against: runId,
    numbers: {
      ...named("", quantilesIn(histogram)),
      ...named("", before, "_before"),
      range_before: range,
      ...named("rank_shift_", ranks),
      values: finite,
      values_before: values,
    },
  };
}

/** Numbers of the quantiles by name: "rank_shift_p90", "p90_before". */
function named(prefix: string, found: readonly number[], suffix = ""): Readonly<Record<string, number>> {
  return Object.fromEntries(
    found.map((value, index) => [`${prefix}p${(quantiles[index] as number) * 100}${suffix}`, value]),
  );
}

/** undefined: the earlier run has too few numbers, or no range to measure by although a quantile has moved. */
function shiftFrom({ runId, profile }: EarlierColumn, now: ColumnProfile): Shifted | undefined {
  if (profile.kind !== "numbers" || now.kind !== "numbers" || profile.numbers.finite < leastQuantileRows) {
    return undefined;
  }
  const { histogram, finite: values } = profile.numbers;
  const range = interquartileRange(histogram);
  const ranks = rankShifts(profile, now);
  if (ranks === undefined) {
    return undefined;
  }
  const [before, after] = [quantilesIn(histogram), quantilesIn(now.numbers.histogram)];
  const moved = quantiles.map((share, index) => {
    const deviation = Math.sqrt(share * (1 - share) * (1 / values + 1 / now.numbers.finite));
    const hasMoved = (ranks[index] as number) > rankStep + chance * deviation;
    return hasMoved ? Math.abs((after[index] as number) - (before[index] as number)) : 0;
  });
  const most = Math.max(...moved);
  return most > 0 && range === 0
    ? undefined
    : { runId, before, range, values, ranks, shift: most === 0 ? 0 : most / range };
}

/** Returns p10, p50 and p90. */
export function quantilesIn(histogram: Histogram): number[] {
  return quantiles.map((share) => quantile(histogram, share));
}

/** How far the rank of each quantile has moved: in the earlier distribution or in the present one; the larger of the two counts. */
function rankShifts(before: ColumnProfile, now: ColumnProfile): number[] | undefined {
  const aligned = alignProfiles(before, now);
  if (aligned === undefined) {
    return undefined;
  }
  const [was, is] = [sharesBelow(aligned.before), sharesBelow(aligned.now)];
  return quantiles.map((share) => Math.max(rankShift(share, was, is), rankShift(share, is, was)));
}

/** Entry i: the share of the counts in bins [0, i). */
function sharesBelow(counts: Float64Array): Float64Array {
  const shares = new Float64Array(counts.length + 1);
  for (let index = 0; index < counts.length; index += 1) {
    shares[index + 1] = (shares[index] as number) + (counts[index] as number);
  }
  const total = shares[counts.length] as number;
  return shares.map((rows) => rows / total);
}

/**
 * How far `share` is from the ranks that the values of a bin have in one distribution, the bin being that of the
 * quantile of `share` in the other one.
 */
function rankShift(share: number, shares: Float64Array, others: Float64Array): number {
  const bin = Math.max(others.findIndex((below) => below >= share) - 1, 0);
  const [low, high] = [shares[bin] as number, shares[bin + 1] as number];
  return Math.max(low - share, share - high, 0);
}

/** Whether the values are few, such as classes: a quantile then stays the same, or jumps by a step. */
function areFew(values: ValueCounts): boolean {
  return values.kind === "few" && values.counts.size + (values.rare?.values ?? 0) < fewValues;
}

const fewValues = 20;

/** 0 where half of the values are in one bin, such as zeros or a class: there is no range to measure by. */
function interquartileRange(histogram: Histogram): number {
  return quantileBin(histogram, 0.25) === quantileBin(histogram, 0.75)
    ? 0
    : quantile(histogram, 0.75) - quantile(histogram, 0.25);
}
