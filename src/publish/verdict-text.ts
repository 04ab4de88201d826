import { explainedUpTo } from "../checks/verdicts/feature-causes.js";
import type { CheckName, CheckResult, Level, UnlistedResults, Verdict } from "../checks/verdicts/verdict.js";
import { printable } from "../util/printable.js";
import { columnKey, moveText, psiOf } from "./feature-text.js";
import { findingText, modelText } from "./finding-text.js";
import { comparedFile, type RunVerdict } from "./run-verdict.js";
import { shown, withSeparators } from "./shown-numbers.js";

/** Lines about features; of more, the others are named in one line. */
const mostFeatures = 10;

/** Findings about one column; of more, the others are counted. */
const mostFindings = 5;

/** What lines are made with. */
interface Known {
  /** The date of an earlier run that the result of a column is compared with, or the name of a file. */
  readonly dateOf: (runId: string, column: string | null) => string;
  /** The file that the run is compared with; undefined: it is compared with earlier runs. */
  readonly file: string | undefined;
  /** Features whose PSI has a line. */
  readonly moved: ReadonlySet<string | null>;
  /** Outputs that moved although no feature did. */
  readonly unexplained: ReadonlySet<string | null>;
  /** Results that the verdict only counts. */
  readonly unlisted: readonly UnlistedResults[];
  /** The result whose line has the reason in `expect`; undefined: no line has one. */
  readonly withReason: CheckResult | undefined;
}

/**
 * The results of a level for people: first a line for each feature, the one that moved most before the others, then one
 * for each other column, and for each check of the run: "score: PSI 1.3 against 2026-11-20 (limit 0.25)". Of the lines of a
 * run that `expect` names, only the first has the reason. Names of columns and values may contain anything, such as the end
 * of a line.
 */
export function resultLines({ verdict, dates, thresholds }: RunVerdict, level: Level): string[] {
  const file = comparedFile({ thresholds });
  const asChallenger = new Set(verdict.asChallenger);
  const ofEarlierModel = new Set<string | null>(verdict.ofEarlierModel);
  const results = resultsToList(verdict.results, level);
  const features = featureGroups(results.filter(isOfFeature));
  const others = groupBy(
    results.filter((result) => !isOfFeature(result)),
    ({ check, column }) => JSON.stringify(column === null ? [check] : [null, column]),
  ).map(byPsi);
  const known: Known = {
    dateOf: (id, column) =>
      `${dates[id] ?? id}${asChallenger.has(id) && !ofEarlierModel.has(column) ? ", when it was the challenger" : ""}`,
    file,
    moved: new Set(verdict.results.filter((one) => isOfFeature(one) && hasMoved(one)).map(({ column }) => column)),
    unexplained: new Set(verdict.results.filter(isUnexplained).map(({ column }) => column)),
    unlisted: verdict.unlisted ?? [],
    withReason: [...features.slice(0, mostFeatures), ...others].flatMap(listedFindings).find(isExpected),
  };
  return [
    ...features.slice(0, mostFeatures).map((group) => featureLine(group, known)),
    ...(features.length > mostFeatures ? [moreFeatures(features.slice(mostFeatures))] : []),
    ...others.map((group) => columnLine(group, known)),
  ].map(printable);
}

/** The number of results of a level, with those that the verdict only counts; default: of all levels. */
export function countResults({ results, unlisted = [] }: Verdict, level?: Level): number {
  const isMeant = (one: { readonly level: Level }): boolean => level === undefined || one.level === level;
  return unlisted.filter(isMeant).reduce((sum, one) => sum + one.results, results.filter(isMeant).length);
}

/** Counts the results of a verdict: "67 checks passed", "64 checks passed, 3 warned", "30 checks passed, 3 failed". */
export function countsText(verdict: Verdict): string {
  const passed = countResults(verdict, "pass");
  const others = (
    [
      ["warn", "warned"],
      ["hold", "failed"],
    ] as const
  ).flatMap(([level, what]) => {
    const results = countResults(verdict, level);
    return results === 0 ? [] : [`, ${withSeparators(results)} ${what}`];
  });
  return `${withSeparators(passed)} ${passed === 1 ? "check" : "checks"} passed${others.join("")}`;
}

/**
 * The results that are listed for a level. The line of a feature that holds the run also has its new categories, which
 * may be the cause, although these only warn. Where the PSI of a column holds the run, results that say no more than it are
 * not listed as warnings.
 */
function resultsToList(results: readonly CheckResult[], level: Level): CheckResult[] {
  const holding = new Set(results.filter((one) => one.level === "hold").map(columnKey));
  const holdingByPsi = new Set(results.filter(holdsByPsi).map(columnKey));
  return results.filter((result) => {
    const listedWithHold = isNewCategory(result) && holding.has(columnKey(result));
    return level === "hold"
      ? result.level === level || listedWithHold
      : result.level === level && !listedWithHold && !(isImpliedByPsi(result) && holdingByPsi.has(columnKey(result)));
  });
}

function isNewCategory({ check, level, isFeature }: CheckResult): boolean {
  return check === "unseen_value" && level === "warn" && isFeature === true;
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

/** The results of each feature, its PSI first; the feature that moved most comes first. */
function featureGroups(results: readonly CheckResult[]): CheckResult[][] {
  return groupBy(results, ({ column }) => column ?? "")
    .map(byPsi)
    .toSorted(([one], [other]) => psiOf(other) - psiOf(one));
}

/** The PSI first, then what holds the run. */
function byPsi(results: readonly CheckResult[]): CheckResult[] {
  return results.toSorted((one, other) => psiOf(other) - psiOf(one) || rankOf(other) - rankOf(one));
}

function rankOf({ level }: CheckResult): number {
  return level === "hold" ? 1 : 0;
}

function isUnexplained({ check, level }: CheckResult): boolean {
  return check === "unexplained" && level !== "pass";
}

/** Checks that repeat the PSI of a column: its distribution moved. The PSI line says if no feature explains that. */
const drifts: ReadonlySet<CheckName> = new Set<CheckName>(["quantiles", "slow_drift", "unexplained"]);

/** Such checks of a feature. Its PSI names the shares that rose, NULL and NaN among them. */
const impliedOfFeature: ReadonlySet<CheckName> = new Set<CheckName>([...drifts, "nulls", "nan"]);

/** Whether a result says no more than the PSI of its column, where that did not pass. */
function isImpliedByPsi({ check, isFeature }: CheckResult): boolean {
  return (isFeature === true ? impliedOfFeature : drifts).has(check);
}

/** Whether the PSI of a column holds the run. */
function holdsByPsi({ check, level }: CheckResult): boolean {
  return check === "psi" && level === "hold";
}

/** The results of a feature in one line. Its PSI comes first, if there is one. */
function featureLine(group: readonly CheckResult[], known: Known): string {
  const [first] = group;
  const move = first?.check === "psi" ? moveText(first, known.file) : "";
  return `${first?.column}: ${move === "" ? "" : `${move}; `}${findingsText(group, known)}`;
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
  return `${column === null ? "" : `${column}: `}${findingsText(group, known)}`;
}

/** The results of a column, without those that say the same as another one. */
function ownFindings(group: readonly CheckResult[]): CheckResult[] {
  return group.filter((result) => sameFinding(group, result) === undefined);
}

function listedFindings(group: readonly CheckResult[]): CheckResult[] {
  return ownFindings(group).slice(0, mostFindings);
}

/** Findings about one column. What is the same for consecutive ones, such as their cause, comes once, after the last. */
function findingsText(group: readonly CheckResult[], known: Known): string {
  const listed = listedFindings(group);
  const texts = listed.map((result, index) => {
    const next = listed[index + 1];
    const isShared = next !== undefined && endOf(next) === endOf(result);
    const dateOf = (runId: string): string => known.dateOf(runId, result.column);
    const found = findingText(result, { dateOf, file: known.file });
    return `${found}${alsoText(group, result)}${isShared ? "" : endText(leaderOf(listed, index), known)}`;
  });
  return [...texts, ...moreFindings(group, ownFindings(group).slice(mostFindings), known)].join("; ");
}

/**
 * The result of the column that says the same, if there is one: the PSI of a feature; or of a column that is constant
 * because all rows are NULL or NaN, the share of these.
 */
function sameFinding(group: readonly CheckResult[], result: CheckResult): CheckResult | undefined {
  if (isOfFeature(result) && isImpliedByPsi(result)) {
    return group.find(({ check }) => check === "psi");
  }
  const empty = group.find(({ check, measured }) => empties.has(check) && measured === 1);
  return result.check === "constant" && empty !== undefined ? (sameFinding(group, empty) ?? empty) : undefined;
}

const empties: ReadonlySet<CheckName> = new Set<CheckName>(["nulls", "nan"]);

/** Names the checks that did not pass for the reason that a finding has already. */
function alsoText(group: readonly CheckResult[], listed: CheckResult): string {
  const names = new Set(
    group.filter((result) => sameFinding(group, result) === listed).map(({ check }) => `\`${check}\``),
  );
  return names.size === 0 ? "" : `; ${[...names].join(" and ")} ${names.size === 1 ? "says" : "say"} the same`;
}

/** Counts the findings about a column that are not listed. */
function moreFindings(group: readonly CheckResult[], left: readonly CheckResult[], { unlisted }: Known): string[] {
  const levels = new Map(
    group.map((result) => [JSON.stringify([result.check, result.level, columnKey(result)]), result]),
  );
  const counted = unlisted.filter((one) => levels.has(JSON.stringify([one.check, one.level, columnKey(one)])));
  const checks = new Set([...left, ...counted].map(({ check }) => `\`${check}\``));
  const more = counted.reduce((sum, { results }) => sum + results, left.length);
  return more === 0 ? [] : [`${more} more of ${[...checks].join(" and ")}`];
}

/** Distinguishes results whose findings end with other words. */
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
function endText(result: CheckResult, known: Known): string {
  const { check, column, limit, feature, cause, lowered, isExplained } = result;
  const alone = holdsByPsi(result) && !isOfFeature(result) && cause === undefined && known.unexplained.has(column);
  const model = cause === undefined ? "" : modelText(check, cause, known);
  const moved = feature === undefined || check === "unexplained" ? undefined : causeText(feature, known);
  const isReason = moved !== undefined && isExplained === true;
  const upTo = isExplained === true ? ` up to ${shown(explainedUpTo * Number(limit))}` : "";
  const only = isExpected(result) && result !== known.withReason ? ", as expected" : `: ${isReason ? moved : lowered}`;
  const why = lowered === undefined ? "" : `; only a warning${upTo}${only}`;
  return `${alone ? "; no feature explains it" : moved === undefined || isReason ? "" : `; ${moved}`}${model}${why}`;
}

/** Whether a result only warns because `checks.expect` names its run. All such results of a run have the same reason. */
export function isExpected({ lowered }: CheckResult): boolean {
  return lowered?.startsWith("expected on ") === true;
}

/** Names the feature that moved, with its PSI unless that has a line. */
function causeText({ column, psi, against }: NonNullable<CheckResult["feature"]>, { dateOf, moved }: Known): string {
  return `feature ${column} moved, too${moved.has(column) ? "" : `: PSI ${shown(psi)} against ${dateOf(against, column)}`}`;
}

/** What a person may have to correct before a held run is scored again, by the causes of the checks that hold it. */
export function toCorrect({ modelChanged, results }: Verdict): string {
  const holding = results.filter(({ level }) => level === "hold");
  const causes = new Set(holding.map(({ cause }) => cause?.of));
  const isModel = causes.has("model") || causes.has("both");
  const isInput = causes.has("data") || causes.has("both") || (causes.has(undefined) && !isModel);
  const parts = [
    ...(isInput || !isModel ? ["the input"] : []),
    ...(isModel || (isInput && modelChanged) ? ["the model"] : []),
    ...(holding.some(mayBeSpec) || results.some(isUnexplained) ? ["the spec"] : []),
  ];
  return [parts.slice(0, -1).join(", "), ...parts.slice(-1)].filter((part) => part !== "").join(" or ");
}

/** Whether the spec may be wrong: a list of values, a range, a condition, or `input.where`, which left rows out. */
function mayBeSpec({ check, measured, numbers }: CheckResult): boolean {
  const isFiltered = check === "rows" && Number(measured) < 1 && Number(numbers["filtered"] ?? 0) > 0;
  return ["in", "range", "sql"].includes(check) || isFiltered;
}
