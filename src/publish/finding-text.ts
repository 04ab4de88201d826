import { type CheckName, type CheckResult, missingType } from "../checks/verdicts/verdict.js";
import { digitsApart, percent, shown } from "./shown-numbers.js";

/** What a check has found, without its column and without the cause: "PSI 1.3 against 2026-11-20 (limit 0.25)". */
export function findingText(result: CheckResult, dateOf: (runId: string) => string): string {
  const { check, measured, limit, against } = result;
  const date = against === null ? undefined : dateOf(against);
  if (check === "column") {
    return columnText(result, date ?? "");
  }
  const show = percentages.has(check) ? percent : shown;
  const digits = digitsApart(measured, limit, show);
  const told: Told = {
    ...result,
    found: show(measured, digits),
    date,
    since: date === undefined ? "" : ` against ${date}`,
  };
  const finding = findings[check]?.(told) ?? `${check} ${told.found}${told.since}`;
  return `${finding}${withoutLimit.has(check) ? "" : ` (limit ${show(limit, digits)})`}`;
}

/** What became of a column's type. @param run the date of the last run */
function columnText({ measured: now, limit: before, isFeature }: CheckResult, run: string): string {
  if (before === missingType) {
    return `the run of ${run} did not have this feature, so it is not compared; nothing to do: later runs compare it`;
  }
  const gone = isFeature === true ? "the feature is gone" : "it is no longer in the output";
  return `${now === missingType ? gone : `its type is ${shown(now)}`}; it was ${shown(before)} on ${run}`;
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

/** Checks whose limit says nothing that their finding does not. */
const withoutLimit: ReadonlySet<CheckName> = new Set<CheckName>(["constant", "in", "stale"]);

/** A result, with what its finding is made of. */
interface Told extends CheckResult {
  /** The measured value, with as many digits as tell it from the limit. */
  readonly found: string;
  /** The date of the earlier run that it is compared with; undefined: with none, or with several together. */
  readonly date: string | undefined;
  /** " against 2026-11-20", or nothing. */
  readonly since: string;
}

const findings: Readonly<Partial<Record<CheckName, (told: Told) => string>>> = {
  rows: ({ measured, found, numbers: { rows = "?", least = "?" } }) =>
    `${rowsText(rows)}, ${found} times the usual ${usualOf(rows, measured) ?? shown(least)}`,
  rejects: ({ found }) => `${found} of the rows were rejected`,
  constant: constantText,
  nulls: (told) => shareText(told, "NULL"),
  nan: (told) => shareText(told, "NaN"),
  zero_vectors: (told) => shareText(told, "vectors of zeros"),
  repeated_vectors: (told) => shareText(told, "repeated vectors"),
  psi: ({ found, since, numbers: { runs_together: runs, of } }) =>
    `PSI ${found}${of === "norms" ? " of the norms" : ""}${runs === undefined ? since : ` against the last ${runs} runs together`}`,
  slow_drift: ({ found, since }) => `PSI ${found} since the first run with this model${since}`,
  unexplained: ({ found, since }) => `PSI ${found}${since}${since === "" ? " that" : ", which"} no feature explains`,
  quantiles: ({ found, since }) => `quantiles shifted by ${found} interquartile ranges${since}`,
  stale: ({ found, date }) =>
    `all ${found} features are those of the last run${date === undefined ? "" : `, on ${date}`}: was the input refreshed?`,
  class: classText,
  unseen_value: ({ found, numbers: { value = "?", largest_share_before: before } }) => {
    const known =
      before === undefined ? "no earlier run had" : `at most ${percent(before)} of the rows of an earlier run had`;
    return `value ${shown(value)}, which ${known}, in ${found} of the rows`;
  },
  centroid: ({ found, since }) => `cosine ${found} between the mean directions${since}`,
  range: ({ found }) => `value ${found} is out of range`,
  unique: ({ numbers }) => keysText(numbers),
  sql: ({ found, numbers }) => `${aggregatesText(numbers)}, so the condition is ${found}`,
  in: ({ found, numbers }) => `values that are not in the list: ${strangeNames(numbers) || found}`,
};

function rowsText(rows: number | string): string {
  return `${shown(rows)} ${rows === 1 ? "row" : "rows"}`;
}

/** The number of rows of which `rows` are so many times; undefined: of no rows it is not known. */
function usualOf(rows: number | string, times: number | string): string | undefined {
  const usual = Math.round(Number(rows) / Number(times));
  return Number.isFinite(usual) ? shown(usual) : undefined;
}

/** "DE in all rows; before, no value had more than 61.3% of them (2026-11-20)". */
function constantText({ date, numbers }: Told): string {
  const { value = "one value", largest_share_before: share = "?", least_values_before: values } = numbers;
  const several = values === undefined ? [] : [`at least ${shown(values)} different values`];
  const run = [...(date === undefined ? [] : [date]), ...several].join(": ");
  const before = percent(share, digitsApart(share, 1, percent));
  return `${shown(value)} in all rows; before, no value had more than ${before} of them${run === "" ? "" : ` (${run})`}`;
}

/** "40% NULL, at most 1.2% before, on 2026-11-20". */
function shareText({ found, date, numbers: { share_before: before } }: Told, what: string): string {
  if (before === undefined || date === undefined) {
    return `${found} ${what}`;
  }
  return `${found} ${what}, ${before === 0 ? "none before" : `at most ${percent(before)} before, on ${date}`}`;
}

/** "class churn has 10 rows, 0.0052 times the 1911 expected by its share on 2026-11-20". */
function classText({ found, date, numbers }: Told): string {
  const { class: name = "?", rows_of_class: rows = 0, rows: all, smallest_share_before: share } = numbers;
  const due = shown(Math.round(Number(all) * Number(share)));
  const expected = date === undefined ? `expected ${due}` : `${due} expected by its share on ${date}`;
  return `class ${shown(name)} has ${rowsText(rows)}, ${found} times the ${expected}`;
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
