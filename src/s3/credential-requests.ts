import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe } from "node:diagnostics_channel";
import type { ClientRequest } from "node:http";
import { messageOf } from "../util/errors.js";

/** One HTTP request that the SDK sends in its search for credentials. */
export interface CredentialRequest {
  /** `host` or `host:port`. */
  readonly host: string;
  readonly path: string;
  /** undefined: no response arrived. */
  readonly status: number | undefined;
  /** Why no response arrived, in the system's words. */
  readonly error: string | undefined;
}

/** Limits of one search for credentials. */
export interface SearchLimits {
  /** One request, from its start to its end. */
  readonly requestMs: number;
  /** The whole search, programs that the SDK runs included. */
  readonly totalMs: number;
  /** The job's signal; the search rejects with its reason. */
  readonly signal: AbortSignal;
}

/** A credentials service did not answer within a limit. */
export class CredentialsTimeoutError extends Error {}

interface Search {
  readonly requests: CredentialRequest[];
  readonly limits: SearchLimits;
  readonly open: Set<ClientRequest>;
  /** Rejects the search with `reason`, and destroys its open requests. */
  readonly end: (reason: Error) => void;
  hasEnded: boolean;
}

const searches = new AsyncLocalStorage<Search>();
let searchCount = 0;
let isSubscribed = false;

/**
 * Runs `search`, which has the SDK look for credentials, and records the HTTP requests that it sends in `requests`. The
 * SDK neither reports their outcome nor takes a signal or a timeout: some of its providers wait a minute for each of
 * four attempts.
 * @throws CredentialsTimeoutError when a limit is exceeded; the signal's reason; what `search` throws
 */
export async function recordRequests<T>(
  requests: CredentialRequest[],
  limits: SearchLimits,
  search: () => Promise<T>,
): Promise<T> {
  subscribeOnce();
  const { signal, totalMs } = limits;
  const settled = new AbortController();
  let timeout: NodeJS.Timeout | undefined;
  try {
    return await new Promise<T>((resolve, reject) => {
      const state: Search = { requests, limits, open: new Set(), end: endSearch, hasEnded: false };
      function endSearch(reason: Error): void {
        state.hasEnded = true;
        reject(reason);
        for (const request of state.open) {
          request.destroy();
        }
      }
      const stop = (): void => {
        endSearch(signal.reason as Error);
      };
      signal.addEventListener("abort", stop, { once: true, signal: settled.signal });
      timeout = setTimeout(
        endSearch,
        totalMs,
        new CredentialsTimeoutError(`no credentials came within ${totalMs / 1000} s`),
      );
      runIn(state, search).then(resolve, reject);
    });
  } finally {
    clearTimeout(timeout);
    settled.abort();
  }
}

/** Carries out a search, which may go on after its limits: until then its requests are known as its own. */
async function runIn<T>(state: Search, search: () => Promise<T>): Promise<T> {
  searchCount += 1;
  try {
    return await searches.run(state, search);
  } finally {
    searchCount -= 1;
    if (searchCount === 0) {
      searches.disable(); // on Node 20 it makes each promise of the process slower
    }
  }
}

function subscribeOnce(): void {
  if (isSubscribed) {
    return;
  }
  isSubscribed = true;
  subscribe("http.client.request.start", (message) => {
    const search = searches.getStore();
    if (search !== undefined) {
      record(search, (message as { readonly request: ClientRequest }).request);
    }
  });
}

function record(search: Search, request: ClientRequest): void {
  const { requests, limits, open } = search;
  if (search.hasEnded) {
    request.destroy();
    return;
  }
  const { host } = request;
  const port = String(request.getHeader("host") ?? "").slice(host.length);
  const index = requests.push({ host: `${host}${port}`, path: request.path, status: undefined, error: undefined }) - 1;
  const update = (outcome: Partial<CredentialRequest>): void => {
    const recorded = requests[index];
    if (recorded !== undefined) {
      requests[index] = { ...recorded, ...outcome };
    }
  };
  const timeout = setTimeout(() => {
    const seconds = limits.requestMs / 1000;
    update({ error: `no answer within ${seconds} s` });
    search.end(new CredentialsTimeoutError(`${host}${port} does not answer within ${seconds} s`));
    request.destroy(); // the SDK may also refresh credentials after the search has ended
  }, limits.requestMs);
  open.add(request);
  request.once("response", ({ statusCode }) => {
    update({ status: statusCode });
  });
  request.once("error", (error) => {
    update({ error: messageOf(error) });
  });
  request.once("close", () => {
    clearTimeout(timeout);
    open.delete(request);
  });
}
