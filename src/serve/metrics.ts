import { type Metric, metricText } from "../report/metrics.js";

/** Where a prediction comes from. */
export type PredictedBy = "batch" | "online" | "canary";

/** What a server counts since it started. */
export interface ServeMetrics {
  /** An answer to a request. */
  answered(route: string, status: number, seconds: number): void;
  predicted(source: PredictedBy, rows: number): void;
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

/** Metrics in Prometheus' text format: https://prometheus.io/docs/instrumenting/exposition_formats/ */
export function createServeMetrics(job: string): ServeMetrics {
  const latencies = new Map<string, { readonly counts: number[]; sum: number }>();
  const answers = new Map<string, number>();
  const predictions: Record<PredictedBy, number> = { batch: 0, online: 0, canary: 0 };
  const differences = new Map<string, { count: number; sum: number }>();
  let failures = 0;

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
      const metrics: readonly Metric[] = [
        {
          name: "infer_batch_serve_requests_total",
          type: "counter",
          help: "Requests, by route and status",
          samples: Array.from(answers, ([labels, value]) => ({
            labels: JSON.parse(labels) as Record<string, string>,
            value,
          })),
        },
        {
          name: "infer_batch_serve_request_seconds",
          type: "histogram",
          help: "Time from a request to its answer",
          samples: Array.from(latencies, ([route, { counts, sum }]) => {
            let count = 0;
            const ofBuckets = buckets.map((le, index) => {
              count += counts[index] ?? 0;
              return { part: "_bucket", labels: { route, le: String(le).replace("Infinity", "+Inf") }, value: count };
            });
            const labels = { route };
            return [...ofBuckets, { part: "_sum", labels, value: sum }, { part: "_count", labels, value: count }];
          }).flat(),
        },
        {
          name: "infer_batch_serve_predictions_total",
          type: "counter",
          help: "Predictions, by where they come from: the published run, its model, or the challenger's",
          samples: Object.entries(predictions).map(([source, value]) => ({ labels: { source }, value })),
        },
        {
          name: "infer_batch_serve_canary_difference",
          type: "summary",
          help: "Absolute difference between predictions of the challenger and of the model of the run",
          samples: Array.from(differences, ([column, { count, sum }]) => [
            { part: "_sum", labels: { column }, value: sum },
            { part: "_count", labels: { column }, value: count },
          ]).flat(),
        },
        {
          name: "infer_batch_serve_queue_rows",
          help: "Rows that wait for the model",
          samples: [{ value: waitingRows }],
        },
        {
          name: "infer_batch_serve_run_info",
          help: "The published run that is served",
          samples: [{ labels: { run_id: run?.runId ?? "", model_sha256: run?.model ?? "" }, value: run && 1 }],
        },
        {
          name: "infer_batch_serve_reload_failures_total",
          type: "counter",
          help: "Failed looks for, or loads of, a newer run",
          samples: [{ value: failures }],
        },
      ];
      return metrics.map((metric) => metricText(metric, { batch_job: job })).join("");
    },
  };
}
