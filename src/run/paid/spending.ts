import { type PaidReport, type SpendingReport, type SpentReport, spentFields } from "../../report/report.js";
import type { RecordedSpending } from "../../publish/recorded-run.js";
import { type LookAtPaid, type Price, type Spending, type Spent, costOf } from "../../engine/port.js";
import { JobError } from "../../util/errors.js";

/** What an engine spent, as reports have it. */
export function spendingReport({ own, run, lost, reused, price }: Spending): SpendingReport {
  return {
    attempt: spentReport(own, price),
    run: spentReport(run, price),
    rowsReused: reused,
    requestsLost: lost,
  };
}

/** What all attempts and workers of a run spent, as its target stores it. */
export function runSpending({ run, price }: Spending): RecordedSpending {
  return spentFields(spentReport(run, price));
}

/** The stored spending of a run, as the engine counts it. */
export function spentOfRecord(record: RecordedSpending): Spent {
  const { answers, prompt_tokens: prompt, cached_tokens: cached, completion_tokens: completion } = record;
  return { answers, prompt, cached, completion };
}

/** What an unfinished run has paid for. Answers that cannot be read hide nothing else of the run. */
export async function paidReport(lookAtPaid: LookAtPaid, answers: Parameters<LookAtPaid>[0]): Promise<PaidReport> {
  try {
    const { kept, price } = await lookAtPaid(answers);
    return spentReport(kept, price);
  } catch (error) {
    if (error instanceof JobError) {
      return error.message;
    }
    throw error;
  }
}

function spentReport(spent: Spent, price: Price | undefined): SpentReport {
  const { answers, prompt, cached, completion } = spent;
  const cost = price === undefined ? null : costOf(spent, price);
  return { answers, promptTokens: prompt, cachedTokens: cached, completionTokens: completion, cost };
}
