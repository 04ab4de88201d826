import { type CheckName, type CheckResult, type Level, missingType } from "../checks/verdicts/verdict.js";
import { moveText } from "./feature-text.js";
import type { RunVerdict } from "./run-verdict.js";
import { percent, shown } from "./shown-numbers.js";

/** Lines about features; of more, the others are counted. */
const mostFeatures = 10;

/**
 * The results of a level for people: first a line for each feature, the one that moved most before the others, then a line
 * for each other result: "score: PSI 1.3 against 2026-11-20 (limit 0.25)".
 */
export function resultLines({ verdict, dates: known }: RunVerdict, level: Level): string[] {
  const asChallenger = (verdict.asChallenger ?? []).map((id) => [id, `${known[id] ?? id}, when it was the challenger`]);
  const dates = { ...known, ...Object.fromEntries(asChallenger) };
  const ofEarlierModel = new Set<string | null>(verdict.ofEarlierModel);
  const held = level === "hold" ? new Set() : new Set(verdict.results.filter(holdsByPsi).map(({ column }) => column));
  const results = verdict.results.filter(
    (result) => result.level === level && !(drifts.has(result.check) && held.has(result.column)),
  );
  const features = featureGroups(results, level === "hold" ? [] : verdict.results);
  const left = features.length - mostFeatures;
  return [
    ...features.slice(0, mostFeatures).map((group) => featureLine(group, dates)),
    ...(left > 0 ? [`${left} more features: see the verdict`] : []),
    ...results
      .filter((result) => !isOfFeature(result))
      .map((result) => resultLine(result, ofEarlierModel.has(result.column) ? known : dates)),
  ];
}

function isOfFeature({ isFeature }: CheckResult): boolean {
  return isFeature === true;
}

/**
 * The results of each feature, its PSI first; the feature that moved most comes first. `others`: results among which those
 * that hold the run leave out their features, which another line names.
 */
function featureGroups(results: readonly CheckResult[], others: readonly CheckResult[]): CheckResult[][] {
  const held = new Set(others.filter(({ level }) => level === "hold").map(({ column }) => column));
  const groups = new Map<string | null, CheckResult[]>();
  for (const result of results.filter((one) => isOfFeature(one) && !held.has(one.column))) {
    groups.set(result.column, [...(groups.get(result.column) ?? []), result]);
  }
  return [...groups.values()]
    .map((group) => group.toSorted((one, other) => psiOf(other) - psiOf(one)))
    .toSorted(([one], [other]) => psiOf(other) - psiOf(one));
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
function featureLine([first, ...others]: readonly CheckResult[], dates: RunVerdict["dates"]): string {
  if (first === undefined) {
    return "";
  }
  const rest = first.check === "psi" ? others.filter(({ check }) => !toldByPsi.has(check)) : others;
  const move = first.check === "psi" ? moveText(first) : "";
  const findings = [first, ...rest].map((result) => findingText(result, dates)).join("; ");
  const begin = move === "" ? "" : `${move}${move.endsWith("?") ? "" : ";"} `;
  return `${first.column}: ${begin}${findings}`;
}

/** A result for people. */
function resultLine(result: CheckResult, dates: RunVerdict["dates"]): string {
  return `${result.column === null ? "" : `${result.column}: `}${findingText(result, dates)}`;
}

/** A result without its column. Runs that it was compared with are named by their logical dates. */
function findingText(result: CheckResult, dates: RunVerdict["dates"]): string {
  const { check, measured, limit, against, lowered, feature, cause: model } = result;
  if (check === "column") {
    return columnText(result, dates[against ?? ""] ?? against ?? "");
  }
  const compared = against === null ? "" : ` against ${dates[against] ?? against}`;
  const cause = feature === undefined ? "" : `; feature ${feature.column} moved, too: PSI ${shown(feature.psi)}`;
  const why = lowered === undefined ? "" : `; only a warning: ${lowered}`;
  const finding = findings[check]?.(result) ?? `${check} ${shown(measured)}`;
  const bound =
    check === "constant" || check === "stale"
      ? ""
      : ` (limit ${percentages.has(check) ? percent(limit) : shown(limit)})`;
  return `${finding}${compared}${bound}${cause}${model === undefined ? "" : modelText(check, model)}${why}`;
}

/** What became of a column's type. @param run the date of the last run */
function columnText({ measured: now, limit: before, isFeature }: CheckResult, run: string): string {
  if (before === missingType) {
    return `the run of ${run} did not have this feature, so it is not compared; nothing to do: later runs compare it`;
  }
  const found =
    now === missingType ? `the ${isFeature === true ? "feature" : "output"} is gone` : `its type is ${shown(now)}`;
  return `${found}; it was ${shown(before)} on ${run}`;
}

/** Says whether the new model or the data are the cause, and what the previous model shows. */
function modelText(check: CheckName, { of, previous, rows }: NonNullable<CheckResult["cause"]>): string {
  const names = { model: "the new model", data: "the data", both: "the new model and the data" };
  const found =
    check === "psi" ? `has PSI ${shown(previous)}` : of === "model" ? "passes this check" : "does not pass it either";
  return `; caused by ${names[of]}: the previous model ${found} on ${shown(rows)} of these rows`;
}

/** Checks whose measured value and limit are shares of rows. */
const percentages: ReadonlySet<CheckName> = new Set<CheckName>([
  "rejects",
  "nulls",
  "nan",
  "zero_vectors",
  "repeated_vectors",
  "unseen_value",
]);

const findings: Readonly<Partial<Record<CheckName, (result: CheckResult) => string>>> = {
  rows: ({ measured, numbers: { rows = "?" } }) =>
    `${shown(rows)} ${rows === 1 ? "row" : "rows"}, ${shown(measured)} times the usual number`,
  rejects: ({ measured }) => `${percent(measured)} of the rows were rejected`,
  constant: ({ numbers }) =>
    `one value in all rows; before, in ${percent(numbers["largest_share_before"] ?? "?")} of them at most`,
  nulls: ({ measured }) => `${percent(measured)} NULL`,
  nan: ({ measured }) => `${percent(measured)} NaN`,
  zero_vectors: ({ measured }) => `${percent(measured)} vectors of zeros`,
  repeated_vectors: ({ measured }) => `${percent(measured)} repeated vectors`,
  psi: ({ measured, numbers: { runs_together: runs } }) =>
    `PSI ${shown(measured)}${runs === undefined ? "" : ` against the last ${runs} runs together`}`,
  slow_drift: ({ measured }) => `PSI ${shown(measured)} since the first run with this model`,
  unexplained: ({ measured }) => `PSI ${shown(measured)} that no feature explains`,
  quantiles: ({ measured }) => `quantiles shifted by ${shown(measured)} interquartile ranges`,
  stale: ({ measured }) => `all ${shown(measured)} features are those of the last run: was the input refreshed?`,
  class: ({
    measured,
    numbers: { class: name = "?", rows_of_class: rows = 0, rows: all, smallest_share_before: share },
  }) =>
    `class ${shown(name)} has ${shown(rows)} ${rows === 1 ? "row" : "rows"}, ${shown(measured)} times the expected ${shown(Math.round(Number(all) * Number(share)))}`,
  unseen_value: ({ measured, numbers: { value = "?", largest_share_before: before } }) => {
    const known =
      before === undefined ? "no earlier run had" : `at most ${percent(before)} of the rows of an earlier run had`;
    return `value ${shown(value)}, which ${known}, in ${percent(measured)} of the rows`;
  },
  centroid: ({ measured }) => `cosine ${shown(measured)} between the mean directions`,
  range: ({ measured }) => `value ${shown(measured)} is out of range`,
  unique: ({ numbers }) => keysText(numbers),
  sql: ({ measured, numbers }) => `${aggregatesText(numbers)}, so the condition is ${shown(measured)}`,
  in: ({ measured, numbers }) => `values that are not in the list: ${strangeNames(numbers) || shown(measured)}`,
};

function aggregatesText(numbers: CheckResult["numbers"]): string {
  return Object.entries(numbers)
    .map(([aggregate, value]) => `${aggregate} is ${shown(value)}`)
    .join(", ");
}

function keysText({ repeated = 0, nulls = 0, examples }: CheckResult["numbers"]): string {
  const such = examples === undefined ? "" : `, such as ${examples}`;
  const found = [
    ...(repeated === 0 ? [] : [`${repeated} ${repeated === 1 ? "row repeats" : "rows repeat"} a key${such}`]),
    ...(nulls === 0
      ? []
      : [`${nulls} ${nulls === 1 ? "row has" : "rows have"} a NULL in ${nulls === 1 ? "its" : "their"} key`]),
  ];
  return found.join("; ") || "each key is of one row";
}

function strangeNames(numbers: CheckResult["numbers"]): string {
  return Object.keys(numbers).slice(0, 5).join(", ");
}
