import { carriedColumns } from "../span-profile.js";
import { normsOf } from "./align/norms.js";
import { boundBins } from "./bound-bins.js";
import { boundValues } from "./bound-values.js";
import { checkCentroid, incomparableVectors } from "./centroid-check.js";
import { checkColumn, checkFeatureSet, checkShares, type ComparedColumn } from "./column-checks.js";
import { checkConstant } from "./constant-check.js";
import { checkUnexplained, lowerExplained, movesOf, nameCause, namedDrifts } from "./feature-causes.js";
import { featureResult } from "./feature-moves.js";
import { asPredictedBy, nameModelCause, outputsOfEarlierModel, type PreviousModel } from "./model-cause.js";
import { valueChanges } from "./one-value.js";
import { checkPsi, checkSlowDrift, coarseBin, type PsiLevels } from "./psi-checks.js";
import { checkQuantiles } from "./quantile-check.js";
import { checkRanks } from "./rank-check.js";
import { checkRejects, checkRows } from "./row-checks.js";
import {
  type Baseline,
  type CheckOptions,
  type ColumnProfiles,
  comparedRuns,
  hasColumns,
  latestRuns,
  type RunProfile,
} from "./run-profile.js";
import { findFewSampled } from "./sample-size.js";
import { checkStale } from "./stale-check.js";
import { checkClasses, checkUnseen, uncountedValues } from "./value-checks.js";
import { type CheckResult, missingType, type Verdict } from "./verdict.js";
import { checkWanted } from "./wanted-check.js";

const outputPsi = { warn: 0.1, hold: 0.25 };
const featureWarnPsi = 0.25;
const slicePsi = 0.25;
const sliceLimits = { slices: 50, rows: 1000 };
/** A smaller share of the usual rows, and a larger PSI, hold a run even if few runs are before it. */
const clearly = { rows: 0.25, psi: 1 };

export interface Judged {
  readonly run: RunProfile;
  /** Runs with earlier dates, the latest last, from four weeks on. */
  readonly baseline: Baseline;
  /** The first published run with this run's model that has enough rows, or else the first. */
  readonly first?: RunProfile | undefined;
  /** Results of checks that need more than profiles, and no earlier run. */
  readonly others?: readonly CheckResult[] | undefined;
  /**
   * The baseline is one profile that a person chose: it counts as much as 8 runs do, and its number of rows is not that of
   * a night. Default: it is that of earlier runs.
   */
  readonly isReference?: boolean;
  /** The last run's model on rows of this run; default: it was not asked. */
  readonly previous?: PreviousModel | undefined;
}

/** What the checks say of a run, compared with those before it. Depends on nothing else. */
export function judge(judged: Judged, options: CheckOptions): Verdict {
  const { run, previous } = judged;
  const baseline = asPredictedBy(run.modelSha256, judged.baseline);
  const [latest, published] = [latestRuns(baseline), latestRuns(judged.baseline)];
  const asChallenger = latest.filter((one, index) => one !== published[index]);
  const ofEarlierModel = outputsOfEarlierModel(run, published);
  const found = resultsOf(judged, options);
  const results =
    previous === undefined
      ? found
      : nameModelCause(found, resultsOfPrevious(judged, previous, options), { ...previous, now: run });
  const { listed, unlisted } = boundValues(results);
  const fewSampled = findFewSampled(run.features, latest);
  const outputs = compared(run.outputs, latest, (before) => before.outputs);
  const features = compared(run.features, latest, featuresOf);
  const incomparable = [...outputs, ...features].flatMap((column) => incomparableVectors(column) ?? []);
  const uncounted = [...outputs.flatMap((output) => uncountedValues(output) ?? []), ...incomparable];
  const coarse = outputs.flatMap((output) => coarseBin(output) ?? []);
  const drifts = namedDrifts(results, features);
  const holds = options.onFail === "hold" && results.some(({ level }) => level === "hold");
  return {
    outcome: holds ? "hold" : "publish",
    runId: run.runId,
    date: run.date,
    baseline: latest.map(({ runId }) => runId),
    modelChanged: latest.length > 0 && latest.every(({ modelSha256 }) => modelSha256 !== run.modelSha256),
    ...(asChallenger.length === 0 ? {} : { asChallenger: asChallenger.map(({ runId }) => runId) }),
    ...(ofEarlierModel.length === 0 ? {} : { ofEarlierModel }),
    results: boundBins(listed),
    ...(unlisted.length === 0 ? {} : { unlisted }),
    ...(drifts.length === 0 ? {} : { featureDrifts: drifts }),
    ...(fewSampled === undefined ? {} : { fewSampled }),
    ...(uncounted.length === 0 ? {} : { uncounted }),
    ...(coarse.length === 0 ? {} : { coarse }),
  };
}

function featuresOf({ features }: RunProfile): ColumnProfiles {
  return features;
}

/** All results, without the causes of those that did not pass. */
function resultsOf({ others = [], ...judged }: Judged, options: CheckOptions): CheckResult[] {
  const { run, isReference = false } = judged;
  const baseline = asPredictedBy(run.modelSha256, judged.baseline);
  const absolute = [...checkRejects(run, options), ...checkOutputsWanted(run, options), ...others];
  const rows = (isReference ? [] : checkRows(run, baseline, options)).map((result) =>
    lowerWhereDue(result, { run, runs: baseline.length, options }),
  );
  const runs = { latest: latestRuns(baseline), published: judged.baseline.findLast(hasColumns) };
  return [...absolute, ...rows, ...columnResults({ ...judged, baseline }, runs, options)];
}

/** What the checks say of the previous model's predictions of rows of this run. */
function resultsOfPrevious(
  { run, baseline, isReference }: Judged,
  { modelSha256, rows, outputs }: PreviousModel,
  options: CheckOptions,
): CheckResult[] {
  const predicted = { ...run, modelSha256, rows, outputs, slices: new Map() };
  return resultsOf({ run: predicted, baseline, ...(isReference === undefined ? {} : { isReference }) }, options);
}

function checkOutputsWanted({ outputs, carried }: RunProfile, options: CheckOptions): CheckResult[] {
  return [...outputs, ...carried].flatMap(([column, now]) =>
    checkWanted(column, now, options.outputs.get(column) ?? {}),
  );
}

function failed({ level }: CheckResult): boolean {
  return level !== "pass";
}

function asWarning(result: CheckResult): CheckResult {
  return { ...result, level: "warn" };
}

type Lower = (runs: number) => (result: CheckResult) => CheckResult;

/**
 * Checks the columns that are carried through: there are many, so that results that pass are left out. A column that
 * is gone only warns: planning fails if the input lacks a column, so the spec was changed. `lower`: turns results into
 * warnings if few earlier runs had the column with its type.
 */
function checkCarried(run: RunProfile, latest: Baseline, last: RunProfile, lower: Lower): CheckResult[] {
  const { carried } = run;
  const comparable = compared(carried, latest, (earlier) => earlier.carried);
  const before = [...last.carried].filter(([column]) => carried.has(column) || carried.size < carriedColumns);
  const gone = before.flatMap(([column, profile]) => {
    const alike = latest.filter((earlier) => earlier.carried.get(column)?.type === profile.type);
    return checkColumn(column, { runId: last.runId, file: last.file, profile }, carried.get(column))
      .map((result) => (result.measured === missingType ? asWarning(result) : result))
      .map(lower(alike.length));
  });
  const values = comparable.flatMap((column) => {
    const nulls = checkShares(column).filter(failed);
    return (nulls.length > 0 ? nulls : checkConstant(column)).map(lower(column.earlier.length));
  });
  return [...gone, ...values].filter(failed);
}

function columnResults(
  { run, baseline, first, isReference = false }: Judged,
  { latest, published }: { readonly latest: Baseline; readonly published: RunProfile | undefined },
  options: CheckOptions,
): CheckResult[] {
  const lower: Lower = (runs) => (result) =>
    lowerWhereDue(result, { run, runs: isReference ? comparedRuns : runs, options });
  const last = latest.at(-1);
  if (last === undefined || !hasColumns(run)) {
    return [];
  }
  const nights = baseline.filter(hasColumns).length;
  const columns = [...(published ?? last).outputs].flatMap(([column, profile]) =>
    checkColumn(column, { runId: last.runId, file: last.file, profile }, run.outputs.get(column)),
  );
  const features = compared(run.features, latest, featuresOf);
  const moves = movesOf(features, latest, run.modelSha256);
  const inputLevels = { warn: Math.min(featureWarnPsi, options.inputs.psi), hold: options.inputs.psi };
  const inputs = features.flatMap((column) =>
    featureResults(column, inputLevels)
      .map((result) => featureResult(result, ofNumbers(column)))
      .map(lower(Math.min(nights, column.earlier.length))),
  );
  // Vectors that point elsewhere explain an output, and their norms do not show it.
  const haveTurned = inputs.some(({ check, level }) => check === "centroid" && level !== "pass");
  const outputs = compared(run.outputs, latest, (before) => before.outputs).flatMap((column) => {
    const profile = first?.outputs.get(column.column);
    const hold = options.outputs.get(column.column)?.psi ?? outputPsi.hold;
    const levels = { warn: Math.min(outputPsi.warn, hold), hold };
    const unexplained = haveTurned ? [] : checkUnexplained(column, moves, levels.warn);
    // A feature that seems to explain the output may only differ because the earlier run was on a weekend.
    const causes = unexplained.some(failed) ? undefined : moves;
    return [
      checkClasses(column),
      checkUnseen(column, true),
      lowerExplained(checkCompared(column, levels), causes),
      unexplained,
      first === undefined || profile === undefined
        ? []
        : checkSlowDrift(column, { runId: first.runId, profile }, outputPsi.hold),
    ]
      .flat()
      .map((result) => nameCause(result, causes, last.runId));
  });
  const others = [...columns, ...outputs, ...sliceResults(run, latest), ...checkStale(run, last)];
  return [
    ...inputs,
    ...checkFeatureSet(run.features, last),
    ...checkCarried(run, latest, last, lower),
    ...others.map(lower(nights)),
  ];
}

/** Of a feature that has another value in each run, the values are not compared; one that has changed once only warns. */
function featureResults(column: ComparedColumn, levels: PsiLevels): CheckResult[] {
  const changes = valueChanges(column);
  return changes === "usually"
    ? checkCompared(column, undefined)
    : [
        ...checkUnseen(column, false),
        ...checkCompared(column, changes === "once" ? { ...levels, hold: Number.POSITIVE_INFINITY } : levels),
      ];
}

/** A column of vectors as one of their norms. */
function ofNumbers({ column, now, earlier }: ComparedColumn): ComparedColumn {
  const norms = earlier.map(({ runId, profile }) => ({ runId, profile: normsOf(profile) }));
  return { column, now: normsOf(now), earlier: norms };
}

/** Pairs each column of a run with the earlier columns of the same name and type. Columns without any are left out. */
function compared(
  now: ColumnProfiles,
  latest: Baseline,
  columnsOf: (run: RunProfile) => ColumnProfiles,
): ComparedColumn[] {
  return [...now].flatMap(([column, profile]) => {
    const earlier = latest.flatMap((run) => {
      const before = columnsOf(run).get(column);
      return before?.type === profile.type ? [{ runId: run.runId, file: run.file, profile: before }] : [];
    });
    return earlier.length === 0 ? [] : [{ column, now: profile, earlier }];
  });
}

function checkCompared(column: ComparedColumn, psi: PsiLevels | undefined): CheckResult[] {
  const moved = psi === undefined ? [] : checkPsi(column, psi);
  return [
    ...checkConstant(column),
    ...checkShares(column),
    ...moved,
    ...(psi === undefined || moved.some(failed) ? [] : checkRanks(column, psi.warn)),
    ...checkQuantiles(column),
    ...checkCentroid(column),
  ];
}

/** The outputs of slices with many rows; they only warn. */
function sliceResults({ slices }: RunProfile, latest: Baseline): CheckResult[] {
  return [...(slices ?? [])].slice(0, sliceLimits.slices).flatMap(([slice, now]) => {
    const large = [...now].filter(([, { rows }]) => rows >= sliceLimits.rows);
    return compared(new Map(large), latest, (run) => run.slices?.get(slice) ?? new Map()).flatMap((each) =>
      checkPsi({ ...each, column: `${slice}: ${each.column}` }, { warn: slicePsi, hold: Number.POSITIVE_INFINITY }),
    );
  });
}

interface Circumstances {
  readonly run: RunProfile;
  readonly runs: number;
  readonly options: CheckOptions;
}

/** A comparison that holds only warns while few runs are before this one, and on a date that is expected to differ. */
function lowerWhereDue(result: CheckResult, { run, runs, options }: Circumstances): CheckResult {
  if (result.level !== "hold") {
    return result;
  }
  const expected = options.expect.find(({ date }) => date === run.date);
  if (runs < comparedRuns && !isClear(result)) {
    const few = `only ${runs} of ${comparedRuns} runs to compare with`;
    const isLow = result.check === "rows" && Number(result.measured) < 1 && options.onFail === "hold";
    const still = `; below ${100 * clearly.rows}% it would be held`;
    return { ...result, level: "warn", lowered: isLow && expected === undefined ? few + still : few };
  }
  if (expected === undefined) {
    return result;
  }
  const { date, reason, asBaseline } = expected;
  const lowered = `expected on ${date}: ${reason}`;
  // With on_fail: warn, every run is a baseline.
  return asBaseline || options.onFail === "warn"
    ? { ...result, level: "warn", lowered }
    : { ...result, level: "warn", lowered: `${lowered}; later runs are not compared with this one`, isExcused: true };
}

function isClear({ check, measured, limit }: CheckResult): boolean {
  return (
    (check === "rows" && Number(measured) < clearly.rows) ||
    (check === "psi" && Number(measured) > Math.max(clearly.psi, Number(limit)))
  );
}
