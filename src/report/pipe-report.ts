import { count } from "./report.js";

/** Counts of a pipe's rows. */
export interface PipeReport {
  readonly rowsRead: number;
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  readonly seconds: number;
}

/** The report as one line for people. */
export function pipeText(report: PipeReport): string {
  const { rowsRead, rowsScored, rowsRejected, rowsFiltered, seconds } = report;
  const others = [
    rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected`,
    rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`,
  ].join("");
  return `${count(rowsScored, "row")} of ${count(rowsRead, "row")} scored${others}, in ${seconds.toFixed(1)} s`;
}
