import { count, paidTwiceText, showCount, spentText } from "../report.js";
import type { SpendingReport } from "./spending-report.js";

/** What a run paid for, and how, for people. */
export function spendingText({ attempt, run, rowsReused, requestsLost }: SpendingReport): string {
  const reused = rowsReused === 0 ? "" : `; ${count(rowsReused, "row")} took an answer that was there`;
  const lost =
    requestsLost === 0 || requestsLost === run.mostPaidTwice
      ? ""
      : `, ${showCount(requestsLost)} of them in this attempt`;
  const own = attempt.answers === run.answers ? "" : `; ${count(attempt.answers, "answer")} of them in this attempt`;
  return `${spentText(run)}${paidTwiceText(run.mostPaidTwice)}${lost}${own}${reused}`;
}
