import { knownValues } from "./known-values.js";
import type { Baseline, ColumnProfiles, RunProfile } from "./run-profile.js";
import type { CheckName, CheckResult, Verdict } from "./verdict.js";

/** The predictions of the last run's model for rows of this run. */
export interface PreviousModel {
  readonly modelSha256: string;
  /** The rows of this run that it scored: all, or a sample. */
  readonly rows: number;
  readonly outputs: ColumnProfiles;
}

/** Checks of an output's values: the model or the data can be the cause if they do not pass. */
const ofValues: ReadonlySet<CheckName> = new Set<CheckName>([
  "constant",
  "nulls",
  "nan",
  "zero_vectors",
  "repeated_vectors",
  "psi",
  "quantiles",
  "ranks",
  "unexplained",
  "class",
  "unseen_value",
  "centroid",
  "range",
  "in",
]);

/** Checks that have a result for some values only. */
const ofSomeValues: ReadonlySet<CheckName> = new Set<CheckName>(["class", "unseen_value"]);
/** If a value had so many rows in a sample, fewer than the five that are counted would be no chance. */
const leastDue = 20;

function isOfOutput({ check, level, isFeature }: CheckResult): boolean {
  return level !== "pass" && isFeature !== true && ofValues.has(check);
}

/** Whether an output of a new model did not pass, so that the model of the last run can tell the cause. */
export function asksForPrevious({ modelChanged, ofEarlierModel = [], results }: Verdict): boolean {
  return results.some(
    (result) =>
      isOfOutput(result) && (modelChanged || (result.column !== null && ofEarlierModel.includes(result.column))),
  );
}

/**
 * Earlier runs with the outputs that this run's model predicted there: where it was the challenger, its predictions take
 * the place of the published ones. Outputs whose distribution is not known of the challenger stay as they were published.
 */
export function asPredictedBy(modelSha256: string, baseline: Baseline): RunProfile[] {
  return baseline.map((run) => {
    const { challenger } = run;
    return run.modelSha256 === modelSha256 || challenger?.modelSha256 !== modelSha256
      ? run
      : { ...run, modelSha256, outputs: new Map([...run.outputs, ...challenger.outputs]), slices: new Map() };
  });
}

/**
 * Outputs that earlier runs have from an earlier model alone, although this run's model was their challenger. None, once a
 * run of this model is published.
 */
export function outputsOfEarlierModel({ modelSha256, outputs }: RunProfile, baseline: Baseline): string[] {
  if (baseline.some((run) => run.modelSha256 === modelSha256)) {
    return [];
  }
  const asChallenger = baseline.filter(({ challenger }) => challenger?.modelSha256 === modelSha256);
  return [...outputs.keys()].filter((name) =>
    asChallenger.some(({ challenger }) => challenger?.outputs.has(name) === false),
  );
}

/** A PSI of the previous model of at least this share says that the data alone explain the drift. */
const mostOf = 0.5;

/**
 * Says of each output that did not pass whether the new model or the data are the cause. `others`: the results of the same
 * checks for the previous model's predictions of rows of this run.
 */
export function nameModelCause(
  results: readonly CheckResult[],
  others: readonly CheckResult[],
  { now, ...previous }: PreviousModel & { readonly now: RunProfile },
): CheckResult[] {
  const { modelSha256, rows } = previous;
  const about = { modelSha256, rows, now: { modelSha256: now.modelSha256, rows: now.rows } };
  const known = new Map(others.map((result) => [keyOf(result), result]));
  return results.map((result) => {
    const other = known.get(keyOf(result));
    if (!isOfOutput(result) || (other === undefined && !lacksValue(previous, result))) {
      return result;
    }
    const of = causeOf(result, other);
    return { ...result, cause: { of, previous: other?.measured ?? "pass", ...about } };
  });
}

/**
 * Whether a new value has no result for the previous model because that does not predict it. A class that has none was not
 * checked: too few of its rows were due in the sample.
 */
function lacksValue({ rows, outputs }: PreviousModel, { check, column, measured, numbers }: CheckResult): boolean {
  const profile = outputs.get(column ?? "");
  return (
    check === "unseen_value" &&
    profile !== undefined &&
    knownValues(profile)?.isCounted === true &&
    (rows === numbers["rows"] || Number(measured) * rows >= leastDue)
  );
}

function causeOf(result: CheckResult, other: CheckResult | undefined): "model" | "data" | "both" {
  if (other === undefined || other.level === "pass") {
    return "model";
  }
  return result.check === "psi" && Number(other.measured) < mostOf * Number(result.measured) ? "both" : "data";
}

/** The value that a result is of comes in: its name, or the bin of values that have none. */
function keyOf({ check, column, formula, numbers }: CheckResult): string {
  const of = ofSomeValues.has(check) ? [numbers["class"], numbers["value"], numbers["bin"]] : [];
  return JSON.stringify([check, column, formula, ...of]);
}
