import type { ResponseHeaders } from "../../net/request.js";
import { saidIn } from "./server.js";

/** An answer to a request for predictions that has none. */
export interface Refusal {
  readonly status: number;
  readonly headers: ResponseHeaders;
  readonly said: string;
}

/** The request that was refused. */
export type RefusalKind =
  /** The values of the request. */
  | { readonly kind: "values"; readonly message: string }
  | { readonly kind: "too large"; readonly message: string }
  /** The server failed, and does not say whether the values are why (500). */
  | { readonly kind: "fault"; readonly message: string }
  /** The server takes no more requests now. */
  | { readonly kind: "overloaded"; readonly message: string; readonly retryAfterMs: number }
  /** The server does not know the model or its version. */
  | { readonly kind: "gone"; readonly message: string }
  | { readonly kind: "other" };

const overloaded: ReadonlySet<number> = new Set([408, 425, 429, 502, 503, 504]);

/** Triton answers 400 to what other servers answer 404 or 413 to. */
const unknownModel = /^request for unknown model|has no available versions/i;
const batchTooLarge = /batch-size must be <= \d+/i;

export function refusalKind(refusal: Refusal): RefusalKind {
  const { headers, said } = refusal;
  const text = saidIn(said);
  const message = `the server answered ${refusal.status}${text === "" ? "" : `: ${text}`}`;
  const status = statusOfModel(refusal);
  if (overloaded.has(status) || throttled.test(headers.get("x-amzn-errortype") ?? "")) {
    return { kind: "overloaded", message, retryAfterMs: retryAfterMs(headers) };
  }
  if (status === 404 || (status === 400 && unknownModel.test(text))) {
    return { kind: "gone", message };
  }
  if (status === 413 || (status === 400 && batchTooLarge.test(text))) {
    return { kind: "too large", message };
  }
  if (status === 400 || status === 422) {
    return { kind: "values", message };
  }
  return status === 500 ? { kind: "fault", message } : { kind: "other" };
}

/** SageMaker's error for requests beyond a limit, which has status 400. */
const throttled = /^Throttling/;

/** The status of the model's own answer: SageMaker wraps it into an answer with 424. */
function statusOfModel({ status, said }: Refusal): number {
  const [, original] = status === 424 ? (/"OriginalStatusCode"\s*:\s*(\d{3})/.exec(said) ?? []) : [];
  return original === undefined ? status : Number(original);
}

/**
 * The pause that the server asks for, in seconds or until a date; 0 if it asks for none. OpenAI and Azure round seconds
 * up, and send milliseconds in a header of their own.
 */
function retryAfterMs(headers: Refusal["headers"]): number {
  const exact = headers.get("retry-after-ms") ?? "";
  if (/^\d+(\.\d+)?$/.test(exact)) {
    return Number(exact);
  }
  const given = headers.get("retry-after") ?? "";
  if (/^\d+$/.test(given)) {
    return Number(given) * 1000;
  }
  const until = Date.parse(given);
  return Number.isNaN(until) ? 0 : Math.max(0, until - Date.now());
}
