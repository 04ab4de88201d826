import { printable } from "../../util/texts.js";
import { count, showCost, showCount } from "../report.js";

/** What a run will take, about. */
export interface PlanEstimate {
  readonly requests: number;
  readonly promptTokens: number;
  /** The share by which `promptTokens` may be wrong. */
  readonly error: number;
  /** The tokenizer that counted them, as the spec names it; undefined: bytes were counted. */
  readonly tokenizer: string | undefined;
  /** Rows whose prompts were counted. */
  readonly measuredRows: number;
  /** The part of `promptTokens` that each prompt has for the server's chat template: a guess. */
  readonly templateTokens: number;
  /** If each answer is as long as it may be; undefined: answers have no limit. */
  readonly mostCompletionTokens: number | undefined;
  /** With such answers; undefined: prices or limits are not known. */
  readonly mostCost: number | undefined;
  readonly limits: { readonly tokens: number | undefined; readonly cost: number | undefined };
}

/** The estimate as a line for people. */
export function estimateText(estimate: PlanEstimate): string {
  const { requests, promptTokens, mostCompletionTokens, mostCost, limits } = estimate;
  const most = mostCompletionTokens === undefined ? "" : `, at most ${showCount(mostCompletionTokens)} out`;
  const cost = mostCost === undefined ? "" : `, cost up to about ${showCost(mostCost)}`;
  const limit =
    limits.cost !== undefined
      ? ` of max_cost ${limits.cost}`
      : limits.tokens !== undefined
        ? ` (max_tokens ${showCount(limits.tokens)})`
        : "";
  return `about ${count(requests, "prompt")}, ${showCount(promptTokens)} tokens in (${countedText(estimate)})${most}${cost}${limit}`;
}

/** How input tokens were counted, and by which share they may be wrong. */
function countedText({ error, tokenizer, measuredRows, templateTokens }: PlanEstimate): string {
  const share = `±${Math.ceil(error * 100)}%`;
  if (tokenizer === undefined) {
    return `by bytes, ${share}`;
  }
  const template = templateTokens === 0 ? "" : `, with about ${templateTokens} a prompt for the chat template`;
  return `by ${printable(tokenizer)} in ${count(measuredRows, "row")}, ${share}${template}`;
}

/** The estimate under its JSON names. */
export function estimateFields(estimate: PlanEstimate): object {
  return {
    requests: estimate.requests,
    prompt_tokens: estimate.promptTokens,
    prompt_tokens_error: roundedShare(estimate.error),
    prompt_tokens_by: estimate.tokenizer ?? "bytes",
    most_completion_tokens: estimate.mostCompletionTokens ?? null,
    most_cost: estimate.mostCost ?? null,
  };
}

/** Thousandths: more digits would say more than a sample knows. */
function roundedShare(share: number): number {
  return Math.ceil(share * 1000) / 1000;
}
