import type { CheckName, CheckResult, Level } from "../checks/verdicts/verdict.js";
import type { RunVerdict } from "./run-verdict.js";

/** The results of a level, a line each: "score: PSI 1.3 against 2026-11-20 (limit 0.25)". */
export function resultLines({ verdict, dates }: RunVerdict, level: Level): string[] {
  return verdict.results.filter((result) => result.level === level).map((result) => resultLine(result, dates));
}

/** A result for people. Logical dates stand for the runs that it was compared with. */
function resultLine(result: CheckResult, dates: RunVerdict["dates"]): string {
  const { check, column, measured, limit, against, lowered } = result;
  const compared = against === null ? "" : ` against ${dates[against] ?? against}`;
  const name = column === null ? "" : `${column}: `;
  const why = lowered === undefined ? "" : `; only a warning: ${lowered}`;
  const finding = findings[check]?.(result) ?? `${check} ${shown(measured)}`;
  return `${name}${finding}${compared} (limit ${percentages.has(check) ? percent(limit) : shown(limit)})${why}`;
}

/** Checks whose measured value and limit are shares of rows. */
const percentages: ReadonlySet<CheckName> = new Set<CheckName>([
  "rejects",
  "constant",
  "nulls",
  "nan",
  "zero_vectors",
  "repeated_vectors",
  "unseen_value",
]);

const findings: Readonly<Partial<Record<CheckName, (result: CheckResult) => string>>> = {
  rows: ({ measured, numbers }) => `${shown(numbers["rows"] ?? "?")} rows, ${shown(measured)} times the usual number`,
  rejects: ({ measured }) => `${percent(measured)} of the rows were rejected`,
  column: ({ measured }) => `type ${shown(measured)}`,
  constant: ({ measured }) => `one value in ${percent(measured)} of the rows`,
  nulls: ({ measured }) => `${percent(measured)} NULL`,
  nan: ({ measured }) => `${percent(measured)} NaN`,
  zero_vectors: ({ measured }) => `${percent(measured)} vectors of zeros`,
  repeated_vectors: ({ measured }) => `${percent(measured)} repeated vectors`,
  psi: ({ measured }) => `PSI ${shown(measured)}`,
  slow_drift: ({ measured }) => `PSI ${shown(measured)} since the first run with this model`,
  unexplained: ({ measured }) => `PSI ${shown(measured)} that no feature explains`,
  quantiles: ({ measured }) => `quantiles shifted by ${shown(measured)} interquartile ranges`,
  class: ({ measured, numbers }) =>
    `class ${shown(numbers["class"] ?? "?")} has ${shown(measured)} times the rows that are due`,
  unseen_value: ({ measured, numbers }) =>
    `value ${shown(numbers["value"] ?? "?")}, which no earlier run had, in ${percent(measured)} of the rows`,
  centroid: ({ measured }) => `cosine ${shown(measured)} between the mean directions`,
  range: ({ measured }) => `value ${shown(measured)} is out of range`,
  unique: ({ numbers }) => keysText(numbers),
  in: ({ measured, numbers }) => `values that are not in the list: ${strangeNames(numbers) || shown(measured)}`,
};

function keysText({ repeated = 0, nulls = 0, examples }: CheckResult["numbers"]): string {
  const such = examples === undefined ? "" : `, such as ${examples}`;
  const found = [
    ...(repeated === 0 ? [] : [`${repeated} rows repeat a key${such}`]),
    ...(nulls === 0 ? [] : [`${nulls} rows have a NULL in their key`]),
  ];
  return found.join("; ") || "each key is of one row";
}

function strangeNames(numbers: CheckResult["numbers"]): string {
  return Object.keys(numbers).slice(0, 5).join(", ");
}

/** A number with three digits that count: "0.0123", "1.3", "4210". Texts as they are. */
function shown(value: number | string): string {
  return typeof value === "string" || Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(3)));
}

function percent(value: number | string): string {
  return typeof value === "string" ? value : `${shown(value * 100)}%`;
}
