import { errnoOf, JobError, messageOf } from "../util/errors.js";
import { connectionErrors, type Verdict } from "../util/retry.js";
import type { HttpAnswer, HttpEndpoint } from "./http-endpoint.js";
import { RefusingProxyError, type ResponseHeaders } from "./request.js";
import { isCertificateError, isTlsProtocolError } from "../util/tls-errors.js";

/** A response that is neither a success nor a redirect. */
export class RefusedAnswer extends Error {
  readonly answer: HttpAnswer;

  constructor(answer: HttpAnswer) {
    super(`HTTP ${answer.status}`);
    this.answer = answer;
  }
}

/** A transfer that ended early, timed out or did not follow the protocol. It is always transient. */
export class BrokenTransfer extends Error {}

/**
 * The pause that a server asks for, in seconds or until a date; 0 if it asks for none. OpenAI and Azure round seconds up,
 * and send milliseconds in a header of their own; Hugging Face has seconds in `RateLimit`.
 */
export function retryAfterMs(headers: ResponseHeaders): number {
  const exact = headers.get("retry-after-ms") ?? "";
  if (/^\d+(\.\d+)?$/.test(exact)) {
    return Number(exact);
  }
  const [, limit = ""] = /;t=(\d+)/.exec(headers.get("ratelimit") ?? "") ?? [];
  const given = headers.get("retry-after") ?? limit;
  if (/^\d+$/.test(given)) {
    return Number(given) * 1000;
  }
  const until = Date.parse(given);
  return Number.isNaN(until) ? 0 : Math.max(0, until - Date.now());
}

const transientStatus: ReadonlySet<number> = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Classifies a failed request: it is retried, or ends with an error. */
export function verdictOf(place: HttpEndpoint, error: unknown): Verdict {
  const { refused, signal } = place;
  if (signal.aborted) {
    return { kind: "end", error: signal.reason };
  }
  if (error instanceof RefusedAnswer) {
    const { answer } = error;
    return transientStatus.has(answer.status)
      ? { kind: "again", found: `the server answered ${answer.status}` }
      : { kind: "end", error: refused(answer) };
  }
  if (error instanceof BrokenTransfer) {
    return { kind: "again", found: error.message };
  }
  if (error instanceof RefusingProxyError) {
    return transientStatus.has(error.status)
      ? { kind: "again", found: error.message }
      : { kind: "end", error: refusedByProxy(place, error) };
  }
  return judgeConnection(place, error);
}

function refusedByProxy({ doing }: HttpEndpoint, { message }: RefusingProxyError): JobError {
  return new JobError("PERMISSION", `${doing}: ${message}`, {
    hint: "set HTTPS_PROXY and HTTP_PROXY to the proxy, with user and password if it needs them; NO_PROXY lists hosts that are reached without it",
  });
}

function judgeConnection({ doing }: HttpEndpoint, error: unknown): Verdict {
  const errno = errnoOf(error) ?? "";
  // HPE_…: the response is not HTTP. Z_…: its compressed body is damaged.
  if (connectionErrors.has(errno) || /^(HPE|Z)_/.test(errno)) {
    return { kind: "again", found: errno };
  }
  if (isCertificateError(errno)) {
    const hint = "set NODE_EXTRA_CA_CERTS to a file with the authority's certificate";
    const message = `${doing}: the server's certificate is not trusted: ${messageOf(error)} (${errno})`;
    return { kind: "end", error: new JobError("PERMISSION", message, { hint, cause: error }) };
  }
  if (isTlsProtocolError(errno)) {
    const isLogin = /CERTIFICATE_REQUIRED|BAD_CERTIFICATE|UNKNOWN_CA|HANDSHAKE_FAILURE/.test(errno);
    const found = isLogin
      ? "accepts no certificate of this client, or none was given"
      : "does not speak TLS as this program does";
    const message = `${doing}: the server ${found} (${errno})`;
    const hint = isLogin
      ? "servers that ask for a certificate need one that their authority signed"
      : "check the URL with curl -I";
    return { kind: "end", error: new JobError("PERMISSION", message, { hint, cause: error }) };
  }
  return { kind: "end", error };
}

/** Calls `onOver` once so much time has passed. */
export interface Deadline extends Disposable {
  /** Begins the time anew. */
  readonly reset: () => void;
}

export function startDeadline(ms: number, onOver: () => void): Deadline {
  // While something blocks the thread, received bytes wait unread: they are read before this decides that none came.
  let pending: NodeJS.Immediate | undefined;
  const timer = setTimeout(() => {
    pending = setImmediate(onOver);
  }, ms);
  return {
    reset() {
      clearImmediate(pending);
      timer.refresh();
    },
    [Symbol.dispose]() {
      clearTimeout(timer);
      clearImmediate(pending);
    },
  };
}

/** The finding of a request that is stopped at its time limit. */
export function tookTooLong(ms: number): BrokenTransfer {
  return new BrokenTransfer(`the request took more than ${ms / 1000} s`);
}

const usualSilenceMs = 30_000;

/** Ends a request that takes too long. */
export interface RequestTimeout extends Deadline {
  readonly signal: AbortSignal;
}

/** Ends a request in which the server is silent for so long: `reset` when bytes come. */
export function startSilenceTimeout(signal: AbortSignal, silenceMs = usualSilenceMs): RequestTimeout {
  return startTimeout(signal, silenceMs, () => new BrokenTransfer(`the server was silent for ${silenceMs / 1000} s`));
}

/** @param signal stops the request too; @param reasonOf makes the reason that a request which is over time ends with */
export function startTimeout(
  signal: AbortSignal,
  ms: number,
  reasonOf: (ms: number) => BrokenTransfer,
): RequestTimeout {
  const controller = new AbortController();
  const deadline = startDeadline(ms, () => {
    controller.abort(reasonOf(ms));
  });
  const stop = (): void => {
    controller.abort(signal.reason);
  };
  signal.addEventListener("abort", stop, { once: true });
  if (signal.aborted) {
    stop();
  }
  return {
    signal: controller.signal,
    reset: deadline.reset,
    [Symbol.dispose]() {
      deadline[Symbol.dispose]();
      signal.removeEventListener("abort", stop);
      controller.abort(); // closes a response whose body was not read to its end
    },
  };
}
