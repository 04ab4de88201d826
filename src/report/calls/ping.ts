import { setTimeout as sleep } from "node:timers/promises";
import { errnoOf } from "../../util/errors.js";

/** A URL to call, and what to send. */
export interface Ping {
  /** The key of the spec ("report.on_failure"), for messages: the URL may contain a secret, and is never written. */
  readonly key: string;
  readonly url: string;
  /** JSON that is sent by POST; undefined for a GET. */
  readonly body: string | undefined;
  /** Sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
  /** The limit of all tries together. */
  readonly timeoutMs: number;
  readonly tries: number;
}

const pauseMs = 250;

/**
 * Calls a URL. Resolves to an error for the log, and never rejects: a failed call does not change the run's outcome.
 * Redirects are not followed, because they could pass a secret in the URL on to another server.
 */
export async function ping({ key, tries, ...request }: Ping): Promise<string | undefined> {
  const signal = AbortSignal.timeout(request.timeoutMs);
  for (let turn = 1; ; turn += 1) {
    const failure = await call(request, signal);
    if (failure === undefined) {
      return undefined;
    }
    if (!failure.isTransient || turn === tries || signal.aborted) {
      return `calling ${key}: ${failure.found}`;
    }
    // When the time is over, the next call ends at once and says so.
    await sleep(pauseMs * 2 ** turn, undefined, { signal }).catch(() => undefined);
  }
}

interface Failure {
  /** The error, without any part of the URL. */
  readonly found: string;
  /** Whether another try may succeed. */
  readonly isTransient: boolean;
}

async function call(
  { url, body, token, timeoutMs }: Pick<Ping, "url" | "body" | "token" | "timeoutMs">,
  signal: AbortSignal,
): Promise<Failure | undefined> {
  try {
    const response = await fetch(url, {
      signal,
      redirect: "manual",
      headers: {
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...(token === undefined ? {} : { authorization: `Bearer ${token}` }),
      },
      ...(body === undefined ? {} : { method: "POST", body }),
    });
    await response.body?.cancel();
    const { ok, status } = response;
    return ok ? undefined : { found: `HTTP ${status}`, isTransient: status >= 500 || status === 429 };
  } catch (error) {
    if (signal.aborted) {
      return { found: `no answer within ${timeoutMs / 1000} s`, isTransient: false };
    }
    const errno = errnoOf(error instanceof Error ? error.cause : undefined);
    return { found: errno ?? "the request failed", isTransient: errno !== undefined };
  }
}
