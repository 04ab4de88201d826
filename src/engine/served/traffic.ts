import { createLatencies } from "./latencies.js";
import type { ServerTraffic } from "../port.js";

/** Counts what is sent to a server. */
export interface TrafficCounter {
  readonly traffic: ServerTraffic;
  /** Counts a request. @param isRetry whether it is sent again */
  sent(isRetry: boolean): void;
  /** Counts an answer with predictions. */
  answered(ms: number): void;
}

/** @param highest returns the most requests that have been in flight */
export function countTraffic(highest: () => number): TrafficCounter {
  const latencies = createLatencies();
  let requests = 0;
  let retries = 0;
  return {
    traffic: {
      get requests() {
        return requests;
      },
      get retries() {
        return retries;
      },
      get inFlight() {
        return highest();
      },
      latencyMs: (share) => latencies.quantile(share),
    },
    sent(isRetry) {
      requests += 1;
      retries += isRetry ? 1 : 0;
    },
    answered(ms) {
      latencies.add(ms);
    },
  };
}
