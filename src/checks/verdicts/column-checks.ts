import type { ColumnProfile } from "../profiles/column-profile.js";
import { mostFrequentRows } from "../profiles/rare-values.js";
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
const shareStep = 0.05;
/** Standard deviations of two counts that chance may add to it. */
const chance = 3;
/** So many rows that differed from the most frequent value are missed, were they due. */
const leastOthers = 20;

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

/** Whether all values are one, where they never were. */
export function checkConstant({ column, now, earlier }: ComparedColumn): CheckResult[] {
  const top = mostFrequent(now);
  if (top === undefined || now.rows === 0) {
    return [];
  }
  const shares = earlier.map(({ profile }) => (mostFrequent(profile) ?? profile.rows) / Math.max(profile.rows, 1));
  const usual = Math.max(...shares);
  const due = (1 - usual) * now.rows;
  return [
    {
      check: "constant",
      column,
      level: top === now.rows && due >= leastOthers ? "hold" : "pass",
      formula: `the share of the most frequent value; below 1 where ${leastOthers} other rows are due by its largest share before`,
      measured: top / now.rows,
      limit: 1,
      against: null,
      numbers: { rows: now.rows, rows_of_value: top, largest_share_before: usual },
    },
  ];
}

/** Rows of the most frequent value, or the most it can have, NULL and NaN being values. undefined: it is not known. */
function mostFrequent(profile: ColumnProfile): number | undefined {
  if (profile.kind === "numbers") {
    const { nan, finite, min, max, values } = profile.numbers;
    const most = min === max ? finite : values.kind === "few" ? mostFrequentRows(values) : 0;
    return Math.max(profile.nulls, nan, most);
  }
  if (profile.kind === "values") {
    const { values } = profile;
    return Math.max(profile.nulls, values.kind === "few" ? mostFrequentRows(values) : 0);
  }
  return profile.kind === "rows" ? profile.nulls : undefined;
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
