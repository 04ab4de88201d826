import { type CheckName, type CheckResult, missingType } from "../checks/verdicts/verdict.js";
import { rowsFinding, rowsText } from "./rows-text.js";
import { digitsApart, percent, shown, shownValue, withSeparators } from "./shown-numbers.js";

/** What a finding is compared with. */
export interface ComparedWith {
  /** The date of an earlier run, or the name of the file. */
  readonly dateOf: (runId: string) => string;
  /** The file of `checks.baseline`; undefined: earlier runs. */
  readonly file?: string | undefined;
}

/** What a check has found, without its column and without the cause: "PSI 1.3 against 2026-11-20 (limit 0.25)". */
export function findingText(result: CheckResult, { dateOf, file }: ComparedWith): string {
  const { check, measured, limit, against } = result;
  const source = against === null ? undefined : dateOf(against);
  const date = file === undefined ? source : undefined;
  if (check === "column") {
    return columnText(result, { date, file });
  }
  const show = percentages.has(check) ? percent : shown;
  const digits = digitsApart(measured, limit, show);
  const described: Described = {
    ...result,
    found: show(measured, digits),
    date,
    file,
    since: source === undefined ? "" : ` against ${source}`,
  };
  const finding = findings[check]?.(described) ?? `${check} ${described.found}${described.since}`;
  return `${finding}${withoutLimit.has(check) ? "" : ` (limit ${show(limit, digits)})`}`;
}

/** What became of a column's type since the last run, or since the file with a profile. */
function columnText(
  { measured: now, limit: before, isFeature }: CheckResult,
  { date = "", file }: Pick<Described, "date" | "file">,
): string {
  if (before === missingType) {
    return file === undefined
      ? `the run of ${date} did not have this feature, so it is not compared; nothing to do: later runs compare it`
      : `${file} does not have this feature, so it is not compared`;
  }
  const gone = isFeature === true ? "the feature is gone" : "it is no longer in the output";
  const was = file === undefined ? `on ${date}` : `in ${file}`;
  return `${now === missingType ? gone : `its type is ${shown(now)}`}; it was ${shown(before)} ${was}`;
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
const withoutLimit: ReadonlySet<CheckName> = new Set<CheckName>(["rows", "constant", "in", "stale", "sql"]);

/** A result, with what its finding is made of. */
interface Described extends CheckResult {
  /** The measured value, with as many digits as tell it from the limit. */
  readonly found: string;
  /** The date of the earlier run that it is compared with; undefined: with none, with several together, or with a file. */
  readonly date: string | undefined;
  /** The file that the run is compared with; undefined: it is compared with earlier runs. */
  readonly file: string | undefined;
  /** " against 2026-11-20", or nothing. */
  readonly since: string;
}

const findings: Readonly<Partial<Record<CheckName, (described: Described) => string>>> = {
  rows: rowsFinding,
  rejects: ({ found }) => `${found} of the rows were rejected`,
  constant: constantText,
  nulls: (described) => shareText(described, "NULL"),
  nan: (described) => shareText(described, "NaN"),
  zero_vectors: (described) => shareText(described, "vectors of zeros"),
  repeated_vectors: (described) => shareText(described, "repeated vectors"),
  psi: ({ found, file, since, numbers: { runs_together: runs, of } }) =>
    `PSI ${found}${of === "norms" ? " of the norms" : ""}${runs === undefined ? since : ` against ${allText(runs, file)}`}`,
  slow_drift: ({ found, date }) =>
    `PSI ${found} since ${date === undefined ? "" : `${date}, `}one of the first runs with this model`,
  unexplained: ({ found, since }) => `PSI ${found}${since}${since === "" ? " that" : ", which"} no feature explains`,
  quantiles: ({ found, since }) => `quantiles shifted by ${found} interquartile ranges${since}`,
  ranks: ({ found, file, numbers: { runs_together: runs = "?" } }) =>
    `distance of ranks ${found} from ${allText(runs, file)}`,
  stale: ({ found, date, file }) =>
    file === undefined
      ? `all ${found} features have the same values as in the last run${date === undefined ? "" : `, of ${date}`}: was the input refreshed?`
      : `all ${found} features have the same values as in ${file}: does this run score the same rows?`,
  class: classText,
  unseen_value: ({ found, file, numbers: { value = "?", bin, largest_share_before: before } }) => {
    const nowhere = file === undefined ? "no earlier run had" : `${file} does not have`;
    const known =
      before === undefined
        ? nowhere
        : `at most ${percent(before)} of the rows ${file === undefined ? "of an earlier run" : `in ${file}`} had`;
    const name = bin === undefined ? `value ${shownValue(value)}` : `a value without a name (${value})`;
    return `${name}, which ${known}, in ${found} of the rows`;
  },
  centroid: ({ found, since }) => `cosine ${found} between the mean directions${since}`,
  range: rangeText,
  unique: ({ numbers }) => keysText(numbers),
  sql: ({ found, limit, numbers }) =>
    [`${String(limit).trim().replaceAll(/\s+/g, " ")} is ${found}`, ...aggregateTexts(numbers)].join(": "),
  in: ({ found, numbers }) => `values that are not in the list: ${strangeValues(numbers) || found}`,
};

/** Names all that a run is compared with: "the last 8 runs together", "training.json". */
function allText(runs: number | string, file: string | undefined): string {
  return file ?? (runs === 1 ? "the last run" : `the last ${runs} runs together`);
}

/** "all rows have the value DE; before, the most frequent value had at most 61.3% of the rows (2026-11-20)". */
function constantText({ date, file, numbers }: Described): string {
  const { value, largest_share_before: share = "?", least_values_before: values } = numbers;
  const several = values === undefined ? [] : [`at least ${shown(values)} different values`];
  const nights = date ?? togetherText(numbers);
  const run = [...(nights === undefined ? [] : [nights]), ...several].join(": ");
  const before = percent(share, digitsApart(share, 1, percent));
  const one = value === undefined ? "one value" : `the value ${shownValue(value)}`;
  const had = `the most frequent value had at most ${before} of the rows`;
  return `all rows have ${one}; ${file === undefined ? "before" : `in ${file}`}, ${had}${run === "" ? "" : ` (${run})`}`;
}

/** "in 3 runs together": earlier runs with few rows, which count as one run. */
function togetherText({ runs_together: runs }: CheckResult["numbers"]): string | undefined {
  return runs === undefined ? undefined : `in ${runs} runs together`;
}

/** "in training.json", "on 2026-11-20", "in 3 runs together"; undefined: it is not known. */
function whereText({ date, file, numbers }: Described): string | undefined {
  return file === undefined ? (date === undefined ? togetherText(numbers) : `on ${date}`) : `in ${file}`;
}

/** "40% NULL, at most 1.2% before, on 2026-11-20". */
function shareText(described: Described, what: string): string {
  const { found, file, numbers } = described;
  const { share_before: before } = numbers;
  const where = whereText(described);
  if (before === undefined || where === undefined) {
    return `${found} ${what}`;
  }
  if (file !== undefined) {
    return `${found} ${what}, ${before === 0 ? "none" : percent(before)} ${where}`;
  }
  return `${found} ${what}, ${before === 0 ? "none before" : `at most ${percent(before)} before, ${where}`}`;
}

/** "class churn has 10 rows, 0.0052 times the 1,911 expected by its share on 2026-11-20". */
function classText(described: Described): string {
  const { found, numbers } = described;
  const { class: name = "?", rows_of_class: rows = 0, rows: all, smallest_share_before: share } = numbers;
  const due = withSeparators(Math.round(Number(all) * Number(share)));
  const where = whereText(described);
  const expected = where === undefined ? `expected ${due}` : `${due} expected by its share ${where}`;
  return `class ${shownValue(name)} has ${rowsText(rows)}, ${found} times the ${expected}`;
}

/** Longer aggregates are shown as `avg(…)`; the condition shows their arguments in full. */
const shortAggregate = 24;

/** "count(*) is 8, avg(…) is 0.31". Empty for a condition without an aggregate. */
function aggregateTexts(numbers: CheckResult["numbers"]): string[] {
  const known = Object.entries(numbers);
  const names = known.map(([name]) => (name.length > shortAggregate ? name.replace(/\(.*/s, "(…)") : name));
  const texts = known.map(([whole, value], index) => {
    const name = names[index] ?? whole;
    return `${names.indexOf(name) === names.lastIndexOf(name) ? name : whole} is ${shown(value)}`;
  });
  return texts.length === 0 ? [] : [texts.join(", ")];
}

function keysText({ repeated = 0, nulls = 0, examples }: CheckResult["numbers"]): string {
  const such = examples === undefined ? "" : `, such as ${examples}`;
  const found = [
    ...(repeated === 0
      ? []
      : [`${withSeparators(repeated)} ${repeated === 1 ? "row repeats" : "rows repeat"} a key${such}`]),
    ...(nulls === 0
      ? []
      : [
          `${withSeparators(nulls)} ${nulls === 1 ? "row has" : "rows have"} a NULL in ${nulls === 1 ? "its" : "their"} key`,
        ]),
  ];
  return found.join("; ") || "each key has one row";
}

/** "review (413 rows), x (1 row)". */
function strangeValues(numbers: CheckResult["numbers"]): string {
  return Object.entries(numbers)
    .slice(0, 5)
    .map(([value, rows]) => `${shownValue(value)} (${rowsText(rows)})`)
    .join(", ");
}

/**
 * "131 rows are out of range, up to 0.997". Without an exact count: "at least 120 and at most 134 rows are out of
 * range; the largest value is 0.997".
 */
function rangeText({ found, measured, limit, numbers }: Described): string {
  const { rows_outside_least: least = "?", rows_outside_most: most = "?" } = numbers;
  const isLow = Number(measured) < Number(limit);
  if (least === most) {
    return `${rowsText(most)} ${most === 1 ? "is" : "are"} out of range, ${isLow ? "down to" : "up to"} ${found}`;
  }
  const rows = `at least ${withSeparators(least)} and at most ${rowsText(most)}`;
  return `${rows} are out of range; the ${isLow ? "smallest" : "largest"} value is ${shown(measured, 6)}`;
}

/** Names the cause (model, data or both), and what the model of the last run or of the baseline file has on the same rows. */
export function modelText(
  check: CheckName,
  cause: NonNullable<CheckResult["cause"]>,
  { file }: Pick<ComparedWith, "file">,
): string {
  const { of, previous, rows, modelSha256, now } = cause;
  const other = `the model of ${file ?? "the last run"}`;
  const own = `the model${digestText(now.modelSha256)}`;
  const names = { model: own, data: "the data", both: `${own} and the data` };
  const found =
    check === "psi" ? `has PSI ${shown(previous)}` : of === "model" ? "passes this check" : "does not pass it either";
  const on = rows === now.rows ? "the same rows" : `${withSeparators(rows)} of these rows`;
  return `; caused by ${names[of]}: ${other}${digestText(modelSha256)} ${found} on ${on}`;
}

/** The start of a SHA-256, as `history` shows it: " (e3ea68b422ee)". */
function digestText(sha256: string): string {
  return ` (${sha256.slice(0, 12)})`;
}
