import type { PsiBin } from "./psi.js";

/** What the checks say of a run. Plain JSON: it is stored with the run, and each number in it can be derived from it. */
export interface Verdict {
  readonly outcome: "publish" | "hold";
  readonly runId: string;
  readonly date: string;
  /** The runs that it was compared with, the latest last; none: absolute checks only. */
  readonly baseline: readonly string[];
  /** No run of the baseline was made with this run's model, nor had it as the challenger. */
  readonly modelChanged: boolean;
  /** Runs of the baseline that had this run's model as the challenger: its predictions there are compared. */
  readonly asChallenger?: readonly string[];
  /** Outputs that are compared with those of an earlier model in these runs, because the challenger's are not known. */
  readonly ofEarlierModel?: readonly string[];
  readonly results: readonly CheckResult[];
  /** Results of classes and values beyond the first few of a column, which `results` lacks; absent: there are none. */
  readonly unlisted?: readonly UnlistedResults[];
  /** The drifts of the features that results name; absent: they name none. */
  readonly featureDrifts?: readonly FeatureDrift[];
  /** The sample that is too small for some checks of features; absent: there is none. */
  readonly fewSampled?: FewSampled;
  /** Columns that some checks do not compare: they have more values than are counted, or vectors that have no certain mean direction; absent: none. */
  readonly uncounted?: readonly UncountedColumn[];
  /** Outputs whose PSI can miss much; absent: there are none. */
  readonly coarse?: readonly CoarseColumn[];
}

/** How many rows the model read, and how many of them the profiles of features describe. */
export interface SampleSize {
  readonly rows: number;
  readonly sampled: number;
}

/** A sample that has few of many rows. `earlier`: the largest one of the earlier runs. */
export interface FewSampled extends SampleSize {
  readonly of: "run" | "earlier";
}

/** A column that some checks do not compare. `run`: whether this run is the reason, or earlier runs are. */
export interface UncountedColumn {
  readonly column: string;
  readonly checks: readonly CheckName[];
  readonly run: "this" | "earlier";
}

/** An output that has many rows in one wide bin of its histogram: a PSI does not tell them apart. */
export interface CoarseColumn {
  readonly column: string;
  /** Which run's rows these are: this one's, or the last one's. */
  readonly run: "this" | "earlier";
  /** The range of the bin, clipped to the smallest and largest value of the run. */
  readonly values: string;
  readonly rowsInBin: number;
  readonly rows: number;
}

/** Results of one check of a column, of the same level and cause as others in the verdict that matter more. */
export interface UnlistedResults extends Pick<CheckResult, "check" | "column" | "level" | "isFeature"> {
  readonly results: number;
}

/** A feature that moved since an earlier run. */
export interface MovedFeature {
  readonly column: string;
  readonly psi: number;
  /** The earlier run. */
  readonly against: string;
}

/** The PSI of a feature since an earlier run, by the formula of the check `psi`. */
export interface FeatureDrift {
  readonly column: string;
  readonly against: string;
  readonly psi: number;
  readonly numbers: { readonly rows: number; readonly rows_before: number };
  readonly bins: readonly PsiBin[];
}

/** The type of a column that is gone, in `measured` of the check `column`. */
export const missingType = "missing";

export type Level = "pass" | "warn" | "hold";

export interface CheckResult {
  readonly check: CheckName;
  /** The column, the slice and column, or null where it is about the run. */
  readonly column: string | null;
  readonly level: Level;
  /** How `measured` is made of `numbers` and `bins`, and which limit it is compared with. */
  readonly formula: string;
  readonly measured: number | string;
  readonly limit: number | string;
  /** The run whose numbers these are: the one that is most like this run. null: none, or several together. */
  readonly against: string | null;
  readonly numbers: Readonly<Record<string, number | string>>;
  /** Whether the column is one that the model reads. Default: it is an output, or the check is about the run. */
  readonly isFeature?: true;
  /**
   * For an output that did not pass, the feature that drifted most since the same run, if it explains the output's
   * drift. For `unexplained`, the feature that drifted most, if one did beyond chance.
   */
  readonly feature?: MovedFeature;
  /**
   * For an output that did not pass in a run with a new model: whether the model or the data are the cause. `previous`: what
   * the same check measures for the last run's model, `modelSha256`, which scored `rows` of this run's rows. `now`: the new
   * model, and all rows of this run.
   */
  readonly cause?: {
    readonly of: "model" | "data" | "both";
    readonly previous: number | string;
    readonly modelSha256: string;
    readonly rows: number;
    readonly now: { readonly modelSha256: string; readonly rows: number };
  };
  /** The two histograms. A verdict has those of all checks that did not pass, and of as many others as its size limit allows. */
  readonly bins?: readonly PsiBin[];
  /** Why a comparison that would hold only warns. */
  readonly lowered?: string;
  /** It only warns because `feature` explains it, as `lowered` says. */
  readonly isExplained?: true;
  /** It only warns because the run was expected to differ: later runs are not compared with this run. */
  readonly isExcused?: true;
}

export type CheckName =
  | "rows"
  | "rejects"
  | "column"
  | "constant"
  | "nulls"
  | "nan"
  | "zero_vectors"
  | "repeated_vectors"
  | "psi"
  | "quantiles"
  | "ranks"
  | "slow_drift"
  | "unexplained"
  | "stale"
  | "class"
  | "unseen_value"
  | "centroid"
  | "range"
  | "in"
  | "unique"
  | "sql";
