import { count } from "./report.js";

/** What became of a stream's rows. */
export interface PipeReport {
  readonly rowsRead: number;
  readonly rowsScored: number;
  readonly rowsRejected: number;
  readonly rowsFiltered: number;
  readonly seconds: number;
}

/** One line for people. */
export function pipeText({ rowsRead, rowsScored, rowsRejected, rowsFiltered, seconds }: PipeReport): string {
  const others = [
    rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected`,
    rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`,
  ].join("");
  return `${count(rowsScored, "row")} of ${count(rowsRead, "row")} scored${others}, in ${seconds.toFixed(1)} s`;
}
