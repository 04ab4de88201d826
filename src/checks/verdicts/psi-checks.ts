import { type ColumnProfile, mergeProfiles, profileLimits } from "../profiles/column-profile.js";
import type { ComparedColumn, EarlierColumn } from "./column-checks.js";
import { binEdges, quantile } from "../profiles/histogram.js";
import type { NumberProfile } from "../profiles/number-profile.js";
import { manyNumbers } from "../profiles/value-counts.js";
import { alignNorms } from "./align/norms.js";
import { alignHistograms, edgeText } from "./align/numbers.js";
import { isWholeType } from "./known-values.js";
import { type Aligned, alignProfiles } from "./align/profiles.js";
import { type EntryBin, nameBins, type PsiBin, psi, psiBins, psiChance, psiLimit } from "./psi.js";
import type { CheckResult, CoarseColumn, Level } from "./verdict.js";

/** A PSI above `warn` warns, one above `hold` holds. */
export interface PsiLevels {
  readonly warn: number;
  readonly hold: number;
}

const psiFormula = `Σ (p - q) · ln(p / q) over the bins, p the share now and q before, each count + 0.5; limit max(wanted, (d + c · sqrt(2 d)) · (1 / rows before + 1 / rows)), d the number of bins - 1, c ${psiChance.one}, or ${psiChance.pooled} against several runs together`;

/** The PSI of a column between two profiles, and the bins that it was computed from. */
export interface Comparison {
  readonly psi: number;
  readonly bins: readonly EntryBin[];
  readonly aligned: Aligned;
}

/** How far a column has moved since an earlier run. */
export interface Drift extends Comparison {
  readonly runId: string;
  /** Rows of the earlier run. */
  readonly rows: number;
  /** Standard deviations that its limit is above what chance makes. */
  readonly chance: number;
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
    const excess = drift === undefined ? least : drift.psi / driftLimit(levels.warn, drift, now);
    if (excess < least) {
      [nearest, least] = [drift, excess];
    }
    if (least <= 1) {
      break; // one run like this is enough
    }
  }
  const pooled =
    (nearest === undefined || least <= 1) && now.rows < fewRows
      ? driftFrom(poolOf(earlier), now, psiChance.pooled)
      : undefined;
  if (pooled !== undefined && pooled.psi > driftLimit(levels.warn, pooled, now)) {
    const only = { warn: levels.warn, hold: Number.POSITIVE_INFINITY };
    const result = psiResult("psi", column, { now, drift: pooled, levels: only });
    return [{ ...result, against: null, numbers: { ...result.numbers, runs_together: earlier.length } }];
  }
  return nearest === undefined ? [] : [psiResult("psi", column, { now, drift: nearest, levels })];
}

/** With fewer, chance makes runs differ so much that a single one says little. */
export const fewRows = 1000;

/** Two checks of a column need its pool. */
const pools = new WeakMap<readonly EarlierColumn[], EarlierColumn>();

/** The profile of a column in all earlier runs, pooled. */
export function poolOf(earlier: readonly EarlierColumn[]): EarlierColumn {
  const pool = pools.get(earlier) ?? {
    runId: "", // of no single run
    profile: withoutNames(pooledProfile(earlier.map(({ profile }) => profile))),
  };
  pools.set(earlier, pool);
  return pool;
}

/** A number that is rare in each of several runs may have many rows in all of them; only the histogram counts these. */
function withoutNames(profile: ColumnProfile): ColumnProfile {
  if (
    profile.kind !== "numbers" ||
    profile.numbers.values.kind !== "few" ||
    profile.numbers.values.rare === undefined
  ) {
    return profile;
  }
  return { ...profile, numbers: { ...profile.numbers, values: manyNumbers } };
}

/** The profile of a column in several runs together; at least one. */
export function pooledProfile(profiles: readonly ColumnProfile[]): ColumnProfile {
  const limits = profileLimits(1);
  return profiles.reduce((one, other) => mergeProfiles(one, other, limits));
}

/** Compares a column with an earlier run; undefined: there are too few rows, or the two cannot be compared. */
export function driftFrom(
  { runId, profile }: EarlierColumn,
  now: ColumnProfile,
  chance = psiChance.one,
): Drift | undefined {
  if (psiLimit(0, 1, profile.rows, now.rows) === Number.POSITIVE_INFINITY) {
    return undefined;
  }
  const found = compareProfiles(profile, now);
  return found && { runId, rows: profile.rows, chance, ...found };
}

/**
 * Compares the distributions of a column in two profiles; of vectors, those of their norms. undefined: profiles of these kinds
 * have no distribution in common.
 */
export function compareProfiles(before: ColumnProfile, now: ColumnProfile): Comparison | undefined {
  const ways =
    before.kind === "vectors" && now.kind === "vectors"
      ? alignNorms(before, now)
      : [alignProfiles(before, now)].filter((one) => one !== undefined);
  let least: Comparison | undefined;
  for (const aligned of ways) {
    const bins = psiBins(aligned);
    const found = { psi: psi(bins), bins, aligned };
    least = least === undefined || found.psi < least.psi ? found : least;
  }
  return least;
}

/** The limit of a drift: the wanted one, or the PSI that chance can cause if that is larger. */
export function driftLimit(wanted: number, { rows, bins, chance }: Drift, now: ColumnProfile): number {
  return psiLimit(wanted, bins.length, rows, now.rows, chance);
}

/** The two histograms of a drift, for people. */
export function driftBins({ bins, aligned }: Drift): PsiBin[] {
  return nameBins(bins, aligned);
}

interface PsiCase {
  readonly now: ColumnProfile;
  readonly drift: Drift;
  readonly levels: PsiLevels;
}

function psiResult(check: "psi" | "slow_drift", column: string, { now, drift, levels }: PsiCase): CheckResult {
  const limits = { warn: driftLimit(levels.warn, drift, now), hold: driftLimit(levels.hold, drift, now) };
  const level: Level = drift.psi > limits.hold ? "hold" : drift.psi > limits.warn ? "warn" : "pass";
  return {
    check,
    column,
    level,
    formula: psiFormula,
    measured: drift.psi,
    limit: level === "hold" ? limits.hold : limits.warn,
    against: drift.runId,
    numbers: { rows: now.rows, rows_before: drift.rows, ...(now.kind === "vectors" && { of: "norms" }) },
    bins: driftBins(drift),
  };
}

/**
 * How far an output has moved from one of the model version's first published runs, where each step was small. Warns once, in
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
  const result = psiResult("slow_drift", column, { now, drift, levels: { warn, hold: Number.POSITIVE_INFINITY } });
  const known = result.level === "pass" ? 0 : earlier.filter(({ profile }) => isBeyond(first, profile, warn)).length;
  return [
    {
      ...result,
      level: known > 0 ? "pass" : result.level,
      formula: `${psiFormula}; passes where one of the last runs was above its limit, too`,
      numbers: { ...result.numbers, earlier_runs_above: known },
    },
  ];
}

function isBeyond(first: EarlierColumn, profile: ColumnProfile, warn: number): boolean {
  const drift = driftFrom(first, profile);
  return drift !== undefined && drift.psi > driftLimit(warn, drift, profile);
}

/** With so many rows in a bin, a PSI can miss much. */
const coarseShare = 0.2;
/** A bin is wide if it is at least this part of the range from p10 to p90. */
const wideBin = 0.1;

/**
 * The bin that makes the PSI of an output coarse: with a fifth of the rows of this run or the last one, and wide, so that it
 * may have many values. A run whose values are counted one by one has none. undefined: there is none.
 */
export function coarseBin({ column, now, earlier }: ComparedColumn): CoarseColumn | undefined {
  const before = earlier.at(-1)?.profile;
  if (before?.kind !== "numbers" || now.kind !== "numbers") {
    return undefined;
  }
  const bins = alignHistograms(before.numbers.histogram, now.numbers.histogram);
  const range = Math.max(rangeOf(before.numbers), rangeOf(now.numbers));
  const sides = [
    { run: "this", rows: now.rows, counts: bins.now, ...now.numbers },
    { run: "earlier", rows: before.rows, counts: bins.before, ...before.numbers },
  ] as const;
  const uncounted = sides.filter(({ values }) => values.kind !== "few");
  const found = uncounted.flatMap(({ run, rows, counts, min, max }) =>
    Array.from(counts, (rowsInBin, index): CoarseColumn[] => {
      const [low, high] = binEdges(bins.keys[index] as number, bins.shift);
      const isWide = low !== 0 && high !== 0 && high - low > Math.max(wideBin * range, isWholeType(now.type) ? 1 : 0);
      const values = rangeText([low, high], [min, max]);
      return isWide && rowsInBin > coarseShare * rows ? [{ column, run, values, rowsInBin, rows }] : [];
    }).flat(),
  );
  return found.toSorted((one, other) => other.rowsInBin / other.rows - one.rowsInBin / one.rows)[0];
}

/**
 * The range of a bin, clipped to the smallest and largest value of the run. The whole bin if both ends look the same at
 * six digits.
 */
function rangeText([low, high]: readonly [number, number], [min, max]: readonly [number, number]): string {
  const [from, to] = [edgeText(Math.max(low, min)), edgeText(Math.min(high, max))];
  return from === to ? `${edgeText(low)} to ${edgeText(high)}` : `${from} to ${to}`;
}

/** From p10 to p90. */
function rangeOf({ histogram }: NumberProfile): number {
  return quantile(histogram, 0.9) - quantile(histogram, 0.1);
}
