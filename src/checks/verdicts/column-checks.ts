import type { ColumnProfile } from "../profiles/column-profile.js";
import { repeatedShare } from "../profiles/vector-profile.js";
import type { ColumnProfiles, RunProfile } from "./run-profile.js";
import { type CountedRows, shareOf, informativeRuns, pooledNumbers, pooledText } from "./informative-runs.js";
import { type CheckName, type CheckResult, missingType } from "./verdict.js";

/** A run of the baseline, with its profile of the column that is checked. */
export interface EarlierColumn {
  readonly runId: string;
  /** The `checks.baseline` file that the profile was read from. Default: the profile comes from a run. */
  readonly file?: string | undefined;
  readonly profile: ColumnProfile;
}

/** A column of this run, and of the runs that it is compared with; at least one. */
export interface ComparedColumn {
  readonly column: string;
  readonly now: ColumnProfile;
  readonly earlier: readonly EarlierColumn[];
}

/** By how much the share of NULL, NaN and the like may rise. */
export const shareStep = 0.05;
/** Standard deviations of two counts that chance may add to it. */
const chance = 3;
/** A run with fewer rows, and with a smaller part of this run's rows, says nothing of shares. */
const fewRows = 50;
const smallPart = 0.25;

/** Whether a column of the last run is missing now, or is of another type. */
export function checkColumn(column: string, before: EarlierColumn, now: ColumnProfile | undefined): CheckResult[] {
  const type = now?.type ?? missingType;
  const level = type === before.profile.type ? "pass" : "hold";
  return [columnResult(column, before, { level, measured: type, limit: before.profile.type })];
}

/**
 * Warns of features that the last run did not have, or in another type, and of those that are gone: they are not compared.
 * Without profiles of features there is nothing to say.
 */
export function checkFeatureSet(now: ColumnProfiles, last: RunProfile): CheckResult[] {
  const { features: before } = last;
  if (now.size === 0 || before.size === 0) {
    return [];
  }
  return [...new Set([...before.keys(), ...now.keys()])].flatMap((column) => {
    const measured = now.get(column)?.type ?? missingType;
    const limit = before.get(column)?.type ?? missingType;
    const found = columnResult(column, last, { level: "warn", measured, limit });
    return measured === limit ? [] : [{ ...found, isFeature: true as const }];
  });
}

function columnResult(
  column: string,
  { runId, file }: Pick<EarlierColumn, "runId" | "file">,
  found: Pick<CheckResult, "level" | "measured" | "limit">,
): CheckResult {
  const formula = `the column's type, and that ${file === undefined ? "of the last run" : `in ${file}`}`;
  return { check: "column", column, formula, numbers: {}, against: runId, ...found };
}

/** Shares of NULL, NaN, zero vectors and such, which may not go up by 5 points beyond what chance makes. */
export function checkShares({ column, now, earlier }: ComparedColumn): CheckResult[] {
  const leastRows = Math.min(fewRows, now.rows * smallPart);
  const before = earlier.map(({ runId, profile }) => ({ runId, all: profile.rows, of: checkedRows(profile) }));
  return checkedRows(now).flatMap(({ check, rows }, index) => {
    const counted = before.map(({ runId, all, of }) => ({ runId, runs: 1, rows: of[index]?.rows ?? 0, all }));
    const informative = informativeRuns(counted, ({ all }) => all >= leastRows);
    const [largest] = informative.toSorted((one, other) => shareOf(other) - shareOf(one));
    return largest === undefined ? [] : shareResult({ check, column }, { rows, all: now.rows }, largest);
  });
}

function shareResult(
  { check, column }: Pick<CheckResult, "check" | "column">,
  { rows, all }: Pick<CountedRows, "rows" | "all">,
  largest: CountedRows,
): CheckResult {
  const share = rows / Math.max(all, 1);
  const both = (rows + largest.rows) / Math.max(all + largest.all, 1);
  const deviation = Math.sqrt(both * (1 - both) * (1 / Math.max(all, 1) + 1 / Math.max(largest.all, 1)));
  const limit = shareOf(largest) + shareStep + chance * deviation + 1 / Math.max(all, 1);
  return {
    check,
    column,
    level: share > limit ? (check === "repeated_vectors" ? "warn" : "hold") : "pass",
    formula: shareFormula,
    measured: share,
    limit,
    against: largest.runId,
    numbers: { rows: all, share_before: shareOf(largest), rows_before: largest.all, ...pooledNumbers(largest) },
  };
}

const shareFormula = `the share of rows; at most the largest before + ${shareStep} + ${chance} · sqrt(p (1 - p) (1 / rows before + 1 / rows)) + 1 / rows, p of both together; before: in the runs with at least ${fewRows} rows or ${smallPart} of these rows; ${pooledText}`;

/** How many rows of a column a check counts, such as those that are NULL. */
interface CheckedRows {
  readonly check: CheckName;
  readonly rows: number;
}

/** Returns the same checks in the same order for all profiles of one kind. */
function checkedRows(profile: ColumnProfile): readonly CheckedRows[] {
  const nulls: CheckedRows = { check: "nulls", rows: profile.nulls };
  if (profile.kind === "numbers") {
    return [nulls, { check: "nan", rows: profile.numbers.nan }];
  }
  return profile.kind === "vectors"
    ? [
        nulls,
        { check: "nan", rows: profile.vectors.notFinite },
        { check: "zero_vectors", rows: profile.vectors.zero },
        { check: "repeated_vectors", rows: repeatedShare(profile.vectors) * profile.rows },
      ]
    : [nulls];
}
