/** The requests of an attempt to the server that has the model. */
export interface ServerReport {
  /** The number of all requests, retries included. */
  readonly requests: number;
  readonly retries: number;
  /** The most requests that were in flight at once. */
  readonly mostInFlight: number;
  /** Quantiles of the response time in milliseconds; null without responses. */
  readonly latencyMs: Readonly<Record<(typeof percentiles)[number], number | null>>;
}

const percentiles = ["p50", "p95", "p99"] as const;

/** Returns the report's fields under their JSON names. */
export function serverFields({ requests, retries, mostInFlight, latencyMs }: ServerReport): object {
  const shown = percentiles.map((name) => [name, tenths(latencyMs[name])]);
  return { requests, retries, most_in_flight: mostInFlight, latency_ms: Object.fromEntries(shown) };
}

/**
 * Returns the report for people: "1204 requests, 3 of them retries, at most 16 in flight; 21 ms each (95%: 40 ms, 99%:
 * 61 ms)".
 */
export function serverText({ requests, retries, mostInFlight, latencyMs: { p50, p95, p99 } }: ServerReport): string {
  const took = p50 === null ? "" : `; ${ms(p50)} each (95%: ${ms(p95)}, 99%: ${ms(p99)})`;
  return `${requests} requests, ${retries} of them retries, at most ${mostInFlight} in flight${took}`;
}

function ms(value: number | null): string {
  return value === null ? "–" : `${Math.round(value)} ms`;
}

function tenths(value: number | null): number | null {
  return value === null ? null : Math.round(value * 10) / 10;
}
