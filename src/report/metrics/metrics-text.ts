import type { SpentReport } from "../spending/spending-report.js";
import { rejectReasons } from "../../columnar/types.js";
import type { AttemptInfo, AttemptRecord } from "../attempt-record.js";
import { checkGauges, checkResultMetric, type Gauge, type Labels, stateGauge } from "./check-metrics.js";
import { exitCodeOfOutcome, type Outcome } from "../outcome.js";
import { secondsByStage, stages } from "../stage-times.js";

/** What the metrics of an attempt are made from. */
export interface MetricsState {
  readonly record: AttemptRecord;
  /** undefined while the attempt is running. */
  readonly outcome: Outcome | undefined;
  /** The last success of this or an earlier attempt, in milliseconds since 1970. */
  readonly lastSuccessMs: number | undefined;
  /** When the attempt ended, in milliseconds since 1970. */
  readonly endedMs: number | undefined;
}

/** The gauge with the last success of a job. */
export const lastSuccess = "infer_batch_last_success_timestamp_seconds";
/** What it means. */
export const lastSuccessHelp = "When an attempt last ended well, or a run was approved; kept when an attempt fails";
/** The gauge with the exit code of an attempt. */
export const exitCodeMetric = "infer_batch_exit_code";
/** The gauge with the start of an attempt, which all metrics have. */
export const startedMetric = "infer_batch_started_timestamp_seconds";
const infoMetric = "infer_batch_info";

/**
 * The metrics of an attempt in Prometheus' text format, version 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). All are gauges, because they describe one attempt, the
 * running or the last one, and start over with the next. Unknown values are left out.
 */
export function metricsText(state: MetricsState, previous: PreviousMetrics = {}): string {
  const { record, outcome } = state;
  const common = commonLabels(record.info);
  const end = endGauges(state).map((gauge) => gaugeText(gauge, common));
  const { work } = previous;
  // An attempt with nothing to do repeats the gauges of the attempt that did the work.
  if (outcome !== undefined && isIdle(outcome) && work?.runId === record.run?.runId && hasChecks(work, record)) {
    return [...end, work?.text ?? ""].join("");
  }
  return [...end, ...workGauges(state).map((gauge) => gaugeText(gauge, common))].join("");
}

/** Whether an attempt found its run complete, or held or discarded by a verdict that another attempt made. */
function isIdle(outcome: Outcome): boolean {
  if (outcome.kind !== "done") {
    return false;
  }
  const { status, rowsScored, decided } = outcome.report;
  return status === "already_complete" || (decided?.isOwnVerdict === false && rowsScored === 0);
}

/** Whether metrics have the checks of a run, if it has a verdict: the attempt that wrote them may have been killed before. */
function hasChecks(work: PreviousMetrics["work"], { review }: AttemptRecord): boolean {
  return review?.verdict === undefined || work?.text.includes(checkResultMetric) === true;
}

// Not `job`: Prometheus gives each target a label of that name.
function commonLabels({ job, worker }: AttemptLabels): Labels {
  return { batch_job: job, worker: String(worker.index) };
}

function endGauges({ record, outcome, lastSuccessMs, endedMs }: MetricsState): Gauge[] {
  const exitCode = outcome === undefined ? undefined : exitCodeOfOutcome(outcome);
  return [
    one("infer_batch_running", "1 while an attempt is running", outcome === undefined ? 1 : 0),
    one(lastSuccess, lastSuccessHelp, seconds(lastSuccessMs)),
    one(startedMetric, "When the attempt began", seconds(record.startedMs)),
    one("infer_batch_input_wait_seconds", "How long the attempt waited for its input", record.inputWaitSeconds),
    one("infer_batch_ended_timestamp_seconds", "When the attempt ended", seconds(endedMs)),
    one(exitCodeMetric, "Exit code of the attempt: 0 is success, 67 waits for a person, 75 may be retried", exitCode),
    stateGauge(outcome),
  ];
}

function workGauges(state: MetricsState): Gauge[] {
  const { run, engine, info } = state.record;
  const labels = {
    run_id: run?.runId ?? "",
    model_sha256: run?.modelSha256 ?? "",
    model_version: run?.modelVersion ?? "",
    provider: engine?.provider ?? "",
    version: info.versions["infer-batch"] ?? "",
  };
  const help = "1; its labels are run, model, execution provider and version";
  const infoGauge = { name: infoMetric, help, samples: [{ labels, value: 1 }] };
  const missing = {
    name: "infer_batch_provider_missing",
    help: "1 for each execution provider that the spec prefers and the machine cannot run: another provider did the work",
    samples: (engine?.missing ?? []).map((provider) => ({ labels: { provider }, value: 1 })),
  };
  return [
    infoGauge,
    missing,
    ...checkGauges(state.record.review),
    ...countGauges(state),
    ...serverGauges(state),
    ...spendingGauges(state),
    ...timeGauges(state),
  ];
}

function countGauges({ record: { run, engine, counts, rejectReasons: found }, outcome }: MetricsState): Gauge[] {
  const trees = engine?.trees() ?? null;
  const committed = outcome?.kind === "done" ? outcome.report.spansCommitted : undefined;
  return [
    one("infer_batch_rows_planned", "Input rows of the run", run?.rows),
    one("infer_batch_rows_scored", "Rows whose predictions the attempt committed", counts.rowsScored),
    one("infer_batch_rows_filtered", "Rows that input.where left out", counts.rowsFiltered),
    one("infer_batch_rows_reused", "Scored rows that took the prediction of an earlier run", counts.rowsReused),
    one(
      "infer_batch_trees_compiled",
      "1 if compiled decision trees score the rows, 0 if ONNX Runtime computes the model's trees",
      trees === null ? undefined : Number(trees === "compiled"),
    ),
    one(
      "infer_batch_rows_by_trees",
      "Rows that compiled decision trees scored",
      trees === null ? undefined : counts.rowsByTrees,
    ),
    {
      name: "infer_batch_rows_rejected",
      help: "Rows that the attempt rejected, by reason",
      samples: rejectReasons.map((reason) => ({ labels: { reason }, value: found.get(reason) ?? 0 })),
    },
    one("infer_batch_spans_planned", "Spans of the run", run?.spans),
    one("infer_batch_spans_committed", "Spans that the attempt committed", counts.spansCommitted),
    one("infer_batch_run_spans_committed", "Spans of the run that all attempts committed", committed),
  ];
}

function serverGauges({ record: { engine } }: MetricsState): Gauge[] {
  const server = engine?.server?.();
  const latencies = Object.entries(server?.latencyMs ?? {}).flatMap(([name, ms]) =>
    ms === null ? [] : [{ labels: { quantile: `0.${name.slice(1)}` }, value: ms / 1000 }],
  );
  return [
    one("infer_batch_server_requests", "Requests to the server that has the model", server?.requests),
    one("infer_batch_server_retries", "Requests to the server that were retries", server?.retries),
    one("infer_batch_server_most_in_flight", "The most requests in flight at once", server?.mostInFlight),
    {
      name: "infer_batch_server_latency_seconds",
      help: "Response time of the server, by quantile",
      samples: latencies,
    },
  ];
}

function spendingGauges({ record: { engine } }: MetricsState): Gauge[] {
  const { attempt, run } = engine?.spending?.() ?? {};
  return [
    one("infer_batch_answers", "Answers that the attempt paid for", attempt?.answers),
    { name: "infer_batch_tokens", help: "Tokens that the attempt paid for, by kind", samples: tokenSamples(attempt) },
    one("infer_batch_cost", "Cost of these answers", attempt?.cost),
    { name: "infer_batch_run_tokens", help: "Tokens that all attempts paid for, by kind", samples: tokenSamples(run) },
    one("infer_batch_run_cost", "Cost of the answers of all attempts", run?.cost),
    one(
      "infer_batch_requests_lost",
      "Requests of the attempt that got no answer, and may have been paid for",
      engine?.spending?.().requestsLost,
    ),
  ];
}

function tokenSamples(spent: SpentReport | undefined): Gauge["samples"] {
  return [
    { labels: { kind: "prompt" }, value: spent?.promptTokens },
    { labels: { kind: "cached" }, value: spent?.cachedTokens },
    { labels: { kind: "completion" }, value: spent?.completionTokens },
  ];
}

function timeGauges({ record }: MetricsState): Gauge[] {
  const byStage = secondsByStage(record.stages);
  return [
    one("infer_batch_scoring_seconds", "From the attempt's first row until the run's end", record.seconds),
    {
      name: "infer_batch_stage_seconds",
      help: "Seconds by stage; read, decode, pack and wait add up to the time of the loop that feeds the model",
      samples: stages.map((stage) => ({ labels: { stage }, value: byStage[stage] })),
    },
    one("infer_batch_engine_busy_ratio", "Share of the time that a session of the model worked", record.engineBusy),
  ];
}

function one(name: string, help: string, value: number | null | undefined): Gauge {
  return { name, help, samples: [{ value: value ?? undefined }] };
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000;
}

function gaugeText({ name, help, samples }: Gauge, common: Labels): string {
  const measured = samples.filter(({ value }) => value !== undefined);
  if (measured.length === 0) {
    return "";
  }
  const lines = measured.map(({ labels, value }) => `${name}{${labelsText({ ...common, ...labels })}} ${value}\n`);
  return `# HELP ${name} ${help}\n# TYPE ${name} gauge\n${lines.join("")}`;
}

function labelsText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeLabel(value)}"`)
    .join(",");
}

function escapeLabel(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

/** The labels that tell the metrics of one job and worker from those of others. */
type AttemptLabels = Pick<AttemptInfo, "job" | "worker">;

/** Metrics of an earlier attempt that this attempt repeats. */
export interface PreviousMetrics {
  /** Milliseconds since 1970. */
  readonly lastSuccessMs?: number | undefined;
  /** The text of the gauges that say what it did. */
  readonly work?: { readonly runId: string; readonly text: string } | undefined;
}

/** Parses earlier metrics of the same job and worker; other texts give an empty result. */
export function parsePreviousMetrics(text: string, attempt: AttemptLabels): PreviousMetrics {
  const labels = labelsText(commonLabels(attempt));
  const [, success] = new RegExp(`^${lastSuccess}\\{${escapeRegExp(labels)}\\} ([\\d.e+]+)$`, "m").exec(text) ?? [];
  const [, runId] = new RegExp(`^${infoMetric}\\{${escapeRegExp(labels)},run_id="([^"]+)"`, "m").exec(text) ?? [];
  const begin = text.indexOf(`# HELP ${infoMetric} `);
  return {
    lastSuccessMs: success === undefined ? undefined : Number(success) * 1000,
    work: runId === undefined || begin < 0 ? undefined : { runId, text: text.slice(begin) },
  };
}

function escapeRegExp(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|]/g, "\\$&");
}
