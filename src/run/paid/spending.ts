import {
  costOf,
  type PaidState,
  type Price,
  type RunCount,
  type Spending,
  type Spent,
} from "../../engine/paid-engine.js";
import type { PaidReport } from "../../report/spending/paid-text.js";
import type { RecordedSpending } from "../../publish/recorded-run.js";
import {
  type RunSpentReport,
  runSpentFields,
  type SpendingReport,
  type SpentReport,
} from "../../report/spending/spending-report.js";
import { JobError } from "../../util/errors.js";

/** What an engine spent, as reports have it. */
export function spendingReport(spending: Spending): SpendingReport {
  const { own, lost, reused, price } = spending;
  return {
    attempt: spentReport(own, price),
    run: runReport(spending),
    rowsReused: reused,
    requestsLost: lost,
  };
}

function runReport({ run, unanswered, price }: Spending): RunSpentReport {
  return { ...spentReport(run, price), mostPaidTwice: unanswered };
}

/** What all attempts and workers of a run spent, as its target stores it. */
export function runSpending(spending: Spending): RecordedSpending {
  return runSpentFields(runReport(spending));
}

/** The stored spending of a run, as the engine counts it. */
export function countOfRecord(record: RecordedSpending): RunCount {
  const { answers, prompt_tokens: prompt, cached_tokens: cached, completion_tokens: completion } = record;
  return { spent: { answers, prompt, cached, completion }, unanswered: record.most_paid_twice ?? 0 };
}

/** What an unfinished run has paid for and asked for, as reports have it. */
export function paidReport({ kept, price, batches }: PaidState): PaidReport {
  return {
    kept: kept instanceof JobError ? kept.message : spentReport(kept, price),
    batches: batches instanceof JobError ? batches.message : batches,
  };
}

function spentReport(spent: Spent, price: Price | undefined): SpentReport {
  const { answers, prompt, cached, completion } = spent;
  const cost = price === undefined ? null : costOf(spent, price);
  return { answers, promptTokens: prompt, cachedTokens: cached, completionTokens: completion, cost };
}
