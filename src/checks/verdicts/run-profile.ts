import type { ColumnProfile } from "../profiles/column-profile.js";

/** What checks know of a run: its counts, and a profile of each column. */
export interface RunProfile {
  readonly runId: string;
  /** The `checks.baseline` file that the profile was read from. Default: the profile comes from a run. */
  readonly file?: string | undefined;
  /** The run's logical date, "2026-11-23". */
  readonly date: string;
  readonly modelSha256: string;
  /** Rows that were scored. */
  readonly rows: number;
  readonly rejected: number;
  /** Rows that `input.where` left out; undefined: it is not known. */
  readonly filtered?: number | undefined;
  /** The predicted columns. */
  readonly outputs: ColumnProfiles;
  /** The rows and NULLs of the columns that are carried through. */
  readonly carried: ColumnProfiles;
  readonly features: ColumnProfiles;
  /** The outputs of the rows that have one value of a column, by "country=FR". */
  readonly slices?: ReadonlyMap<string, ColumnProfiles> | undefined;
  /** The model as the plan names it, and its version. */
  readonly model: { readonly uri: string; readonly version?: string | undefined };
  /** The outputs of the run's challenger that can be compared; absent: it had none. */
  readonly challenger?: { readonly modelSha256: string; readonly outputs: ColumnProfiles };
}

/** By the column's name. */
export type ColumnProfiles = ReadonlyMap<string, ColumnProfile>;

/** Thresholds of the checks. Shares are of rows, 0 to 1. */
export interface CheckOptions {
  readonly onFail: "hold" | "warn";
  /** Of the rows that are usual on this weekday. */
  readonly rows: { readonly min: number; readonly max: number };
  readonly rejects: number;
  readonly outputs: ReadonlyMap<string, OutputOptions>;
  /** A feature whose PSI is above this holds. */
  readonly inputs: { readonly psi: number };
  /** Dates on which comparisons only warn. `asBaseline`: later runs are compared with such a run anyway. */
  readonly expect: readonly { readonly date: string; readonly reason: string; readonly asBaseline: boolean }[];
}

export interface OutputOptions {
  /** The range of the finite values; both ends belong to it. */
  readonly range?: readonly [min: number, max: number];
  readonly in?: readonly string[];
  readonly nulls?: number;
  readonly psi?: number;
}

/** Those of `checks: {}`. docs/performance.md says how often they hold simulated runs. */
export const defaultChecks: CheckOptions = {
  onFail: "hold",
  rows: { min: 0.7, max: 3 },
  rejects: 0.01,
  outputs: new Map(),
  inputs: { psi: 1 },
  expect: [],
};

/** Published runs of the series with earlier dates, the latest last. */
export type Baseline = readonly RunProfile[];

/** How many of the latest runs most checks compare with. */
export const comparedRuns = 8;

/** The runs that columns are compared with. */
export function latestRuns(baseline: Baseline): Baseline {
  return baseline.filter(hasColumns).slice(-comparedRuns);
}

/** Whether a run has profiles of columns: one without rows may have none. */
export function hasColumns(run: RunProfile): boolean {
  return run.rows > 0 || run.outputs.size > 0; // columns that are not needed are not parsed
}
