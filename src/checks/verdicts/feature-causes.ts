import type { ColumnProfile } from "../profiles/column-profile.js";
import type { ComparedColumn, EarlierColumn } from "./column-checks.js";
import { valueChanges } from "./one-value.js";
import { normsOf } from "./align/norms.js";
import { certainUnitRatio, isNewUnit, timesSince } from "./feature-moves.js";
import { type Drift, driftBins, driftFrom, driftLimit, fewRows } from "./psi-checks.js";
import type { Baseline, RunProfile } from "./run-profile.js";
import type { CheckResult, FeatureDrift, MovedFeature } from "./verdict.js";

/** A PSI of an output this many times that of each feature has no cause in the features. */
const unexplained = 3;

/** How far the features of a run have moved since each earlier one. */
export interface FeatureMoves {
  /** Whether the earlier run has a feature of this run to compare. */
  readonly isKnown: (runId: string) => boolean;
  /** Whether an earlier run's output was predicted with this run's model; or any, if none was. */
  readonly isOfModel: (runId: string, output: string) => boolean;
  /** The feature that has moved most since an earlier run, beyond what chance makes; undefined: none has. */
  readonly mostSince: (runId: string) => MovedFeature | undefined;
  /** The feature that explains most why an output has moved this far since an earlier run; undefined: none does. */
  readonly explaining: (runId: string, outputPsi: number) => MovedFeature | undefined;
}

/** Each earlier run is compared once, and only if it is asked for. */
export function movesOf(features: readonly ComparedColumn[], latest: Baseline, modelSha256: string): FeatureMoves {
  const isOwn = ({ modelSha256: sha256, challenger }: RunProfile, output: string): boolean =>
    sha256 === modelSha256 && (challenger?.modelSha256 !== modelSha256 || challenger.outputs.has(output));
  const found = new Map<string, MovedFeature | undefined>();
  return {
    isKnown: (runId) => features.some(({ earlier }) => earlier.some((run) => run.runId === runId)),
    isOfModel(runId, output) {
      const own = latest.filter((run) => isOwn(run, output));
      return own.length === 0 || own.some((run) => run.runId === runId);
    },
    mostSince: (runId) => {
      if (!found.has(runId)) {
        found.set(runId, largestOf(driftsSince(features, runId)));
      }
      return found.get(runId);
    },
    explaining: (runId, outputPsi) => {
      const factors = new Map(features.map((feature) => [feature, factorSince(feature, runId)]));
      const others = features.filter((feature) => !isNewUnit(factors.get(feature) ?? 1));
      const causes = driftsSince(others, runId).filter(({ psi }) => unexplained * psi >= outputPsi);
      const isOtherUnit = [...factors.values()].some((times) => isNewUnit(times, certainUnitRatio));
      return isOtherUnit && !areOtherRows(causes, others) ? undefined : largestOf(causes);
    },
  };
}

/**
 * Whether an output moved though the features did not, compared with the run of the same model whose features are most like these:
 * another model, or other preprocessing. Warns, also where an earlier run's output looked like this one.
 */
export function checkUnexplained(
  { column, now, earlier }: ComparedColumn,
  moves: FeatureMoves,
  warn: number,
): CheckResult[] {
  const byFeatures = earlier
    .filter(({ runId }) => moves.isKnown(runId) && moves.isOfModel(runId, column))
    .map((before) => ({ before, feature: moves.mostSince(before.runId) }));
  if (byFeatures.length === 0 || (now.rows < fewRows && !hasMovedLately(earlier, now, warn))) {
    return [];
  }
  const alike = byFeatures.reduce((one, other) => ((other.feature?.psi ?? 0) < (one.feature?.psi ?? 0) ? other : one));
  const drift = driftFrom(alike.before, now);
  if (drift === undefined) {
    return [];
  }
  const { feature } = alike;
  const most = feature?.psi ?? 0;
  const limit = Math.max(driftLimit(warn, drift, now), unexplained * most);
  return [
    {
      check: "unexplained",
      column,
      level: drift.psi > limit ? "warn" : "pass",
      formula: `the output's PSI since the run whose features are most like these, of the runs with this model if there are any; at most ${unexplained} times the largest PSI of a feature since then that is beyond chance, and the limit of "psi"`,
      measured: drift.psi,
      limit,
      against: drift.runId,
      numbers: { rows: now.rows, rows_before: drift.rows, largest_feature_psi: most },
      ...(feature === undefined ? {} : { feature }),
      bins: driftBins(drift),
    },
  ];
}

/**
 * Since the last run, or since that of a week ago. With few rows, the run whose features are most like these differs by
 * chance, and its output may.
 */
function hasMovedLately(earlier: readonly EarlierColumn[], now: ColumnProfile, warn: number): boolean {
  return [earlier.at(-7), earlier.at(-1)].some((before) => {
    const moved = before === undefined ? undefined : driftFrom(before, now);
    return moved !== undefined && moved.psi > driftLimit(warn, moved, now);
  });
}

/** The features that have moved since an earlier run, beyond what chance makes. */
function driftsSince(features: readonly ComparedColumn[], runId: string): MovedFeature[] {
  return features
    .filter((feature) => valueChanges(feature) === undefined)
    .flatMap((feature) => {
      const found = driftSince(feature, runId);
      return found !== undefined && found.psi > driftLimit(0, found, feature.now)
        ? [{ column: feature.column, psi: found.psi, against: runId }]
        : [];
    });
}

function largestOf(moved: readonly MovedFeature[]): MovedFeature | undefined {
  return moved.reduce<MovedFeature | undefined>((most, one) => (one.psi > (most?.psi ?? 0) ? one : most), undefined);
}

/** One feature may be made from the one in another unit. If most have moved, the rows are other ones, as at the end of a month. */
function areOtherRows(moved: readonly MovedFeature[], features: readonly ComparedColumn[]): boolean {
  return moved.length >= 2 && 2 * moved.length > features.length;
}

/** The factor by which all numbers of a feature that moved since an earlier run were multiplied; 1: there is none. */
function factorSince(feature: ComparedColumn, runId: string): number {
  const { now, earlier } = feature;
  const before = earlier.find((run) => run.runId === runId);
  const drift = driftSince(feature, runId);
  return before === undefined || drift === undefined || drift.psi <= driftLimit(0, drift, now)
    ? 1
    : (timesSince(normsOf(now), normsOf(before.profile)).times ?? 1);
}

function driftSince({ now, earlier }: ComparedColumn, runId: string): Drift | undefined {
  const before = earlier.find((run) => run.runId === runId);
  return before === undefined ? undefined : driftFrom(before, now);
}

/** Above this multiple of its limit, the PSI of an output holds the run even if a feature explains it. */
export const explainedUpTo = 2;

/**
 * An output that moved with the features only warns, up to twice its limit: what came in was different. A feature in what may be
 * another unit does not explain it, and if it surely is another unit, nothing does but that most of the others moved.
 * @param moves undefined if the check `unexplained` failed: no feature then counts as a cause
 */
export function lowerExplained(results: readonly CheckResult[], moves: FeatureMoves | undefined): CheckResult[] {
  return results.map((result) => {
    const { check, level, measured, limit, against } = result;
    const moved = Number(measured);
    if (check !== "psi" || level !== "hold" || against === null || moved > explainedUpTo * Number(limit)) {
      return result;
    }
    const feature = moves?.explaining(against, moved);
    return feature === undefined
      ? result
      : { ...result, level: "warn", lowered: `feature ${feature.column} moved, too`, isExplained: true, feature };
  });
}

/** A feature with at least this PSI explains the drift of an output, even if the PSI of the output is higher. */
const explainingPsi = 0.25;

/**
 * Names the feature that explains why an output did not pass, if there is one.
 * @param moves undefined if the check `unexplained` failed: no feature then counts as a cause
 */
export function nameCause(result: CheckResult, moves: FeatureMoves | undefined, last: string): CheckResult {
  if (
    moves === undefined ||
    result.level === "pass" ||
    result.check === "unexplained" ||
    result.lowered !== undefined
  ) {
    return result;
  }
  const feature = moves.mostSince(result.against ?? last);
  // Only a PSI can be compared with that of a feature.
  const moved = result.check === "psi" ? Number(result.measured) : Number.POSITIVE_INFINITY;
  const explains = feature !== undefined && (feature.psi >= explainingPsi || unexplained * feature.psi >= moved);
  return explains ? { ...result, feature } : result;
}

/** The drifts of the features that results name, with their histograms; each once. */
export function namedDrifts(results: readonly CheckResult[], features: readonly ComparedColumn[]): FeatureDrift[] {
  const named = new Map(results.flatMap(({ feature }) => (feature === undefined ? [] : [[keyOf(feature), feature]])));
  return [...named.values()].flatMap(({ column, against }) => {
    const feature = features.find((one) => one.column === column);
    const drift = feature === undefined ? undefined : driftSince(feature, against);
    return feature === undefined || drift === undefined
      ? []
      : [
          {
            column,
            against: drift.runId,
            psi: drift.psi,
            numbers: { rows: feature.now.rows, rows_before: drift.rows },
            bins: driftBins(drift),
          },
        ];
  });
}

function keyOf({ column, against }: MovedFeature): string {
  return JSON.stringify([column, against]);
}
