import { createLatencies } from "./latencies.js";

/** What was sent to a server, or to all servers. */
export interface TrafficCounter {
  readonly requests: number;
  /** Requests that were sent again. */
  readonly retries: number;
  /** Requests without answer, and those that an overloaded or failing server refused. */
  readonly failures: number;
  /** The time that a share of the answers did not exceed, in milliseconds; null without answers. */
  latencyMs(share: number): number | null;
  /** Counts a request. @param isRetry whether it is sent again */
  sent(isRetry: boolean): void;
  /** Counts an answer with predictions. */
  answered(ms: number): void;
  failed(): void;
}

export function countTraffic(): TrafficCounter {
  const latencies = createLatencies();
  let [requests, retries, failures] = [0, 0, 0];
  return {
    get requests() {
      return requests;
    },
    get retries() {
      return retries;
    },
    get failures() {
      return failures;
    },
    latencyMs: (share) => latencies.quantile(share),
    sent(isRetry) {
      requests += 1;
      retries += isRetry ? 1 : 0;
    },
    answered(ms) {
      latencies.add(ms);
    },
    failed() {
      failures += 1;
    },
  };
}
