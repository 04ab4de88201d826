import { costOf, type Price, type Spending, type Spent } from "../../engine/paid-engine.js";
import type { SpendingReport, SpentReport } from "../../report/spending/spending-report.js";

/** What an engine spent, as reports have it. */
export function spendingReport({ own, run, lost, reused, price }: Spending): SpendingReport {
  return { attempt: spentReport(own, price), run: spentReport(run, price), rowsReused: reused, requestsLost: lost };
}

function spentReport(spent: Spent, price: Price | undefined): SpentReport {
  const { answers, prompt, cached, completion } = spent;
  const cost = price === undefined ? null : costOf(spent, price);
  return { answers, promptTokens: prompt, cachedTokens: cached, completionTokens: completion, cost };
}
