import type { RecordedSpending } from "../../publish/recorded-run.js";

/** What an attempt, and its run, paid for. */
export interface SpendingReport {
  /** Answers that this attempt paid for. */
  readonly attempt: SpentReport;
  /** Answers that all attempts and workers of the run paid for, as far as they are known. */
  readonly run: SpentReport;
  /** Rows of this attempt that took an answer which was there already. */
  readonly rowsReused: number;
  /** Requests of this attempt whose answer was lost. They may have cost something. */
  readonly requestsLost: number;
}

/** Answers, and the tokens and money that they cost. */
export interface SpentReport {
  readonly answers: number;
  readonly promptTokens: number;
  /** The part of the prompts' tokens that the server had cached. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** null: the spec has no prices. */
  readonly cost: number | null;
}

/** The report's fields under their JSON names. */
export function spendingFields({ attempt, run, rowsReused, requestsLost }: SpendingReport): object {
  return { ...spentFields(attempt), rows_reused: rowsReused, requests_lost: requestsLost, run: spentFields(run) };
}

/** What was spent under its JSON names. */
export function spentFields({
  answers,
  promptTokens,
  cachedTokens,
  completionTokens,
  cost,
}: SpentReport): RecordedSpending {
  return {
    answers,
    prompt_tokens: promptTokens,
    cached_tokens: cachedTokens,
    completion_tokens: completionTokens,
    cost: cost === null ? null : roundedCost(cost),
  };
}

/** Millionths of the currency: sums of floating-point numbers have more digits than prices. */
function roundedCost(cost: number): number {
  return Math.round(cost * 1e6) / 1e6;
}
