import type { ColumnProfile } from "../profiles/column-profile.js";
import { repeatedShare } from "../profiles/vector-profile.js";
import type { ColumnProfiles, RunProfile } from "./run-profile.js";
import { type CheckName, type CheckResult, missingType } from "./verdict.js";

/** A run of the baseline, with its profile of the column that is checked. */
export interface EarlierColumn {
  readonly runId: string;
  readonly profile: ColumnProfile;
}

/** A column of this run, and of the runs that it is compared with; at least one. */
export interface ComparedColumn {
  readonly column: string;
  readonly now: ColumnProfile;
  readonly earlier: readonly EarlierColumn[];
}

/** By so much the share of NULL, NaN and such may go up. */
export const shareStep = 0.05;
/** Standard deviations of two counts that chance may add to it. */
const chance = 3;

/** Whether a column of the last run is missing now, or is of another type. */
export function checkColumn(column: string, before: EarlierColumn, now: ColumnProfile | undefined): CheckResult[] {
  const type = now?.type ?? missingType;
  const level = type === before.profile.type ? "pass" : "hold";
  return [columnResult(column, { level, measured: type, limit: before.profile.type, against: before.runId })];
}

/**
 * Warns of features that the last run did not have, or in another type, and of those that are gone: they are not compared.
 * Without profiles of features there is nothing to say.
 */
export function checkFeatureSet(now: ColumnProfiles, { runId, features: before }: RunProfile): CheckResult[] {
  if (now.size === 0 || before.size === 0) {
    return [];
  }
  return [...new Set([...before.keys(), ...now.keys()])].flatMap((column) => {
    const measured = now.get(column)?.type ?? missingType;
    const limit = before.get(column)?.type ?? missingType;
    const found = columnResult(column, { level: "warn", measured, limit, against: runId });
    return measured === limit ? [] : [{ ...found, isFeature: true as const }];
  });
}

function columnResult(
  column: string,
  found: Pick<CheckResult, "level" | "measured" | "limit" | "against">,
): CheckResult {
  return { check: "column", column, formula: "the column's type, and that of the last run", numbers: {}, ...found };
}

/** Shares of NULL, NaN, zero vectors and such, which may not go up by 5 points beyond what chance makes. */
export function checkShares(compared: ComparedColumn): CheckResult[] {
  const { column, now } = compared;
  return sharesOf(now).map(({ check, share }, index) => {
    const before = compared.earlier.map(({ runId, profile }) => ({
      runId,
      rows: profile.rows,
      share: sharesOf(profile)[index]?.share ?? 0,
    }));
    const largest = before.reduce((one, other) => (other.share > one.share ? other : one));
    const both = (share * now.rows + largest.share * largest.rows) / Math.max(now.rows + largest.rows, 1);
    const deviation = Math.sqrt(both * (1 - both) * (1 / Math.max(now.rows, 1) + 1 / Math.max(largest.rows, 1)));
    const limit = largest.share + shareStep + chance * deviation;
    return {
      check,
      column,
      level: share > limit ? (check === "repeated_vectors" ? "warn" : "hold") : "pass",
      formula: `the share of rows; at most the largest before + ${shareStep} + ${chance} · sqrt(p (1 - p) (1 / rows before + 1 / rows)), p of both together`,
      measured: share,
      limit,
      against: largest.runId,
      numbers: { rows: now.rows, share_before: largest.share, rows_before: largest.rows },
    };
  });
}

interface Share {
  readonly check: CheckName;
  readonly share: number;
}

/** For a kind of profile always the same ones, in one order. */
function sharesOf(profile: ColumnProfile): readonly Share[] {
  const of = (count: number): number => (count === 0 ? 0 : count / profile.rows);
  const nulls: Share = { check: "nulls", share: of(profile.nulls) };
  if (profile.kind === "numbers") {
    return [nulls, { check: "nan", share: of(profile.numbers.nan) }];
  }
  return profile.kind === "vectors"
    ? [
        nulls,
        { check: "nan", share: of(profile.vectors.notFinite) },
        { check: "zero_vectors", share: of(profile.vectors.zero) },
        { check: "repeated_vectors", share: repeatedShare(profile.vectors) },
      ]
    : [nulls];
}
