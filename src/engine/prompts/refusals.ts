import type { AnswerFault } from "../../columnar/types.js";
import { saidIn } from "../served/server.js";
import { type Refusal, refusalKind } from "../served/refusals.js";
import { assertNever } from "../../util/errors.js";
import type { RequestForm } from "./request.js";

/** An answer without a result. */
export type PromptRefusal =
  /** The request of this row. */
  | { readonly kind: "row"; readonly reason: AnswerFault | undefined; readonly message: string }
  /** The form of requests: the server may take this one. `message`: what it says of the other one */
  | { readonly kind: "form"; readonly form: RequestForm; readonly message: string }
  /** The account has no money left. */
  | { readonly kind: "quota"; readonly message: string }
  /** The server takes no more requests now. `isRate`: there were too many in a time */
  | { readonly kind: "overloaded"; readonly message: string; readonly retryAfterMs: number; readonly isRate: boolean }
  | { readonly kind: "fault"; readonly message: string }
  | { readonly kind: "final" };

const quota =
  /insufficient_quota|billing_hard_limit|billing_not_active|insufficient (balance|credits|funds)|exceeded your current quota|credit balance is too low|out of credits/i;
const tooLong =
  /context_length_exceeded|exceed_context_size|maximum context|context (length|size|window)|prompt is too long|input (is )?too long|maximum (input|sequence) length|too many input tokens/i;
/** OpenAI's 429 to a request with more tokens than an account may send in a minute: it is never taken. */
const neverTaken = /request too large for .* tokens per min/i;
const policy = /content_filter|content_policy|content management policy|invalid_prompt|flagged/i;
const structured = /response_format|json_?\s?schema|structured output|grammar|guided/i;

/** Classifies an answer without a result. @param form the form of the request */
export function promptRefusal(refusal: Refusal, form: RequestForm): PromptRefusal {
  const { status, said } = refusal;
  const found = refusalKind(refusal);
  if (status === 402 || ((status === 429 || status === 403) && quota.test(said))) {
    return { kind: "quota", message: "message" in found ? found.message : `the server answered ${status}` };
  }
  if (status === 429 && neverTaken.test(said)) {
    return { kind: "row", reason: "prompt_too_long", message: `the server answered ${status}: ${saidIn(said)}` };
  }
  switch (found.kind) {
    case "values":
      return valuesRefusal(found.message, said, form);
    case "too large":
      return { kind: "row", reason: "prompt_too_long", message: found.message };
    case "fault":
      return found;
    case "overloaded":
      return { ...found, isRate: status === 429 };
    case "gone":
    case "other":
      return { kind: "final" };
    default:
      return assertNever(found);
  }
}

function valuesRefusal(message: string, said: string, form: RequestForm): PromptRefusal {
  if (form.tokensKey === "max_tokens" && /max_completion_tokens/.test(said)) {
    return { kind: "form", form: { ...form, tokensKey: "max_completion_tokens" }, message };
  }
  if (tooLong.test(said)) {
    return { kind: "row", reason: "prompt_too_long", message };
  }
  if (policy.test(said)) {
    return { kind: "row", reason: "answer_refused", message };
  }
  return form.isStructured && structured.test(said)
    ? { kind: "form", form: { ...form, isStructured: false }, message }
    : { kind: "row", reason: undefined, message };
}
