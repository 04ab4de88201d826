import type { CheckName, CheckResult, Level } from "../checks/verdicts/verdict.js";
import { moveText } from "./feature-text.js";
import { findingText } from "./finding-text.js";
import type { RunVerdict } from "./run-verdict.js";
import { shown } from "./shown-numbers.js";

/** Lines about features; of more, the others are named in one line. */
const mostFeatures = 10;

/** Findings about one column; of more, the others are counted. */
const mostFindings = 5;

/** What lines are made with. */
interface Known {
  /** The date of an earlier run that the result of a column is compared with. */
  readonly dateOf: (runId: string, column: string | null) => string;
  /** Features whose PSI has a line. */
  readonly moved: ReadonlySet<string | null>;
}

/**
 * The results of a level for people: first a line for each feature, the one that moved most before the others, then one
 * for each other column, and for each check of the run: "score: PSI 1.3 against 2026-11-20 (limit 0.25)".
 */
export function resultLines({ verdict, dates }: RunVerdict, level: Level): string[] {
  const asChallenger = new Set(verdict.asChallenger);
  const ofEarlierModel = new Set<string | null>(verdict.ofEarlierModel);
  const known: Known = {
    dateOf: (id, column) =>
      `${dates[id] ?? id}${asChallenger.has(id) && !ofEarlierModel.has(column) ? ", when it was the challenger" : ""}`,
    moved: new Set(verdict.results.filter((one) => isOfFeature(one) && hasMoved(one)).map(({ column }) => column)),
  };
  const held = level === "hold" ? new Set() : new Set(verdict.results.filter(holdsByPsi).map(({ column }) => column));
  const results = verdict.results.filter(
    (result) => result.level === level && !(drifts.has(result.check) && held.has(result.column)),
  );
  const features = featureGroups(results, level === "hold" ? [] : verdict.results);
  const others = groupBy(
    results.filter((result) => !isOfFeature(result)),
    ({ check, column }) => JSON.stringify(column === null ? [check] : [null, column]),
  );
  return [
    ...features.slice(0, mostFeatures).map((group) => featureLine(group, known)),
    ...(features.length > mostFeatures ? [moreFeatures(features.slice(mostFeatures))] : []),
    ...others.map((group) => columnLine(group, known)),
  ];
}

function isOfFeature({ isFeature }: CheckResult): boolean {
  return isFeature === true;
}

function hasMoved({ check, level }: CheckResult): boolean {
  return check === "psi" && level !== "pass";
}

/** Groups in the order of their first results. */
function groupBy(results: readonly CheckResult[], keyOf: (result: CheckResult) => string): CheckResult[][] {
  const groups = new Map<string, CheckResult[]>();
  for (const result of results) {
    const key = keyOf(result);
    groups.set(key, [...(groups.get(key) ?? []), result]);
  }
  return [...groups.values()];
}

/**
 * The results of each feature, its PSI first; the feature that moved most comes first. `others`: results among which those
 * that hold the run leave out their features, which another line names.
 */
function featureGroups(results: readonly CheckResult[], others: readonly CheckResult[]): CheckResult[][] {
  const held = new Set(others.filter((one) => isOfFeature(one) && one.level === "hold").map(({ column }) => column));
  const features = results.filter((one) => isOfFeature(one) && !held.has(one.column));
  return groupBy(features, ({ column }) => column ?? "")
    .map(byPsi)
    .toSorted(([one], [other]) => psiOf(other) - psiOf(one));
}

/** The PSI first. */
function byPsi(results: readonly CheckResult[]): CheckResult[] {
  return results.toSorted((one, other) => psiOf(other) - psiOf(one));
}

function psiOf(result: CheckResult | undefined): number {
  return result?.check === "psi" ? Number(result.measured) : -1;
}

/** Checks that say of a column only that its distribution moved, as its PSI does. */
const drifts: ReadonlySet<CheckName> = new Set<CheckName>(["quantiles", "slow_drift"]);

/** Checks of a feature that its PSI tells, too: its line names the shares that rose. */
const toldByPsi: ReadonlySet<CheckName> = new Set<CheckName>([...drifts, "nulls", "nan", "constant"]);

/** Whether the PSI of a column holds the run: a warning that it drifted says no more. */
function holdsByPsi({ check, level }: CheckResult): boolean {
  return check === "psi" && level === "hold";
}

/** The results of a feature in one line. Its PSI comes first, if there is one. */
function featureLine(group: readonly CheckResult[], known: Known): string {
  const [first] = group;
  const isTold = ({ check }: CheckResult): boolean => first?.check === "psi" && toldByPsi.has(check);
  const move = first?.check === "psi" ? moveText(first) : "";
  const names = new Set(group.filter(isTold).map(({ check }) => `\`${check}\``));
  const also = names.size === 0 ? "" : `; ${[...names].join(" and ")}, too`;
  const found = findingsText(
    group.filter((result) => !isTold(result)),
    known,
  );
  return `${first?.column}: ${move === "" ? "" : `${move}; `}${found}${also}`;
}

/** Names features that have no line. */
function moreFeatures(groups: readonly (readonly CheckResult[])[]): string {
  const names = groups.map(([first]) =>
    first?.check === "psi"
      ? `${first.column} (PSI ${shown(first.measured)})`
      : `${first?.column} (\`${first?.check}\`)`,
  );
  return `${names.length} more ${names.length === 1 ? "feature" : "features"}: ${names.join(", ")}; infer-batch stats shows their numbers`;
}

/** The results of a column that is no feature in one line, or that of a check of the run. */
function columnLine(group: readonly CheckResult[], known: Known): string {
  const column = group[0]?.column ?? null;
  return `${column === null ? "" : `${column}: `}${findingsText(byPsi(group), known)}`;
}

/** Findings about one column. What is the same for consecutive ones, such as their cause, comes once, after the last. */
function findingsText(results: readonly CheckResult[], known: Known): string {
  const told = results.slice(0, mostFindings);
  const texts = told.map((result, index) => {
    const next = told[index + 1];
    const isShared = next !== undefined && endOf(next) === endOf(result);
    return `${findingText(result, (runId) => known.dateOf(runId, result.column))}${isShared ? "" : endText(leaderOf(told, index), known)}`;
  });
  const left = results.slice(mostFindings);
  const checks = new Set(left.map(({ check }) => `\`${check}\``));
  return [...texts, ...(left.length === 0 ? [] : [`${left.length} more of ${[...checks].join(" and ")}`])].join("; ");
}

/** Tells results apart whose findings end with other words. */
function endOf({ feature, cause, lowered }: CheckResult): string {
  return JSON.stringify([feature?.column, cause?.of, lowered]);
}

/** The first of the consecutive results up to `index` that end with the same words. */
function leaderOf(results: readonly CheckResult[], index: number): CheckResult {
  const end = endOf(results[index] as CheckResult);
  const before = results.slice(0, index).findLastIndex((result) => endOf(result) !== end);
  return results[before + 1] as CheckResult;
}

/** Why a column did not pass, and why that only warns. */
function endText({ check, feature, cause, lowered }: CheckResult, known: Known): string {
  const model = cause === undefined ? "" : modelText(check, cause);
  const moved = feature === undefined || check === "unexplained" ? undefined : causeText(feature, known);
  const isLoweredByIt = moved !== undefined && lowered?.startsWith("feature ") === true;
  const why = lowered === undefined ? "" : `; only a warning: ${isLoweredByIt ? moved : lowered}`;
  return `${moved === undefined || isLoweredByIt ? "" : `; ${moved}`}${model}${why}`;
}

/** Names the feature that moved, with its PSI unless that has a line. */
function causeText({ column, psi, against }: NonNullable<CheckResult["feature"]>, { dateOf, moved }: Known): string {
  const since = against === undefined ? "" : ` against ${dateOf(against, column)}`;
  return `feature ${column} moved, too${moved.has(column) ? "" : `: PSI ${shown(psi)}${since}`}`;
}

/** Says whether the new model or the data are the cause, and what the previous model shows. */
function modelText(check: CheckName, { of, previous, rows }: NonNullable<CheckResult["cause"]>): string {
  const names = { model: "the new model", data: "the data", both: "the new model and the data" };
  const found =
    check === "psi" ? `has PSI ${shown(previous)}` : of === "model" ? "passes this check" : "does not pass it either";
  return `; caused by ${names[of]}: the previous model ${found} on ${shown(rows)} of these rows`;
}
