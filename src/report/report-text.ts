import type { RowsOfRun } from "../publish/span-record.js";
import { lostText } from "./spending/spending-text.js";
import { checksText, count, rate, type RunReport, showCount, showRate, spentText } from "./report.js";

/** "6,177 rows, 2,676 rejected". */
export function rowsOfRunText(rows: RowsOfRun): string {
  return [count(rows.output, "row"), ...otherRowsText(rows)].join(", ");
}

/** The rows of a run that are not in its output: "2,676 rejected". */
export function otherRowsText({ rejected, filtered }: RowsOfRun): string[] {
  return [
    ...(rejected === 0 ? [] : [`${showCount(rejected)} rejected`]),
    ...(filtered === 0 ? [] : [`${showCount(filtered)} filtered out`]),
  ];
}

/** The report as one line for people. */
export function reportText(report: RunReport): string {
  const { runId, output, rolledBack } = report;
  const found = report.rowsOfRun ?? { output: report.rowsPlanned, rejected: 0, filtered: 0 };
  const rows = count(found.output, "row");
  const others = otherRowsText(found).length === 0 ? "" : ` (${otherRowsText(found).join(", ")})`;
  if (rolledBack !== undefined) {
    const { readersHave, newRun } = rolledBack;
    const readers = readersHave === undefined ? "" : `; readers have ${readersHave}`;
    return `${runId}: rolled back, its rows are not in ${output}${readers}; to score it again: ${newRun}`;
  }
  if (report.status === "already_complete") {
    return `${runId}: already complete, ${rows} in ${output}${others}${checksText(report.verdict)}`;
  }
  if (report.status === "discarded") {
    return `${runId}: discarded; ${report.decided?.readers ?? `nothing of it is published in ${output}`}`;
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
  const { rowsRejected, rowsFiltered, rowsReused, spansResumed } = report;
  const reused = rowsReused === 0 ? "" : `, ${showCount(rowsReused)} of them reused`;
  const rejected = rowsRejected === 0 ? "" : `, ${count(rowsRejected, "row")} rejected`;
  const filtered = rowsFiltered === 0 ? "" : `, ${count(rowsFiltered, "row")} filtered out`;
  const resumed = spansResumed === 0 ? "" : `, ${count(spansResumed, "span")} found committed`;
  const seconds = report.seconds.toFixed(report.seconds < 10 ? 1 : 0);
  return `${count(report.rowsScored, "row")} scored in ${seconds} s (${showRate(rate(report))})${reused}${rejected}${filtered}${resumed}`;
}

/** What the run has spent, what its checks say, and where its rows are. */
function endText({ status, output, spending, verdict }: RunReport): string {
  const spent = spending === undefined ? "" : `; ${spentText(spending.run)}${lostText(spending.requestsLost)}`;
  const where = status === "held" ? `; nothing of it is published in ${output}` : `${checksText(verdict)} -> ${output}`;
  return `${spent}${where}`;
}
