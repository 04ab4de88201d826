import { setTimeout as sleep } from "node:timers/promises";
import { errnoOf } from "../util/errors.js";

export interface Ping {
  /** Where the spec has it ("report.on_failure"): its URL may hold a secret, and is told nowhere. */
  readonly key: string;
  readonly url: string;
  /** JSON to POST; undefined: GET. */
  readonly body: string | undefined;
  /** For all tries together. */
  readonly timeoutMs: number;
  readonly tries: number;
}

const pauseMs = 250;

/**
 * Calls a URL. Never fails: what has been scored stands, whoever is told of it. Returns what went wrong, for the log.
 * A redirect is not followed, since it could take the secret of a URL to somebody else.
 */
export async function ping({ key, tries, ...request }: Ping): Promise<string | undefined> {
  const signal = AbortSignal.timeout(request.timeoutMs);
  for (let turn = 1; ; turn += 1) {
    const failure = await call(request, signal);
    if (failure === undefined) {
      return undefined;
    }
    if (!failure.again || turn === tries || signal.aborted) {
      return `calling ${key}: ${failure.found}`;
    }
    // When the time is over, the next call ends at once and says so.
    await sleep(pauseMs * 2 ** turn, undefined, { signal }).catch(() => undefined);
  }
}

interface Failure {
  /** In words that quote nothing of the URL. */
  readonly found: string;
  /** Whether it is worth another try. */
  readonly again: boolean;
}

async function call(
  { url, body, timeoutMs }: Pick<Ping, "url" | "body" | "timeoutMs">,
  signal: AbortSignal,
): Promise<Failure | undefined> {
  try {
    const response = await fetch(url, {
      signal,
      redirect: "manual",
      ...(body === undefined ? {} : { method: "POST", body, headers: { "content-type": "application/json" } }),
    });
    await response.body?.cancel();
    const { ok, status } = response;
    return ok ? undefined : { found: `HTTP ${status}`, again: status >= 500 || status === 429 };
  } catch (error) {
    if (signal.aborted) {
      return { found: `no answer within ${timeoutMs / 1000} s`, again: false };
    }
    const errno = errnoOf(error instanceof Error ? error.cause : undefined);
    return { found: errno ?? "the request failed", again: errno !== undefined };
  }
}
