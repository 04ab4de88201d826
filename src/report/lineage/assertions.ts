import type { Finding, Level } from "../../checks/check.js";
import { shown } from "../../util/shown-numbers.js";
import type { RunInfo } from "../attempt-record.js";

/** An assertion of OpenLineage's facet `dataQualityAssertions`. */
export type Assertion = Readonly<Record<string, unknown>>;

/** The assertions of a run, by the dataset that they are about. */
export interface RunAssertions {
  /** Features: columns of the input that the model reads. */
  readonly inputs: readonly Assertion[];
  /** Outputs, also those of slices, and the run. */
  readonly output: readonly Assertion[];
}

/** Describes the results of checks, the worst first, without values of rows. */
export function assertionsOf(results: readonly Finding[], run: RunInfo | undefined): RunAssertions {
  const worst = (["hold", "warn", "pass"] as const).flatMap((each) => results.filter(({ level }) => level === each));
  const [inputs, outputs] = [namesOf(run?.inputColumns), namesOf(run?.outputColumns)];
  return {
    inputs: worst.filter(isOfFeature).map((result) => assertionOf(result, inputs)),
    output: worst.filter((result) => !isOfFeature(result)).map((result) => assertionOf(result, outputs)),
  };
}

function isOfFeature({ isFeature }: Finding): boolean {
  return isFeature === true;
}

function namesOf(columns: RunInfo["outputColumns"] = []): ReadonlySet<string> {
  return new Set(columns.map(({ name }) => name));
}

/** @param columns those of the dataset */
function assertionOf(result: Finding, columns: ReadonlySet<string>): Assertion {
  const { check, level, limit } = result;
  const { column, name } = namesIn(result, columns);
  return {
    assertion: check,
    success: level === "pass",
    column,
    name,
    severity: level === "pass" ? undefined : severities[level],
    expected: typeof limit === "number" ? String(limit) : undefined,
    actual: measuredIn(result)?.toString(),
  };
}

const severities: Readonly<Record<Exclude<Level, "pass">, string>> = { warn: "warn", hold: "error" };

/**
 * Returns the column of an assertion. The specification allows only a column of the dataset: an assertion about something
 * else, such as a computed feature, has a name instead. A slice is named without its value, which is that of rows.
 */
function namesIn(
  { check, column }: Pick<Finding, "check" | "column">,
  columns: ReadonlySet<string>,
): { readonly column?: string; readonly name?: string } {
  if (column === null || columns.has(column)) {
    return column === null ? {} : { column };
  }
  const [, sliced] = /^(.+?)(?:=| is NULL: )/.exec(column) ?? [];
  const output = [...columns].filter((each) => column.endsWith(`: ${each}`)).toSorted(longestFirst)[0];
  return sliced !== undefined && output !== undefined
    ? { column: output, name: `${check} in a slice of ${sliced}` }
    : { name: `${check} of ${column}` };
}

function longestFirst(one: string, other: string): number {
  return other.length - one.length;
}

/** The number that a check has measured; undefined: a text, or, as `range` measures, a value of a row. */
function measuredIn({ check, measured }: Finding): number | undefined {
  return typeof measured === "number" && check !== "range" ? measured : undefined;
}

/** The limit of findings in a message. */
const mostFindings = 5;

/** Names the checks that hold a run, without values of rows: "f1: shape 1.3 (limit 0.25); rows 0.1 (limit 0.6)". */
export function findingsOf(results: readonly Finding[]): string {
  const failed = results.filter(({ level }) => level === "hold");
  const texts = failed.slice(0, mostFindings).map((result) => {
    const measured = measuredIn(result);
    const numbers = measured === undefined ? "" : ` ${shown(measured)} (limit ${shown(result.limit)})`;
    return `${result.column === null ? "" : `${result.column}: `}${result.check}${numbers}`;
  });
  const left = failed.length - texts.length;
  return [...texts, ...(left === 0 ? [] : [`${left} more`])].join("; ");
}
