/** Stops sending requests to a server that does not answer, except for one at a time now and then. */
export interface CircuitBreaker {
  /** When the server last counted as unavailable; undefined: it answers. */
  readonly openSinceMs: number | undefined;
  /** The time from which on a request may be sent: Infinity while an open breaker waits for one. */
  readonly readyMs: number;
  /** Failures since the server last answered, and what the last one was. */
  readonly last: { readonly failures: number; readonly found: string };
  /** Counts a request that is sent. */
  begin(): BrokenCircuit | undefined;
  /** Counts an answer, with predictions or without them. */
  answered(): void;
  /** Counts a request without answer, or one that an overloaded server refused. @param sent what `begin` returned */
  failed(found: string, sent: BrokenCircuit | undefined): void;
  /** Counts a request that says nothing about the server. */
  ended(sent: BrokenCircuit | undefined): void;
}

/** Marks a request that is sent to find out whether the server is back. */
export interface BrokenCircuit {
  readonly isTrial: true;
}

export interface BreakerOptions {
  readonly nowMs: () => number;
  /** Returns a random number in [0, 1). */
  readonly random: () => number;
  /** Called when the server counts as unavailable, and when it answers again. */
  readonly onChange: (isOpen: boolean, found: string) => void;
}

/** Failures in a row, without any answer, after which a server counts as unavailable. */
const mostFailures = 5;
const firstPauseMs = 100;
const longestPauseMs = 5000;
const trial: BrokenCircuit = { isTrial: true };

export function createBreaker({ nowMs, random, onChange }: BreakerOptions): CircuitBreaker {
  let failures = 0;
  let found = "";
  let openSinceMs: number | undefined;
  let pauseMs = firstPauseMs;
  let [readyMs, isTrying] = [0, false];
  const pause = (): void => {
    readyMs = nowMs() + pauseMs * (0.5 + random() / 2);
    pauseMs = Math.min(longestPauseMs, pauseMs * 2);
  };
  return {
    get openSinceMs() {
      return openSinceMs;
    },
    get readyMs() {
      return openSinceMs === undefined ? 0 : isTrying ? Number.POSITIVE_INFINITY : readyMs;
    },
    get last() {
      return { failures, found };
    },
    begin() {
      isTrying = openSinceMs !== undefined;
      return isTrying ? trial : undefined;
    },
    answered() {
      const wasOpen = openSinceMs !== undefined;
      [failures, openSinceMs, isTrying, pauseMs] = [0, undefined, false, firstPauseMs];
      if (wasOpen) {
        onChange(false, found);
      }
    },
    failed(message, sent) {
      failures += 1;
      found = message;
      if (sent !== undefined) {
        isTrying = false;
        pause();
      } else if (openSinceMs === undefined && failures >= mostFailures) {
        openSinceMs = nowMs();
        pause();
        onChange(true, found);
      }
    },
    ended(sent) {
      isTrying &&= sent === undefined;
    },
  };
}
