import { count, repeatedText } from "./report.js";

/** Counts of a pipe's rows. */
export interface PipeReport {
  readonly rowsRead: number;
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  /** Scored rows that took the prediction of an equal earlier row. */
  readonly rowsDeduplicated: number;
  readonly seconds: number;
}

/** The report as one line for people. */
export function pipeText(report: PipeReport): string {
  const { rowsRead, rowsScored, rowsRejected, rowsFiltered, rowsDeduplicated, seconds } = report;
  const others = [
    repeatedText(rowsDeduplicated),
    rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected`,
    rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`,
  ].join("");
  return `${count(rowsScored, "row")} of ${count(rowsRead, "row")} scored${others}, in ${seconds.toFixed(1)} s`;
}
