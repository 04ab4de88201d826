import { labelsText } from "../report/metrics.js";

/** Where a prediction comes from. */
export type Source = "batch" | "online" | "canary";

/** What a server counts since it started. */
export interface ServeMetrics {
  /** An answer to a request. */
  answered(route: string, status: number, seconds: number): void;
  predicted(source: Source, rows: number): void;
  /** A prediction of the challenger beside the one of the model of the run, for a column of numbers. */
  compared(column: string, difference: number): void;
  /** A look for a new run that failed, or a run that could not be loaded. */
  reloadFailed(): void;
  text(now: ServeState): string;
}

/** The state of the server, for gauges. */
export interface ServeState {
  readonly waitingRows: number;
  /** undefined: none is served. */
  readonly run: { readonly runId: string; readonly model: string } | undefined;
}

/** Upper ends of the buckets of latencies, in seconds. */
const buckets = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, Number.POSITIVE_INFINITY];

interface Latencies {
  readonly counts: number[];
  sum: number;
}

/** A metric of these samples; nothing where there are none. */
function metric(name: string, type: string, help: string, samples: readonly string[]): string {
  return samples.length === 0 ? "" : `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${samples.join("")}`;
}

/** Metrics in Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/ */
export function createServeMetrics(job: string): ServeMetrics {
  const latencies = new Map<string, Latencies>();
  const answers = new Map<string, number>();
  const predictions: Record<Source, number> = { batch: 0, online: 0, canary: 0 };
  const differences = new Map<string, { count: number; sum: number }>();
  let failures = 0;

  const common = { batch_job: job };
  const sample = (name: string, labels: Readonly<Record<string, string>>, value: number): string =>
    `${name}{${labelsText({ ...common, ...labels })}} ${value}\n`;
  const histogram = (name: string, route: string, { counts, sum }: Latencies): string => {
    let total = 0;
    const rows = buckets.map((le, index) => {
      total += counts[index] ?? 0;
      return sample(`${name}_bucket`, { route, le: le === Number.POSITIVE_INFINITY ? "+Inf" : String(le) }, total);
    });
    return [...rows, sample(`${name}_sum`, { route }, sum), sample(`${name}_count`, { route }, total)].join("");
  };
  return {
    answered(route, status, seconds) {
      const key = JSON.stringify({ route, code: String(status) });
      answers.set(key, (answers.get(key) ?? 0) + 1);
      const of = latencies.get(route) ?? { counts: buckets.map(() => 0), sum: 0 };
      latencies.set(route, of);
      const bucket = buckets.findIndex((le) => seconds <= le);
      of.counts[bucket] = (of.counts[bucket] ?? 0) + 1;
      of.sum += seconds;
    },
    predicted(source, rows) {
      predictions[source] += rows;
    },
    compared(column, difference) {
      const known = differences.get(column) ?? { count: 0, sum: 0 };
      differences.set(column, { count: known.count + 1, sum: known.sum + difference });
    },
    reloadFailed() {
      failures += 1;
    },
    text({ waitingRows, run }) {
      const seconds = "infer_batch_serve_request_seconds";
      return [
        metric(
          "infer_batch_serve_requests_total",
          "counter",
          "Requests, by route and status",
          Array.from(answers, ([labels, count]) =>
            sample("infer_batch_serve_requests_total", JSON.parse(labels) as Record<string, string>, count),
          ),
        ),
        metric(
          seconds,
          "histogram",
          "Time from a request to its answer",
          Array.from(latencies, ([route, of]) => histogram(seconds, route, of)),
        ),
        metric(
          "infer_batch_serve_predictions_total",
          "counter",
          "Predictions, by where they come from: the published run, its model, or the challenger's",
          Object.entries(predictions).map(([source, count]) =>
            sample("infer_batch_serve_predictions_total", { source }, count),
          ),
        ),
        metric(
          "infer_batch_serve_canary_difference",
          "summary",
          "Absolute difference between predictions of the challenger and of the model of the run",
          Array.from(differences, ([column, { count, sum }]) =>
            ["sum", "count"].map((part) =>
              sample(`infer_batch_serve_canary_difference_${part}`, { column }, part === "sum" ? sum : count),
            ),
          ).flat(),
        ),
        metric("infer_batch_serve_queue_rows", "gauge", "Rows that wait for the model", [
          sample("infer_batch_serve_queue_rows", {}, waitingRows),
        ]),
        metric(
          "infer_batch_serve_run_info",
          "gauge",
          "The published run that is served",
          run === undefined
            ? []
            : [sample("infer_batch_serve_run_info", { run_id: run.runId, model_sha256: run.model }, 1)],
        ),
        metric("infer_batch_serve_reload_failures_total", "counter", "Failed looks for, or loads of, a newer run", [
          sample("infer_batch_serve_reload_failures_total", {}, failures),
        ]),
      ].join("");
    },
  };
}
