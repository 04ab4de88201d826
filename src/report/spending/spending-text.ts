import { count, spentText } from "../report.js";
import type { SpendingReport } from "./spending-report.js";

/** What a run paid for, and how, for people. */
export function spendingText({ attempt, run, rowsReused, requestsLost }: SpendingReport): string {
  const own = attempt.answers === run.answers ? "" : `; ${count(attempt.answers, "answer")} of them in this attempt`;
  const reused = rowsReused === 0 ? "" : `; ${count(rowsReused, "row")} took an answer that was there`;
  return `${spentText(run)}${own}${reused}${lostText(requestsLost)}`;
}

/** The part of a line about spending that says how many answers were lost. */
export function lostText(requestsLost: number): string {
  return requestsLost === 0 ? "" : `; ${count(requestsLost, "request")} got no answer, and may have been paid for`;
}
