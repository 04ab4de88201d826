import type { RowsOfRun } from "../publish/rows-of-run.js";
import { checksText, count, paidTwiceText, rate, type RunReport, showCount, showRate, spentText } from "./report.js";

/** "6,177 rows, 2,676 rejected"; of a run of rejects "10 of 18 rejected rows scored, 8 rejected again, 82 other rows unchanged". */
export function rowsOfRunText(rows: RowsOfRun): string {
  return [outputText(rows), ...otherRowsText(rows)].join(", ");
}

/** The rows of a run that are not in its output: "2,676 rejected". */
export function otherRowsText({ rejected, filtered, unchanged }: RowsOfRun): string[] {
  return [
    ...(rejected === 0 ? [] : [`${showCount(rejected)} rejected${unchanged === undefined ? "" : " again"}`]),
    ...(filtered === 0 ? [] : [`${showCount(filtered)} filtered out`]),
    ...unchangedText(unchanged),
  ];
}

/** Says nothing of no rows, nor of a run that has all rows of its input. */
function unchangedText(rows: number | undefined): string[] {
  return rows === undefined || rows === 0 ? [] : [`${count(rows, "other row")} unchanged`];
}

/** The rows that a run has written: "6,177 rows"; of a run of rejects "10 of 18 rejected rows scored". */
function outputText({ output, rejected, unchanged }: RowsOfRun): string {
  return unchanged === undefined
    ? count(output, "row")
    : `${showCount(output)} of ${count(output + rejected, "rejected row")} scored`;
}

/** The report as one line for people. */
export function reportText(report: RunReport): string {
  const { runId, output, rolledBack } = report;
  const found = report.rowsOfRun ?? { output: report.rowsPlanned, rejected: 0, filtered: 0 };
  const rows = outputText(found);
  const others = otherRowsText(found).length === 0 ? "" : ` (${otherRowsText(found).join(", ")})`;
  if (rolledBack !== undefined) {
    const { readersHave, newRun } = rolledBack;
    const readers = readersHave === undefined ? "" : `; readers have ${readersHave}`;
    return `${runId}: rolled back, its rows are not in ${output}${readers}; to score it again: ${newRun}`;
  }
  if (report.status === "already_complete") {
    return `${runId}: already complete, ${rows}${found.unchanged === undefined ? "" : ","} in ${output}${others}${checksText(report.verdict)}`;
  }
  if (report.status === "discarded") {
    const readers = report.decided?.readers === undefined ? "" : `; ${report.decided.readers}`;
    return `${runId}: discarded, nothing of it is published in ${output}${readers}`;
  }
  if (report.status === "held" && report.rowsScored === 0) {
    return `${runId}: held, ${rows} wait for a decision${others}`;
  }
  const status =
    report.status !== "partial"
      ? report.status
      : `partial, ${report.spansPlanned - report.spansCommitted} of ${count(report.spansPlanned, "span")} left to other workers`;
  return `${runId}: ${status}, ${attemptText(report)}${endText(report)}`;
}

/** What an attempt that scored rows has made of them, and how fast. */
function attemptText(report: RunReport): string {
  const { rowsRejected, rowsFiltered, rowsReused, rowsUnchanged, spansResumed } = report;
  const reused = rowsReused === 0 ? "" : `, ${showCount(rowsReused)} of them reused`;
  const again = rowsUnchanged === undefined ? "" : " again";
  const rejected = rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected${again}`;
  const filtered = rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`;
  const unchanged = unchangedText(rowsUnchanged).map((text) => `, ${text}`);
  const resumed = spansResumed === 0 ? "" : `, ${count(spansResumed, "span")} found committed`;
  const seconds = report.seconds.toFixed(report.seconds < 10 ? 1 : 0);
  return `${scoredText(report)} in ${seconds} s (${showRate(rate(report))})${reused}${rejected}${filtered}${unchanged.join("")}${resumed}`;
}

/** The rows that an attempt has scored; of a run of rejects, out of how many if the attempt scored the whole run. */
function scoredText({ status, rowsScored, rowsRejected, rowsUnchanged, spansResumed }: RunReport): string {
  if (rowsUnchanged === undefined) {
    return `${count(rowsScored, "row")} scored`;
  }
  return spansResumed === 0 && status !== "partial"
    ? outputText({ output: rowsScored, rejected: rowsRejected, filtered: 0, unchanged: rowsUnchanged })
    : `${count(rowsScored, "rejected row")} scored`;
}

/** What the run has spent, what its checks say, and where its rows are. */
function endText({ status, output, spending, verdict }: RunReport): string {
  const spent =
    spending === undefined ? "" : `; ${spentText(spending.run)}${paidTwiceText(spending.run.mostPaidTwice)}`;
  const where = status === "held" ? `; nothing of it is published in ${output}` : `${checksText(verdict)} -> ${output}`;
  return `${spent}${where}`;
}
