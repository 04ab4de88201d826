import type { ColumnProfile } from "../../checks/profiles/column-profile.js";
import { compareProfiles } from "../../checks/verdicts/psi-checks.js";
import { leastPsiRows } from "../../checks/verdicts/psi.js";
import type { ColumnProfiles, RunProfile } from "../../checks/verdicts/run-profile.js";
import type { CheckName, CheckResult, Level } from "../../checks/verdicts/verdict.js";
import { coarseText } from "../../publish/compared-text.js";
import type { AttemptRecord } from "../attempt-record.js";
import type { RunReview } from "../run-review.js";

/** A column of the run, with the same column of earlier runs. */
export interface PageColumn {
  readonly name: string;
  readonly role: "output" | "feature";
  readonly now: ColumnProfile;
  /** The column in each earlier run, the latest last; undefined: that run has no such column, or its type differs. */
  readonly earlier: readonly (ColumnProfile | undefined)[];
  /** The column in each run of the small charts, the latest last; undefined: that run has no such column, or its type differs. */
  readonly history: readonly (ColumnProfile | undefined)[];
  /** The level of its worst check. */
  readonly level: Level;
  /** The levels of the checks that are about what each small chart shows. */
  readonly levels: ChartLevels;
  readonly drift: Drift | undefined;
  /** The classes and values that checks that did not pass name. */
  readonly failing: ReadonlySet<string>;
  /** A note that the column's PSI is coarse; undefined for features, and for outputs with fine bins. */
  readonly coarse: string | undefined;
}

interface ChartLevels {
  /** NULL and NaN. */
  readonly empty: Level;
  readonly median: Level;
  readonly psi: Level;
}

/** The drift of a column since the closest earlier run, or since several runs together. */
export interface Drift {
  readonly psi: number;
  readonly limit: number;
  /** The closest earlier run; undefined: the PSI is against several runs together, or against one that the page lacks. */
  readonly closest: RunProfile | undefined;
  /** How many runs together the column is compared with; undefined: with one. */
  readonly runsTogether: number | undefined;
}

/**
 * The outputs and features of a run; those with the worst results come first. Without a review, it returns the outputs
 * of this attempt.
 */
export function pageColumns(record: AttemptRecord): PageColumn[] {
  const { review } = record;
  const outputs = review?.profile.outputs ?? record.profile()?.columns ?? new Map<string, ColumnProfile>();
  const features = review?.profile.features ?? new Map<string, ColumnProfile>();
  const of = (role: PageColumn["role"], columns: ColumnProfiles): PageColumn[] =>
    [...columns].map(([name, now]) => {
      const results = resultsOf(review, { name, role });
      const inRuns = (runs: readonly RunProfile[] = []): PageColumn["earlier"] =>
        runs.map((run) => sameColumn(now, columnsOf(run, role).get(name)));
      return {
        name,
        role,
        now,
        earlier: inRuns(review?.earlier),
        history: inRuns(review === undefined ? [] : runsBefore(review)),
        level: worstOf(results),
        levels: {
          empty: levelOf(results, ["nulls", "nan"]),
          median: levelOf(results, ["quantiles"]),
          psi: levelOf(results, ["psi"]),
        },
        drift: driftOf(results, review?.earlier ?? []),
        failing: failingValues(results),
        coarse: role === "output" ? coarseOf(review, name) : undefined,
      };
    });
  return [...of("output", outputs), ...of("feature", features)].toSorted(
    (one, other) => rank(other) - rank(one) || (one.level === "pass" ? 0 : excess(other) - excess(one)),
  );
}

function coarseOf(review: RunReview | undefined, name: string): string | undefined {
  const found = review?.verdict?.verdict.coarse?.find(({ column }) => column === name);
  return found && coarseText(found, review?.reference);
}

function failingValues(results: readonly CheckResult[]): ReadonlySet<string> {
  const failed = results.filter(({ level }) => level !== "pass");
  return new Set(
    failed.flatMap(({ check, numbers }) =>
      check === "in"
        ? Object.keys(numbers)
        : [numbers["class"], numbers["value"]].flatMap((name) => (name === undefined ? [] : [String(name)])),
    ),
  );
}

/** Returns the results of a column. An output and a feature may have the same name. */
function resultsOf(review: RunReview | undefined, { name, role }: Pick<PageColumn, "name" | "role">): CheckResult[] {
  const { results = [] } = review?.verdict?.verdict ?? {};
  return results.filter(({ column, isFeature }) => column === name && (isFeature === true) === (role === "feature"));
}

/** Returns the published runs of the small charts; where they are not known, those that the run is compared with. */
export function runsBefore({ history, earlier, reference }: RunReview): readonly RunProfile[] {
  return history ?? (reference === undefined ? earlier : []);
}

function columnsOf(run: RunProfile, role: PageColumn["role"]): ColumnProfiles {
  return role === "output" ? run.outputs : run.features;
}

function sameColumn(now: ColumnProfile, before: ColumnProfile | undefined): ColumnProfile | undefined {
  return before?.type === now.type ? before : undefined;
}

const levels: readonly Level[] = ["pass", "warn", "hold"];

function worstOf(results: readonly CheckResult[]): Level {
  return levels.findLast((level) => results.some((result) => result.level === level)) ?? "pass";
}

/** The worst level of some checks. */
function levelOf(results: readonly CheckResult[], checks: readonly CheckName[]): Level {
  return worstOf(results.filter(({ check }) => checks.includes(check)));
}

/** The level of a check that is about the whole run. */
export function levelOfRun({ verdict }: RunReview, check: CheckName): Level {
  const { results = [] } = verdict?.verdict ?? {};
  return levelOf(
    results.filter(({ column }) => column === null),
    [check],
  );
}

function rank({ level }: PageColumn): number {
  return levels.indexOf(level);
}

function excess({ drift }: PageColumn): number {
  return drift === undefined ? -1 : drift.psi;
}

function driftOf(results: readonly CheckResult[], earlier: readonly RunProfile[]): Drift | undefined {
  const found = results.find(({ check }) => check === "psi");
  return found === undefined
    ? undefined
    : {
        psi: Number(found.measured),
        limit: Number(found.limit),
        closest: earlier.find(({ runId }) => runId === found.against),
        runsTogether: Number(found.numbers["runs_together"] ?? 0) || undefined,
      };
}

/**
 * The PSI of a column between two runs; undefined: there are too few rows, or the two distributions cannot be compared.
 */
export function psiBetween(before: ColumnProfile | undefined, now: ColumnProfile | undefined): number | undefined {
  if (before === undefined || now === undefined || Math.min(before.rows, now.rows) < leastPsiRows) {
    return undefined;
  }
  return compareProfiles(before, now)?.psi;
}

/** Rows of a column without a number or a value. */
export interface Empty {
  readonly rows: number;
  readonly nulls: number;
  readonly nan: number;
}

/** Counts the NULLs and NaNs of a column; of all rows, also if its values are those of a sample. */
export function emptyIn(profile: ColumnProfile): Empty {
  const { rows, nulls } = profile.all ?? profile;
  const numbers = profile.all?.numbers ?? (profile.kind === "numbers" ? profile.numbers : undefined);
  return { rows, nulls, nan: numbers?.nan ?? 0 };
}

/** Returns the share of NULL and NaN in a column; undefined: it has no rows. */
export function emptyShare(profile: ColumnProfile): number | undefined {
  const { rows, nulls, nan } = emptyIn(profile);
  return rows === 0 ? undefined : (nulls + nan) / rows;
}
