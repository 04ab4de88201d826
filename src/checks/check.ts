import type { ColumnProfile } from "./profile/column.js";
import type { RunProfile } from "./profile/run-profile.js";

/**
 * What checks are made of; `judge` in checks.ts makes the verdict.
 *
 * A check: one sign that something is wrong with a night. Adding one is this in a file of `rules/`, a line in `checks.ts`, and a
 * line in docs/checks.md.
 *
 * Most compare by one rule: a night is suspicious if it is less like the recent nights than any of them was like the others,
 * by a clear factor. So what is usual for a column says how far it may move, and no number of rows does.
 */
export interface Check {
  readonly name: string;
  /** A result for each column that it judges, or one for the run. Default: what is decided by more than profiles. */
  judge?(night: JudgedNight): Result[];
  /** What it has found, without its column: "median 29.9, seen 990 to 1,040". */
  say(finding: Finding, told: Told): string;
  /** Whether a result needs no earlier night, so that no expectation excuses it. Default: it needs some. */
  isAbsolute?(result: Result): boolean;
  /** Checks whose results for the same column say less than a result of this one. Default: none. */
  readonly implies?: readonly string[];
  /** Whether what it has found may be a fault of the spec. Default: it is none. */
  mayBeSpec?(finding: Finding): boolean;
  /** The values of the column that it has found something about. Default: `value` and `gone` of its numbers. */
  valuesIn?(finding: Finding): string[];
  /** Whether it measures the value of a row, which is not shown to everybody. Default: it does not. */
  readonly measuresRow?: true;
}

export type Level = "pass" | "warn" | "hold";

/** A result of a check. Plain JSON: it is stored with the run. */
export interface Finding {
  readonly check: string;
  /** The column, the slice and column, or null where it is about the run. */
  readonly column: string | null;
  readonly level: Level;
  /** How far the run is from the nearest earlier one, or what else the check measures. */
  readonly measured: number | string;
  /** What it is compared with: above it, the run is suspicious. */
  readonly limit: number | string;
  /** The nearest earlier run. null: none, or several together. */
  readonly against: string | null;
  readonly numbers: Readonly<Record<string, number | string>>;
  /** Whether the column is one that the model reads. Default: it is an output, or the check is about the run. */
  readonly isFeature?: true;
  /** The least `factor` with which it would pass; absent: it passes, or no factor changes it. */
  readonly passesWith?: number;
  /** Why what would hold only warns. */
  readonly lowered?: string;
  /** It only warns because the run was expected to differ: later runs are not compared with this run. */
  readonly isExcused?: true;
  /** For an output of a new model: whether the model or the data are the cause. */
  readonly cause?: Cause;
}

export type Result = Omit<Finding, "check">;

/** `previous`: what the check measures for the last model, which scored `rows` of this run's rows. */
export interface Cause {
  readonly of: "model" | "data";
  readonly previous: number | string;
  readonly modelSha256: string;
  readonly rows: number;
}

/** What sentences are made with. */
export interface Told {
  /** The date of an earlier run, or the name of the file that the run is compared with. */
  readonly dateOf: (runId: string) => string;
}

/** What the checks say of a run. Plain JSON: it is stored with the run. */
export interface Verdict {
  readonly outcome: "publish" | "hold";
  readonly runId: string;
  readonly date: string;
  /** The runs that it was compared with, the latest last; none: absolute checks only. */
  readonly baseline: readonly string[];
  /** How many earlier nights are known; from 14 on, the rule is as strict as it gets. */
  readonly known: number;
  /** No run of the baseline was made with this run's model. */
  readonly modelChanged: boolean;
  readonly results: readonly Finding[];
  /** Columns that only grow, such as ids and times: they are not compared. */
  readonly growing: readonly string[];
}

/** What a user may set. Shares are of rows, 0 to 1. */
export interface Limits {
  readonly onFail: "hold" | "warn";
  readonly factor: number;
  readonly rejects: number;
  readonly outputs: ReadonlyMap<string, OutputLimits>;
  readonly inputs: ReadonlyMap<string, ColumnLimits>;
  /** Why the run is expected to differ: what would hold then only warns. `asBaseline`: later runs are compared with it anyway. */
  readonly expected?: { readonly reason: string; readonly asBaseline: boolean } | undefined;
}

export interface ColumnLimits {
  /** Infinite for a column that is ignored. */
  readonly factor?: number | undefined;
}

export interface OutputLimits extends ColumnLimits {
  /** The range of the finite values; both ends belong to it. */
  readonly range?: readonly [min: number, max: number] | undefined;
  readonly in?: readonly string[] | undefined;
  readonly nulls?: number | undefined;
}

/** `checks.factor`, unless the spec says otherwise. */
export const usualFactor = 4;

/** Those of `checks: {}`. */
export const defaultLimits: Limits = {
  onFail: "hold",
  factor: usualFactor,
  rejects: 0.01,
  outputs: new Map(),
  inputs: new Map(),
};

/** What a run is compared with. */
export interface Earlier {
  /** The last runs, the latest last; or the run of the file of `checks.baseline`. */
  readonly nights: readonly RunProfile[];
  /** The runs before these, the latest last. */
  readonly older: readonly RunProfile[];
  /** How many of the last runs there are since the last long gap, up to 14; those before it count as one until then. */
  readonly known: number;
  /** It is a file that a person named, whose run stands for all. */
  readonly isFile: boolean;
}

export interface JudgedNight {
  readonly run: RunProfile;
  readonly earlier: Earlier;
  readonly limits: Limits;
  /** The columns that are compared: outputs, features and slices, without those that only grow or are ignored. */
  readonly columns: readonly ComparedColumn[];
}

/** A column of the run that is judged, and of the earlier runs that have it with the same type. */
export interface ComparedColumn {
  readonly name: string;
  readonly role: "output" | "carried" | "feature" | "slice";
  readonly now: ColumnProfile;
  readonly nights: readonly NightColumn[];
  /** In the runs before these. */
  readonly older: readonly NightColumn[];
  readonly factor: number;
}

export interface NightColumn {
  readonly run: RunProfile;
  readonly column: ColumnProfile;
}

/** The distance of a run to the nearest of the earlier ones, and the largest that one of these has to its nearest. */
export interface Nearness {
  readonly near: number;
  readonly usual: number;
  readonly nearest: RunProfile;
}

/**
 * An approved run is near to others, but its own distance is not what is usual. undefined: no earlier run has a value.
 */
export function nearness<T>(
  now: T,
  earlier: readonly { readonly run: RunProfile; readonly of: T }[],
  distance: (left: T, right: T) => number,
): Nearness | undefined {
  const [first] = earlier;
  if (first === undefined) {
    return undefined;
  }

  const distances = earlier.map(({ of }) => distance(now, of));
  const near = Math.min(...distances);
  const nearest = (earlier[distances.indexOf(near)] ?? first).run;

  const own = earlier.map(() => Number.POSITIVE_INFINITY);
  for (const [index, { of }] of earlier.entries()) {
    for (let before = 0; before < index; before += 1) {
      const between = distance((earlier[before] as { readonly of: T }).of, of);
      own[index] = Math.min(own[index] as number, between);
      own[before] = Math.min(own[before] as number, between);
    }
  }
  const usual = own.filter((far, index) => Number.isFinite(far) && earlier[index]?.run.isApproved !== true);
  return { near, usual: Math.max(0, ...usual), nearest };
}

export function apart(left: number, right: number): number {
  return Math.abs(left - right);
}

/** Distances that are never suspicious at the usual factor: with 14 earlier runs, and with fewer. */
export interface Least {
  readonly usually: number;
  readonly first: number;
}

/** Earlier runs from which on the rule is as strict as it gets. */
export const enoughNights = 14;
/** With fewer rows, a run is never held by a comparison. */
export const leastRows = 100;

/** The distance above which a run is suspicious. @param factor how many times as far as usual it may be */
export function limitFor(
  usual: number,
  least: Least,
  { factor, earlier }: { readonly factor: number; readonly earlier: Earlier },
): number {
  const isFirst = earlier.known < enoughNights;
  const scale = isFirst && !earlier.isFile ? 1 + 7 / Math.max(1, earlier.known) : 1;
  return factor * Math.max(scale * usual, (isFirst ? least.first : least.usually) / usualFactor);
}

/** With one earlier run, or few rows, it only warns. @param mayHold whether it is one that holds a run */
export function levelOf(
  isSuspicious: boolean,
  { run, earlier }: { readonly run: Pick<RunProfile, "rows" | "rejected">; readonly earlier: Earlier },
  mayHold = true,
): Pick<Finding, "level" | "lowered"> {
  if (!isSuspicious || !mayHold) {
    return { level: isSuspicious ? "warn" : "pass" };
  }
  const lowered =
    earlier.known < 2 && !earlier.isFile
      ? earlier.known === 0
        ? "no earlier night is known"
        : "only 1 night is known"
      : sizeOf(run) < leastRows
        ? `fewer than ${leastRows} rows`
        : undefined;
  return lowered === undefined ? { level: "hold" } : { level: "warn", lowered };
}

export function sizeOf({ rows, rejected }: Pick<RunProfile, "rows" | "rejected">): number {
  return rows + rejected;
}

interface Distance {
  readonly near: number;
  /** The largest distance that an earlier run has. */
  readonly usual: number;
  /** undefined: the distance is to several together. */
  readonly nearest?: RunProfile | undefined;
}

interface Comparison {
  readonly least: Least;
  /** Chance alone makes such a distance. */
  readonly byChance?: number;
  readonly mayHold?: boolean;
  readonly numbers: Finding["numbers"];
  /** What sentences say of a run that does not pass. */
  readonly facts?: () => Finding["numbers"];
}

/** The result of a comparison by the rule, of a column or of the run. */
export function compared(
  night: JudgedNight,
  column: ComparedColumn | null,
  { near, usual, nearest, least, byChance = 0, mayHold, numbers, facts }: Distance & Comparison,
): Result {
  const { factor } = column ?? night.limits;
  const ofFactor = limitFor(usual, least, { factor: 1, earlier: night.earlier });
  const limit = Math.max(ofFactor * factor, byChance);
  return {
    ...(column === null ? { column } : aboutColumn(column)),
    ...levelOf(near > limit, night, mayHold),
    measured: near,
    limit,
    against: nearest?.runId ?? null,
    numbers: { ...numbers, ...(near > limit ? facts?.() : {}) },
    ...(near > limit ? { passesWith: near / ofFactor } : {}),
  };
}

/** How far a result is, in times of what is allowed; 0: it has no distance. */
export function timesLimit({ measured, limit }: Pick<Finding, "measured" | "limit">): number {
  return typeof measured === "number" && typeof limit === "number" && limit > 0 ? measured / limit : 0;
}

/** What a result is about: an output and a feature may have the same name. */
export function roleOf({ column, isFeature }: Pick<Finding, "column" | "isFeature">): "run" | "output" | "feature" {
  return isFeature === true ? "feature" : column === null ? "run" : "output";
}

/** The parts of a result that are about a column. */
export function aboutColumn({
  name,
  role,
}: Pick<ComparedColumn, "name" | "role">): Pick<Finding, "column" | "isFeature"> {
  return role === "feature" ? { column: name, isFeature: true } : { column: name };
}

/** So that a month's end is there twice; and those before these, which tell of a slow drift. */
export const [comparedNights, olderNights] = [35, 28];
