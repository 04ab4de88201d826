import type { ChallengerResult } from "../../publish/challenger-result.js";
import { agreementLine, agreementTables, apartTable, differentRowTables, type ShownAgreement } from "./tables.js";
import { count } from "../report.js";

/** How a challenger agrees: a line about its rows, then one for each output. No keys are in it. */
export function challengerLines(result: ChallengerResult): string[] {
  const { model, columns, apart, tolerance } = result;
  return [
    `challenger ${model}: ${challengerRows(result)}`,
    ...columns.map(([name, found]) => `  ${name}: ${agreementLine(found, tolerance)}`),
    ...apart.map(({ name, reason }) => `  ${name}: not compared, ${reason}`),
  ];
}

/** How many rows were compared, and why others were not. */
export function challengerRows({ compared, missed }: ChallengerResult): string {
  const reasons = Object.entries(missed);
  const rows = reasons.reduce((sum, [, missing]) => sum + missing, 0);
  const why = reasons.map(([reason, missing]) => `${reason.replaceAll("_", " ")} ${missing}`).join(", ");
  return `${count(compared, "row")} compared${rows === 0 ? "" : `, ${count(rows, "row")} that it did not score (${why})`}`;
}

/**
 * How a challenger agrees, as tables, with the keys of the rows that differ most.
 * @param width characters in a line of the terminal; undefined: there is none
 */
export function challengerTables(result: ChallengerResult, width?: number): string[] {
  const { model, apart } = result;
  const shown = { ...shownAgreement(result), width };
  return [
    `challenger ${model}: ${challengerRows(result)}`,
    ...agreementTables(shown),
    ...apartTable(apart, width),
    ...differentRowTables(shown),
  ];
}

/** The agreement as tables show it. */
function shownAgreement({ columns, tolerance }: ChallengerResult): ShownAgreement {
  return { columns: new Map(columns), tolerance, names: ["champion", "challenger"], keysOf: ({ keys }) => keys };
}
