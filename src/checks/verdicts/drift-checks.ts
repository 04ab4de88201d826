import { type ColumnProfile, mergeProfiles, profileLimits } from "../profiles/column-profile.js";
import { type Histogram, quantile, quantileBin } from "../profiles/histogram.js";
import type { ValueCounts } from "../profiles/value-counts.js";
import { centroidCosine } from "../profiles/vector-profile.js";
import { type Aligned, alignProfiles } from "./align-profiles.js";
import type { ComparedColumn, EarlierColumn } from "./column-checks.js";
import { type EntryBin, nameBins, psi, psiBins, psiLimit } from "./psi.js";
import type { CheckResult, Level } from "./verdict.js";

/** A PSI above `warn` warns, one above `hold` holds. */
export interface PsiLevels {
  readonly warn: number;
  readonly hold: number;
}

const psiFormula =
  "Σ (p - q) · ln(p / q) over the bins, p the share now and q before, each count + 0.5; limit max(wanted, (d + 3.5 · sqrt(2 d)) · (1 / rows before + 1 / rows)), d the number of bins - 1";

interface Drift {
  readonly runId: string;
  readonly rows: number;
  readonly psi: number;
  readonly bins: readonly EntryBin[];
  readonly aligned: Aligned;
}

/**
 * Checks the PSI of a column against each earlier run. The most similar run counts. With few rows, the column is also
 * compared with all runs together, which only warns.
 */
export function checkPsi({ column, now, earlier }: ComparedColumn, levels: PsiLevels): CheckResult[] {
  let nearest: Drift | undefined;
  let least = Number.POSITIVE_INFINITY;
  for (const before of earlier.toReversed()) {
    const drift = driftFrom(before, now);
    const excess = drift === undefined ? least : drift.psi / limitOf(levels.warn, drift, now);
    if (excess < least) {
      [nearest, least] = [drift, excess];
    }
    if (least <= 1) {
      break; // one run like this is enough
    }
  }
  const pooled = least <= 1 && now.rows < fewRows ? driftFrom(poolOf(earlier), now) : undefined;
  if (pooled !== undefined && pooled.psi > limitOf(levels.warn, pooled, now)) {
    const only = { warn: levels.warn, hold: Number.POSITIVE_INFINITY };
    const result = psiResult("psi", column, { now, drift: pooled, levels: only });
    return [{ ...result, against: null, numbers: { ...result.numbers, runs_together: earlier.length } }];
  }
  return nearest === undefined ? [] : [psiResult("psi", column, { now, drift: nearest, levels })];
}

const fewRows = 1000;

function poolOf(earlier: readonly EarlierColumn[]): EarlierColumn {
  const limits = profileLimits(1);
  const profiles = earlier.map(({ profile }) => profile);
  return {
    runId: "", // of no single run
    profile: profiles.reduce((one, other) => mergeProfiles(one, other, limits)),
  };
}

function driftFrom({ runId, profile }: EarlierColumn, now: ColumnProfile): Drift | undefined {
  const aligned = alignProfiles(profile, now);
  if (aligned === undefined || psiLimit(0, 1, profile.rows, now.rows) === Number.POSITIVE_INFINITY) {
    return undefined;
  }
  const bins = psiBins(aligned);
  return { runId, rows: profile.rows, psi: psi(bins), bins, aligned };
}

interface PsiCase {
  readonly now: ColumnProfile;
  readonly drift: Drift;
  readonly levels: PsiLevels;
}

function psiResult(check: "psi" | "slow_drift", column: string, { now, drift, levels }: PsiCase): CheckResult {
  const limits = { warn: limitOf(levels.warn, drift, now), hold: limitOf(levels.hold, drift, now) };
  const level: Level = drift.psi > limits.hold ? "hold" : drift.psi > limits.warn ? "warn" : "pass";
  return {
    check,
    column,
    level,
    formula: psiFormula,
    measured: drift.psi,
    limit: level === "hold" ? limits.hold : limits.warn,
    against: drift.runId,
    numbers: { rows: now.rows, rows_before: drift.rows },
    ...(level === "pass" ? {} : { bins: nameBins(drift.bins, drift.aligned) }),
  };
}

function limitOf(wanted: number, { rows, bins }: Drift, now: ColumnProfile): number {
  return psiLimit(wanted, bins.length, rows, now.rows);
}

/**
 * How far an output has moved from the model version's first published run, where each step was small. Warns once, in
 * the run that goes beyond the limit: none of the last ones had.
 */
export function checkSlowDrift(
  { column, now, earlier }: ComparedColumn,
  first: EarlierColumn,
  warn: number,
): CheckResult[] {
  const drift = driftFrom(first, now);
  if (drift === undefined) {
    return [];
  }
  const isFar = drift.psi > limitOf(warn, drift, now);
  const isKnown =
    isFar &&
    earlier.some(({ profile }) => {
      const before = driftFrom(first, profile);
      return before !== undefined && before.psi > limitOf(warn, before, profile);
    });
  const levels = { warn: isKnown ? Number.POSITIVE_INFINITY : warn, hold: Number.POSITIVE_INFINITY };
  return [psiResult("slow_drift", column, { now, drift, levels })];
}

/** A PSI of an output this many times that of each feature has no cause in the features. */
const unexplained = 3;

/**
 * Whether an output moved though the features did not, compared with the run whose features are most like these:
 * another model, or other preprocessing. Warns, also where an earlier run's output looked like this one.
 */
export function checkUnexplained(
  { column, now, earlier }: ComparedColumn,
  features: readonly ComparedColumn[],
  warn: number,
): CheckResult[] {
  const hasMoved = [earlier.at(-7), earlier.at(-1)].some((before) => {
    const moved = before === undefined ? undefined : driftFrom(before, now);
    return moved !== undefined && moved.psi > limitOf(warn, moved, now);
  });
  // The other runs have no profiles of features, because an older version of this program made them.
  const known = earlier.filter(({ runId }) =>
    features.some((feature) => feature.earlier.some((run) => run.runId === runId)),
  );
  if (!hasMoved || known.length === 0) {
    return [];
  }
  const byFeatures = known.map((before) => ({ before, moved: largestDrift(features, before.runId).psi }));
  const alike = byFeatures.reduce((one, other) => (other.moved < one.moved ? other : one));
  const drift = driftFrom(alike.before, now);
  if (drift === undefined) {
    return [];
  }
  const limit = Math.max(limitOf(warn, drift, now), unexplained * alike.moved);
  return [
    {
      check: "unexplained",
      column,
      level: drift.psi > limit ? "warn" : "pass",
      formula: `the output's PSI since the run whose features are most like these; at most ${unexplained} times the largest PSI of a feature since then, and the limit of "psi"`,
      measured: drift.psi,
      limit,
      against: drift.runId,
      numbers: { rows: now.rows, rows_before: drift.rows, largest_feature_psi: alike.moved },
      ...(drift.psi > limit ? { bins: nameBins(drift.bins, drift.aligned) } : {}),
    },
  ];
}

/** The feature that has moved most, beyond what chance makes. */
function largestDrift(features: readonly ComparedColumn[], runId: string): { psi: number; column: string } {
  let most = { psi: 0, column: "" };
  for (const { column, now, earlier } of features) {
    const before = earlier.find((run) => run.runId === runId);
    const found = before === undefined ? undefined : driftFrom(before, now);
    const isMost = found !== undefined && found.psi > Math.max(most.psi, limitOf(0, found, now));
    most = isMost ? { psi: found.psi, column } : most;
  }
  return most;
}

/** Above this multiple of its limit, the PSI of an output holds the run even if a feature explains it. */
const explainedUpTo = 2;

/** An output that moved with the features only warns, up to twice its limit: what came in was different. */
export function lowerExplained(results: readonly CheckResult[], features: readonly ComparedColumn[]): CheckResult[] {
  return results.map((result) => {
    const { check, level, measured, limit, against } = result;
    const moved = Number(measured);
    if (check !== "psi" || level !== "hold" || against === null || moved > explainedUpTo * Number(limit)) {
      return result;
    }
    const { psi: most, column } = largestDrift(features, against);
    const lowered = `feature ${column} moved, too: PSI ${Number(most.toPrecision(3))}`;
    return unexplained * most < moved ? result : { ...result, level: "warn", lowered };
  });
}

/** A feature with at least this PSI explains the drift of an output, even if the PSI of the output is higher. */
const explainingPsi = 0.25;

/** Names the feature that explains why an output did not pass, if there is one. */
export function nameCause(result: CheckResult, features: readonly ComparedColumn[], last: string): CheckResult {
  if (result.level === "pass" || result.check === "unexplained" || result.lowered !== undefined) {
    return result;
  }
  const { psi: most, column } = largestDrift(features, result.against ?? last);
  const moved = result.check === "psi" ? Number(result.measured) : 0;
  const explains = most > 0 && (most >= explainingPsi || unexplained * most >= moved);
  return explains ? { ...result, feature: { column, psi: most } } : result;
}

const quantiles = [0.1, 0.5, 0.9];
/** The largest shift of a quantile, as a share of the earlier interquartile range. */
const largestShift = 0.5;
const leastRows = 1000;

/** How far p10, p50 and p90 have moved, in interquartile ranges; warns. */
export function checkQuantiles({ column, now, earlier }: ComparedColumn): CheckResult[] {
  if (now.kind !== "numbers" || now.numbers.finite < leastRows || areFew(now.numbers.values)) {
    return [];
  }
  const after = quantiles.map((share) => quantile(now.numbers.histogram, share));
  let nearest: { runId: string; shift: number; before: readonly number[]; range: number } | undefined;
  for (const { runId, profile } of earlier.toReversed()) {
    if (profile.kind === "numbers" && profile.numbers.finite >= leastRows) {
      const { histogram } = profile.numbers;
      const range = interquartileRange(histogram);
      const before = quantiles.map((share) => quantile(histogram, share));
      const shift = Math.max(...before.map((value, index) => Math.abs((after[index] as number) - value))) / range;
      if (range > 0 && shift < (nearest?.shift ?? Number.POSITIVE_INFINITY)) {
        nearest = { runId, shift, before, range };
      }
      if (nearest !== undefined && nearest.shift <= largestShift) {
        break; // one run like this is enough
      }
    }
  }
  if (nearest === undefined) {
    return [];
  }
  const { runId, shift, before, range } = nearest;
  const named = (values: readonly number[], suffix: string): [string, number][] =>
    values.map((value, index) => [`p${(quantiles[index] as number) * 100}${suffix}`, value]);
  return [
    {
      check: "quantiles",
      column,
      level: shift > largestShift ? "warn" : "pass",
      formula: "the largest shift of p10, p50 and p90 / the interquartile range before",
      measured: shift,
      limit: largestShift,
      against: runId,
      numbers: { ...Object.fromEntries([...named(after, ""), ...named(before, "_before")]), range_before: range },
    },
  ];
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

const cosineLimits = { warn: 0.98, hold: 0.9 };

/** Where vectors point as a whole, compared with the run that is most like this one. */
export function checkCentroid({ column, now, earlier }: ComparedColumn): CheckResult[] {
  let nearest: { runId: string; cosine: number } | undefined;
  for (const { runId, profile } of earlier) {
    const cosine =
      now.kind === "vectors" && profile.kind === "vectors" ? centroidCosine(profile.vectors, now.vectors) : Number.NaN;
    if (cosine > (nearest?.cosine ?? -2)) {
      nearest = { runId, cosine };
    }
  }
  if (nearest === undefined) {
    return [];
  }
  const { runId, cosine } = nearest;
  const level: Level = cosine < cosineLimits.hold ? "hold" : cosine < cosineLimits.warn ? "warn" : "pass";
  return [
    {
      check: "centroid",
      column,
      level,
      formula: "the cosine of the angle between the centroids of the directions",
      measured: cosine,
      limit: level === "hold" ? cosineLimits.hold : cosineLimits.warn,
      against: runId,
      numbers: { rows: now.rows },
    },
  ];
}
