import type { RunComparison } from "../../publish/erasure.js";
import { modelNames } from "./fields.js";
import { agreementLine, agreementTables, apartTable, differentRowTables, type ShownAgreement } from "./tables.js";
import { count } from "../report.js";

/** How a second model agrees: a line about its rows, then one for each output. No keys are in it. */
export function comparisonLines(result: RunComparison): string[] {
  const { model, columns, apart, tolerance } = result;
  return [
    `${modelNames[1]} ${model}: ${comparedRows(result)}`,
    ...columns.map(([name, found]) => `  ${name}: ${agreementLine(found, tolerance)}`),
    ...apart.map(({ name, reason }) => `  ${name}: not compared, ${reason}`),
  ];
}

/** How many rows were compared, and why others were not. */
export function comparedRows({ compared, missed, repeated }: RunComparison): string {
  const reasons = Object.entries(missed);
  const rows = reasons.reduce((sum, [, missing]) => sum + missing, 0);
  const why = reasons.map(([reason, missing]) => `${reason.replaceAll("_", " ")} ${missing}`).join(", ");
  const several = repeated === 0 ? "" : `, ${count(repeated, "key")} with several rows left out`;
  return `${count(compared, "row")} compared${rows === 0 ? "" : `, ${count(rows, "row")} that it did not score (${why})`}${several}`;
}

/**
 * How a second model agrees, as tables, with the keys of the rows that differ most.
 * @param width characters in a line of the terminal; undefined: there is none
 */
export function comparisonTables(result: RunComparison, width?: number): string[] {
  const { model, apart } = result;
  const shown = { ...shownAgreement(result), width };
  return [
    `${modelNames[1]} ${model}: ${comparedRows(result)}`,
    ...agreementTables(shown),
    ...apartTable(apart, width),
    ...differentRowTables(shown),
  ];
}

/** The agreement as tables show it. */
function shownAgreement({ columns, tolerance }: RunComparison): ShownAgreement {
  return { columns: new Map(columns), tolerance, names: modelNames, keysOf: ({ keys }) => keys };
}
