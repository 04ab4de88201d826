import { count, showCost, showCount } from "../report.js";

/** What a run will take, about. */
export interface PlanEstimate {
  readonly requests: number;
  /** Batches that they are sent in, each of which may take a day; undefined: they are sent one by one. */
  readonly batches: number | undefined;
  readonly promptTokens: number;
  /** The share by which `promptTokens` may be wrong. */
  readonly error: number;
  /** If each answer is as long as it may be; undefined: answers have no limit. */
  readonly mostCompletionTokens: number | undefined;
  /** With such answers; undefined: prices or limits are not known. */
  readonly mostCost: number | undefined;
  readonly limits: { readonly tokens: number | undefined; readonly cost: number | undefined };
}

/** The estimate as a line for people. */
export function estimateText(estimate: PlanEstimate): string {
  const { requests, batches, promptTokens, error, mostCompletionTokens, mostCost, limits } = estimate;
  const most = mostCompletionTokens === undefined ? "" : `, at most ${showCount(mostCompletionTokens)} out`;
  const cost = mostCost === undefined ? "" : `, cost up to about ${showCost(mostCost)}`;
  const limit =
    limits.cost !== undefined
      ? ` of max_cost ${limits.cost}`
      : limits.tokens !== undefined
        ? ` (max_tokens ${showCount(limits.tokens)})`
        : "";
  const sent =
    batches === undefined
      ? ""
      : ` in ${batches === 1 ? "1 batch, which" : `${showCount(batches)} batches, each of which`} may take 24 hours`;
  return `about ${count(requests, "prompt")}${sent}, ${showCount(promptTokens)} tokens in (by bytes, ±${Math.round(error * 100)}%)${most}${cost}${limit}`;
}

/** The estimate under its JSON names. */
export function estimateFields(estimate: PlanEstimate): object {
  return {
    requests: estimate.requests,
    ...(estimate.batches === undefined ? {} : { batches: estimate.batches }),
    prompt_tokens: estimate.promptTokens,
    prompt_tokens_error: estimate.error,
    most_completion_tokens: estimate.mostCompletionTokens ?? null,
    most_cost: estimate.mostCost ?? null,
  };
}
