import type { JobError } from "../util/errors.js";
import type { RetryTools } from "../util/retry.js";
import type { FindProxy } from "./proxy.js";
import type { TlsSettings } from "./request.js";

/** A place that answers HTTP requests. */
export interface HttpPlace {
  /** The act that messages begin with. */
  readonly doing: string;
  readonly retry: RetryTools;
  readonly signal: AbortSignal;
  /** Longest silence of the server in a request. Default: 30 s. */
  readonly silenceMs?: number | undefined;
  /** Sent to the origin of the URL, and never to another one that it redirects to. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** For the origin of the URL alone. */
  readonly tls?: TlsSettings | undefined;
  readonly findProxy: FindProxy;
  /** Makes the error for an answer that a retry does not change. */
  readonly refused: (answer: HttpAnswer) => JobError;
  /** What to do when the server is still away after all retries. */
  readonly hint: string;
}

/** An answer without its body. */
export interface HttpAnswer {
  readonly status: number;
  readonly headers: Headers;
  /** Where the answer came from, after redirects, without its query, which may have a signature. */
  readonly place: string;
  /** The beginning of the body of a refusal; "" for other answers. */
  readonly said: string;
}
