import { count, repeatedText } from "./report.js";

/** What became of a stream's rows. */
export interface PipeReport {
  readonly rowsRead: number;
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  /** Of those that were scored, the ones that took the prediction of a row before them. */
  readonly rowsDeduplicated: number;
  readonly seconds: number;
}

/** One line for people. */
export function pipeText(report: PipeReport): string {
  const { rowsRead, rowsScored, rowsRejected, rowsFiltered, rowsDeduplicated, seconds } = report;
  const others = [
    repeatedText(rowsDeduplicated),
    rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected`,
    rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`,
  ].join("");
  return `${count(rowsScored, "row")} of ${count(rowsRead, "row")} scored${others}, in ${seconds.toFixed(1)} s`;
}
