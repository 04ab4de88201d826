import { type CheckName, type CheckResult, missingType } from "../checks/verdicts/verdict.js";
import { percent, shown } from "./shown-numbers.js";

/** What a check has found, without its column and without the cause: "PSI 1.3 against 2026-11-20 (limit 0.25)". */
export function findingText(result: CheckResult, dateOf: (runId: string) => string): string {
  const { check, measured, limit, against } = result;
  if (check === "column") {
    return columnText(result, against === null ? "" : dateOf(against));
  }
  const finding = findings[check]?.(result) ?? `${check} ${shown(measured)}`;
  if (check === "constant") {
    return `${finding}${against === null ? "" : ` (${dateOf(against)})`}`;
  }
  const compared = against === null ? "" : ` against ${dateOf(against)}`;
  const bound = check === "stale" ? "" : ` (limit ${percentages.has(check) ? percent(limit) : shown(limit)})`;
  return `${finding}${compared}${bound}`;
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
  rows: ({ measured, numbers: { rows = "?", least = "?" } }) =>
    `${rowsText(rows)}, ${shown(measured)} times the usual ${usualOf(rows, measured) ?? shown(least)}`,
  rejects: ({ measured }) => `${percent(measured)} of the rows were rejected`,
  constant: ({ numbers: { largest_share_before: share = "?", least_values_before: values } }) =>
    `one value in all rows; before, ${values === undefined ? "" : `at least ${shown(values)} values, each `}in at most ${percent(share)} of them`,
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
    `class ${shown(name)} has ${rowsText(rows)}, ${shown(measured)} times the expected ${shown(Math.round(Number(all) * Number(share)))}`,
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

function rowsText(rows: number | string): string {
  return `${shown(rows)} ${rows === 1 ? "row" : "rows"}`;
}

/** The number of rows of which `rows` are so many times; undefined: of no rows it is not known. */
function usualOf(rows: number | string, times: number | string): string | undefined {
  const usual = Math.round(Number(rows) / Number(times));
  return Number.isFinite(usual) ? shown(usual) : undefined;
}

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
