import { AsyncLocalStorage } from "node:async_hooks";
import { subscribe } from "node:diagnostics_channel";
import type { ClientRequest } from "node:http";
import { messageOf } from "../util/errors.js";

/** One HTTP request that the SDK makes while it looks for credentials. */
export interface CredentialRequest {
  /** `host` or `host:port`. */
  readonly host: string;
  readonly path: string;
  /** undefined: no answer came. */
  readonly status: number | undefined;
  /** Why no answer came, as the system says it. */
  readonly error: string | undefined;
}

export interface WatchLimits {
  /** From a request to its end. */
  readonly requestMs: number;
  /** For all of it, programs that the SDK runs included. */
  readonly allMs: number;
  /** The job's: its reason is thrown when it is aborted. */
  readonly signal: AbortSignal;
}

/** A credentials service did not answer in time. */
export class SilentService extends Error {}

interface Search {
  readonly requests: CredentialRequest[];
  readonly limits: WatchLimits;
  readonly open: Set<ClientRequest>;
  /** Ends the search; requests that the SDK still makes for it are ended, too. */
  readonly end: (reason: Error) => void;
  isOver: boolean;
}

const searches = new AsyncLocalStorage<Search>();
let isSubscribed = false;

/**
 * Runs `work`, a search of the SDK's for credentials, and records its HTTP requests in `requests`. The SDK neither
 * says what they met nor takes a signal or a limit of time: some of its providers wait a minute for each of four tries.
 * @throws SilentService when a limit is exceeded; the signal's reason; what `work` throws
 */
export async function watchSearch<T>(
  requests: CredentialRequest[],
  limits: WatchLimits,
  work: () => Promise<T>,
): Promise<T> {
  subscribeOnce();
  const { signal, allMs } = limits;
  const over = new AbortController();
  let late: NodeJS.Timeout | undefined;
  try {
    return await new Promise<T>((resolve, reject) => {
      const search: Search = { requests, limits, open: new Set(), end: endSearch, isOver: false };
      function endSearch(reason: Error): void {
        search.isOver = true;
        reject(reason);
        for (const request of search.open) {
          request.destroy();
        }
      }
      const stop = (): void => {
        endSearch(signal.reason as Error);
      };
      signal.addEventListener("abort", stop, { once: true, signal: over.signal });
      late = setTimeout(endSearch, allMs, new SilentService(`no credentials came within ${allMs / 1000} s`));
      searches.run(search, work).then(resolve, reject);
    });
  } finally {
    clearTimeout(late);
    over.abort();
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
  if (search.isOver) {
    request.destroy();
    return;
  }
  const { host } = request;
  const port = String(request.getHeader("host") ?? "").slice(host.length);
  const at = requests.push({ host: `${host}${port}`, path: request.path, status: undefined, error: undefined }) - 1;
  const note = (found: Partial<CredentialRequest>): void => {
    const before = requests[at];
    if (before !== undefined) {
      requests[at] = { ...before, ...found };
    }
  };
  const silent = setTimeout(() => {
    const seconds = limits.requestMs / 1000;
    note({ error: `no answer within ${seconds} s` });
    search.end(new SilentService(`${host}${port} does not answer within ${seconds} s`));
    request.destroy(); // also where the search is over, and the SDK refreshes what it has
  }, limits.requestMs);
  open.add(request);
  request.once("response", ({ statusCode }) => {
    note({ status: statusCode });
  });
  request.once("error", (error) => {
    note({ error: messageOf(error) });
  });
  request.once("close", () => {
    clearTimeout(silent);
    open.delete(request);
  });
}
