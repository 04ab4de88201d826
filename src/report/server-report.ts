/** The requests of an attempt to the server that has the model. */
export interface ServerReport {
  /** The number of all requests, retries included. */
  readonly requests: number;
  readonly retries: number;
  /** The most requests that were in flight at once. */
  readonly mostInFlight: number;
  readonly latencyMs: Latency;
  /** Each server, if the spec names several URLs. */
  readonly urls: readonly UrlReport[];
}

/** The requests of an attempt to one of several servers. */
export interface UrlReport {
  readonly url: string;
  readonly requests: number;
  /** Requests without answer, and those that an overloaded or failing server refused. */
  readonly failures: number;
  readonly mostInFlight: number;
  readonly latencyMs: Latency;
}

/** Milliseconds that half of the answers, 95% and 99% of them did not exceed; null without answers. */
type Latency = Readonly<Record<(typeof percentiles)[number], number | null>>;

const percentiles = ["p50", "p95", "p99"] as const;

/** The report's fields under their JSON names. */
export function serverFields({ requests, retries, mostInFlight, latencyMs, urls }: ServerReport): object {
  const byUrl = urls.map((one) => ({
    url: one.url,
    requests: one.requests,
    failures: one.failures,
    most_in_flight: one.mostInFlight,
    latency_ms: latencyFields(one.latencyMs),
  }));
  return {
    requests,
    retries,
    most_in_flight: mostInFlight,
    latency_ms: latencyFields(latencyMs),
    ...(urls.length === 0 ? {} : { urls: byUrl }),
  };
}

function latencyFields(latencyMs: Latency): object {
  return Object.fromEntries(percentiles.map((name) => [name, tenths(latencyMs[name])]));
}

/** The report for people: "1,204 requests, 3 of them retries, 16 in flight; 21 ms (p95 40 ms, p99 61 ms)". */
export function serverText({
  requests,
  retries,
  mostInFlight,
  latencyMs: { p50, p95, p99 },
  urls,
}: ServerReport): string {
  const byUrl = urls.map((one) => `; ${one.url}: ${one.requests} requests, ${one.failures} failed`).join("");
  const took = p50 === null ? "" : `; ${ms(p50)} each (95%: ${ms(p95)}, 99%: ${ms(p99)})`;
  return `${requests} requests, ${retries} of them retries, at most ${mostInFlight} in flight${took}${byUrl}`;
}

function ms(value: number | null): string {
  return value === null ? "–" : `${Math.round(value)} ms`;
}

function tenths(value: number | null): number | null {
  return value === null ? null : Math.round(value * 10) / 10;
}
