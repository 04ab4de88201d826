import { costOf, type Price, type Spending, type Spent } from "../../engine/paid.js";
import type { RecordedSpending } from "../../publish/recorded-run.js";
import { type SpendingReport, spentFields, type SpentReport } from "../../report/spending/spending-report.js";

/** What an engine spent, as reports have it. */
export function spendingReport({ own, run, lost, reused, price }: Spending): SpendingReport {
  return { attempt: spentReport(own, price), run: spentReport(run, price), rowsReused: reused, requestsLost: lost };
}

/** What all attempts and workers of a run spent, as its target stores it. */
export function runSpending({ run, price }: Spending): RecordedSpending {
  return spentFields(spentReport(run, price));
}

function spentReport(spent: Spent, price: Price | undefined): SpentReport {
  const { answers, prompt, cached, completion } = spent;
  const cost = price === undefined ? null : costOf(spent, price);
  return { answers, promptTokens: prompt, cachedTokens: cached, completionTokens: completion, cost };
}
