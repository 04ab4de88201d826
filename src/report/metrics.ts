import { type AddressInfo, isIP } from "node:net";
import { type Finding, type Level, roleOf } from "../checks/check.js";
import { rejectReasons } from "../columns/types.js";
import type { AttemptInfo, AttemptRecord, RunReview } from "./attempt-record.js";
import { exitCodeOfOutcome, type Outcome } from "./report.js";
import { secondsByStage, stages } from "./stage-times.js";
import type { RecordedSpending } from "../run/lifecycle/recorded-run.js";

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

const lastSuccess = "infer_batch_last_success_timestamp_seconds";
const lastSuccessHelp = "When an attempt last ended well, or a run was approved; kept when an attempt fails";
const exitCodeMetric = "infer_batch_exit_code";
const startedMetric = "infer_batch_started_timestamp_seconds";
const infoMetric = "infer_batch_info";

/**
 * The metrics of an attempt in Prometheus' text format, version 0.0.4
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). All are gauges, because they describe one attempt, the
 * running or the last one, and start over with the next. Unknown values are left out.
 */
export function metricsText(state: MetricsState, previous: PreviousMetrics = {}): string {
  const { record, outcome } = state;
  const common = commonLabels(record.info);
  const end = endGauges(state).map((each) => metricText(each, common));
  const { work } = previous;
  // An attempt with nothing to do repeats the gauges of the attempt that did the work.
  if (outcome !== undefined && isIdle(outcome) && work?.runId === record.run?.runId && hasChecks(work, record)) {
    return [...end, work?.text ?? ""].join("");
  }
  return [...end, ...workGauges(state).map((each) => metricText(each, common))].join("");
}

/** Whether an attempt found its run complete, or held or discarded by a verdict that another attempt made. */
function isIdle(outcome: Outcome): boolean {
  if (outcome.kind !== "done") {
    return false;
  }
  const { status, rowsScored, decided } = outcome.report;
  return (
    status === "already_complete" || status === "nothing_new" || (decided?.isOwnVerdict === false && rowsScored === 0)
  );
}

/** The attempt that wrote the metrics may have been killed before it wrote those of the checks. */
function hasChecks(work: PreviousMetrics["work"], { review }: AttemptRecord): boolean {
  return review?.verdict === undefined || work?.text.includes(checkResultMetric) === true;
}

// Not `job`: Prometheus gives each target a label of that name.
function commonLabels({ job, worker }: AttemptLabels): Labels {
  return { batch_job: job, worker: String(worker.index) };
}

function endGauges({ record, outcome, lastSuccessMs, endedMs }: MetricsState): Metric[] {
  const exitCode = outcome === undefined ? undefined : exitCodeOfOutcome(outcome);
  return [
    gauge("infer_batch_running", "1 while an attempt is running", outcome === undefined ? 1 : 0),
    gauge(lastSuccess, lastSuccessHelp, seconds(lastSuccessMs)),
    gauge(startedMetric, "When the attempt began", seconds(record.startedMs)),
    gauge("infer_batch_input_wait_seconds", "How long the attempt waited for its input", record.inputWaitSeconds),
    gauge("infer_batch_input_lag_rows", "Rows of a topic that no published run has read", record.inputState.rowsBehind),
    gauge("infer_batch_ended_timestamp_seconds", "When the attempt ended", seconds(endedMs)),
    gauge(exitCodeMetric, "Exit code of the attempt: 0 is success, 67 waits for a person, 75 may be retried", exitCode),
    stateGauge(outcome),
  ];
}

function workGauges(state: MetricsState): Metric[] {
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

function countGauges({ record, outcome }: MetricsState): Metric[] {
  const { run, engine, counts, rejectReasons: rejected, inputState } = record;
  const trees = engine?.trees() ?? null;
  const committed = outcome?.kind === "done" ? outcome.report.spansCommitted : undefined;
  return [
    gauge("infer_batch_rows_planned", "Input rows of the run", run?.rows),
    gauge(
      "infer_batch_input_newest_timestamp_seconds",
      "Time of the newest record of a topic that was scored",
      seconds(inputState.newestMs),
    ),
    gauge("infer_batch_rows_scored", "Rows whose predictions the attempt committed", counts.rowsScored),
    gauge("infer_batch_rows_filtered", "Rows that input.where left out", counts.rowsFiltered),
    gauge("infer_batch_rows_reused", "Scored rows that took the prediction of an earlier run", counts.rowsReused),
    gauge(
      "infer_batch_trees_compiled",
      "1 if compiled decision trees score the rows, 0 if ONNX Runtime computes the model's trees",
      trees === null ? undefined : Number(trees === "compiled"),
    ),
    gauge(
      "infer_batch_rows_by_trees",
      "Rows that compiled decision trees scored",
      trees === null ? undefined : counts.rowsByTrees,
    ),
    {
      name: "infer_batch_rows_rejected",
      help: "Rows that the attempt rejected, by reason",
      samples: rejectReasons.map((reason) => ({ labels: { reason }, value: rejected.get(reason) ?? 0 })),
    },
    gauge("infer_batch_spans_planned", "Spans of the run", run?.spans),
    gauge("infer_batch_spans_committed", "Spans that the attempt committed", counts.spansCommitted),
    gauge("infer_batch_run_spans_committed", "Spans of the run that all attempts committed", committed),
  ];
}

function serverGauges({ record: { engine } }: MetricsState): Metric[] {
  const server = engine?.server?.();
  const latencies = Object.entries(server?.latencyMs ?? {}).flatMap(([name, ms]) =>
    ms === null ? [] : [{ labels: { quantile: `0.${name.slice(1)}` }, value: ms / 1000 }],
  );
  return [
    gauge("infer_batch_server_requests", "Requests to the server that has the model", server?.requests),
    gauge("infer_batch_server_retries", "Requests to the server that were retries", server?.retries),
    gauge("infer_batch_server_most_in_flight", "The most requests in flight at once", server?.mostInFlight),
    {
      name: "infer_batch_server_latency_seconds",
      help: "Response time of the server, by quantile",
      samples: latencies,
    },
  ];
}

function spendingGauges({ record: { engine } }: MetricsState): Metric[] {
  const { attempt, run, requestsLost } = engine?.spending?.() ?? {};
  const lostHelp = "Requests of the attempt that got no answer, and may have been paid for";
  return [
    gauge("infer_batch_answers", "Answers that the attempt paid for", attempt?.answers),
    { name: "infer_batch_tokens", help: "Tokens that the attempt paid for, by kind", samples: tokenSamples(attempt) },
    gauge("infer_batch_cost", "Cost of these answers", attempt?.cost),
    { name: "infer_batch_run_tokens", help: "Tokens that all attempts paid for, by kind", samples: tokenSamples(run) },
    gauge("infer_batch_run_cost", "Cost of the answers of all attempts", run?.cost),
    gauge("infer_batch_requests_lost", lostHelp, requestsLost),
  ];
}

function tokenSamples(spent: RecordedSpending | undefined): Metric["samples"] {
  return [
    { labels: { kind: "prompt" }, value: spent?.prompt_tokens },
    { labels: { kind: "cached" }, value: spent?.cached_tokens },
    { labels: { kind: "completion" }, value: spent?.completion_tokens },
  ];
}

function timeGauges({ record }: MetricsState): Metric[] {
  const byStage = secondsByStage(record.stages);
  return [
    gauge("infer_batch_scoring_seconds", "From the attempt's first row until the run's end", record.seconds),
    {
      name: "infer_batch_stage_seconds",
      help: "Seconds by stage; read, decode, pack and wait add up to the time of the loop that feeds the model",
      samples: stages.map((stage) => ({ labels: { stage }, value: byStage[stage] })),
    },
    gauge("infer_batch_engine_busy_ratio", "Share of the time that a session of the model worked", record.engineBusy),
  ];
}

function gauge(name: string, help: string, value: number | null | undefined): Metric {
  return { name, help, samples: [{ value: value ?? undefined }] };
}

function seconds(ms: number | undefined): number | undefined {
  return ms === undefined ? undefined : ms / 1000;
}

/** Metrics in Prometheus' text format; nothing where no sample has a value. */
export function metricText({ name, type = "gauge", help, samples }: Metric, common: Labels): string {
  const measured = samples.filter(({ value }) => value !== undefined);
  if (measured.length === 0) {
    return "";
  }
  const lines = measured.map(
    ({ part = "", labels, value }) => `${name}${part}{${labelsText({ ...common, ...labels })}} ${value}\n`,
  );
  return `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join("")}`;
}

function labelsText(labels: Labels): string {
  return Object.entries(labels)
    .map(([name, value]) => `${name}="${escapeLabel(value)}"`)
    .join(",");
}

function escapeLabel(value: string): string {
  return value.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n");
}

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

/** Samples without a value are left out. */
export interface Metric {
  readonly name: string;
  readonly type?: "gauge" | "counter" | "histogram" | "summary";
  readonly help: string;
  readonly samples: readonly {
    /** What follows the name of the metric, such as `_sum` of a summary. */
    readonly part?: string;
    readonly labels?: Labels;
    readonly value: number | undefined;
  }[];
}

type Labels = Readonly<Record<string, string>>;

const checkMetric = "infer_batch_check";
const checkResultMetric = `${checkMetric}_result`;

/** The limit of results that have gauges. The worst results come first. */
const mostChecks = 300;

const severity: Readonly<Record<Level, number>> = { pass: 0, warn: 1, hold: 2 };

function checkGauges(review: RunReview | undefined): Metric[] {
  const results = worstByColumn(review?.verdict?.verdict.results ?? []);
  const ofResults = (name: string, help: string, of: (result: Finding) => number | string): Metric => ({
    name: `${checkMetric}_${name}`,
    help,
    samples: results.map((result) => {
      const value = of(result);
      const labels = { check: result.check, column: result.column ?? "", role: roleOf(result) };
      return { labels, value: typeof value === "number" && Number.isFinite(value) ? value : undefined };
    }),
  });
  return [
    ofResults(
      "value",
      "The value that a check measured, by column; without a column, it is about the run",
      (result) => result.measured,
    ),
    ofResults("limit", "The limit that the value is compared with", (result) => result.limit),
    ofResults(
      "result",
      "0: the check passed, 1: it warns, 2: it fails and holds the run",
      ({ level }) => severity[level],
    ),
  ];
}

/** The labels name no more than check and column. */
function worstByColumn(results: readonly Finding[]): Finding[] {
  const worst = new Map<string, Finding>();
  for (const result of results) {
    const key = JSON.stringify([result.check, result.column, roleOf(result)]);
    const known = worst.get(key);
    if (known === undefined || severity[result.level] > severity[known.level]) {
      worst.set(key, result);
    }
  }
  const sorted = [...worst.values()].toSorted((left, right) => severity[right.level] - severity[left.level]);
  return sorted.slice(0, mostChecks);
}

const stateMetric = "infer_batch_run_state";
const states = ["unfinished", "held", "published", "discarded"] as const;
type MetricsRunState = (typeof states)[number];

function stateGauge(outcome: Outcome | undefined): Metric {
  const status = outcome?.kind === "done" ? outcome.report.status : undefined; // else it is running, or it failed
  const state =
    status === "held" || status === "discarded" ? status : status === "partial" ? "unfinished" : "published";
  return {
    name: stateMetric,
    help: "1 for the state of the run after the attempt",
    samples: states.map((each) => ({
      labels: { state: each },
      value: status === undefined ? undefined : Number(each === state),
    })),
  };
}

/**
 * Updates the metrics of a worker after a person decided on the run: its state, and if it is published now, also the
 * exit code of an attempt that the checks held, and the time of the last success. Returns undefined for metrics of
 * another run.
 * @param atMs when the decision was made, in milliseconds since 1970
 */
export function decidedMetrics(
  text: string,
  { runId, state, atMs }: { readonly runId: string; readonly state: MetricsRunState; readonly atMs: number },
): string | undefined {
  if (!text.includes(`run_id="${runId}"`)) {
    return undefined;
  }
  const isOfRun = new RegExp(`^${stateMetric}\\{`, "m").test(text); // else the last attempt failed, or is running
  const decided = text.replaceAll(
    new RegExp(`^(${stateMetric}\\{.*state="(\\w+)"\\}) [01]$`, "gm"),
    (_, sample: string, each: string) => `${sample} ${Number(each === state)}`,
  );
  return isOfRun && state === "published" ? succeeded(decided, atMs / 1000) : decided;
}

function succeeded(text: string, atSeconds: number): string {
  const isSuccess = new RegExp(`^(${exitCodeMetric}\\{.*\\}) 67$`, "m");
  const sample = new RegExp(`^(${lastSuccess}\\{.*\\}) (\\S+)$`, "m");
  const published = text.replace(isSuccess, "$1 0");
  if (sample.test(published)) {
    return published.replace(
      sample,
      (_, name: string, earlier: string) => `${name} ${Math.max(Number(earlier), atSeconds)}`,
    );
  }
  return published.replace(
    new RegExp(`^(?=# HELP ${startedMetric} [^]*?^${startedMetric}(\\{.*\\}) )`, "m"),
    (_, labels: string) =>
      `# HELP ${lastSuccess} ${lastSuccessHelp}\n# TYPE ${lastSuccess} gauge\n${lastSuccess}${labels} ${atSeconds}\n`,
  );
}

/** A server of metrics over HTTP. */
export interface MetricsServer extends AsyncDisposable {
  readonly url: string;
}

/**
 * Whether a Host header names this machine by an address or as localhost. A web page can point its own name at 127.0.0.1
 * (DNS rebinding) to reach a visitor's loopback interface, but its requests still carry that name.
 */
export function isLocalHost(host: string | undefined): boolean {
  const [, bracketed, name = ""] = /^(?:\[([^\]]*)\]|([^:]*))(?::\d*)?$/.exec(host ?? "") ?? [];
  return host === undefined || isIP(bracketed ?? name) !== 0 || /^(?:.+\.)?localhost\.?$/i.test(name);
}

/** Answers `GET /metrics` on the loopback interface until it is disposed. @throws Error of `listen`, such as EADDRINUSE */
export async function serveMetrics(port: number, text: () => string): Promise<MetricsServer> {
  const { createServer } = await import("node:http"); // which few runs need
  const server = createServer((request, response) => {
    if (!isLocalHost(request.headers.host)) {
      response.writeHead(403, { "content-type": "text/plain" }).end("ask for 127.0.0.1 or localhost\n");
      return;
    }
    if (request.method !== "GET" || request.url !== "/metrics") {
      response.writeHead(404).end();
      return;
    }
    response.writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" }).end(text());
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  server.unref(); // open connections must not keep a finished job running
  const { port: opened } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${opened}/metrics`,
    async [Symbol.asyncDispose]() {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}
