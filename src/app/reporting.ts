import { errnoOf, JobError, messageOf, exitCodeOf } from "../util/errors.js";
import { attemptJson } from "../report/attempt-json.js";
import type { AttemptRecord } from "../report/attempt-record.js";
import { pageAfter } from "../report/page/page.js";
import { type PreviousMetrics, parsePreviousMetrics, type MetricsState, metricsText } from "../report/metrics-text.js";
import type { MetricsServer } from "../report/metrics-server.js";
import { exitCodeOfOutcome, type Outcome } from "../report/outcome.js";
import { ping } from "../report/ping.js";
import { reportFields, reportText, type RunReport } from "../report/report.js";
import type { Log } from "../scoring/context.js";
import type { LoadedSpec } from "../spec/load.js";
import { machineError } from "./machine-errors.js";
import { isPlainUrl, type ReportSpec } from "../spec/report-spec.js";
import { readSecret } from "./secrets.js";
import { keepWriting, placeReports, readReport, type ReportFiles, writeReport } from "./report-files.js";

/** An attempt to be reported, known once its spec is read. */
export interface ReportingContext {
  readonly loaded: Pick<LoadedSpec, "spec" | "where">;
  /** The folder of the spec. */
  readonly folder: string;
  readonly record: AttemptRecord;
  readonly log: Log;
  readonly signal: AbortSignal;
  /** Milliseconds from 1970. */
  readonly dateMs: () => number;
  /** 0: any free port. */
  readonly metricsPort: number | undefined;
}

/** After a signal little time is left: the process may be killed. */
const stoppedPingMs = 2000;
const pingTries = 3;

/**
 * Carries out `work` and reports it as `report` in the spec and the options ask. A failure to report is logged and
 * changes nothing else.
 * @throws JobError USAGE if a report would be in the folder of the predictions; whatever `work` throws
 */
export async function reporting(context: ReportingContext, work: () => Promise<RunReport>): Promise<RunReport> {
  const { loaded, folder, record, log } = context;
  let files: ReportFiles = {};
  let earlier: PreviousMetrics = {};
  let ended: { readonly outcome: Outcome; readonly endedMs: number } | undefined;
  const metrics = (): string => metricsText(stateOf(record, ended, earlier), earlier);
  let keeping: ReturnType<typeof keepWriting> | undefined;
  let failure: { readonly error: unknown } | undefined;
  await using server = await listen(context, metrics);
  if (server !== undefined) {
    log.info(`metrics: ${server.url}`);
  }
  let outcome: Outcome;
  try {
    files = await placeReports(loaded, { folder, worker: record.info.worker });
    if (files.metrics !== undefined) {
      earlier = parsePreviousMetrics(await readReport(files.metrics), record.info);
      keeping = keepWriting(log, { key: "report.metrics", path: files.metrics, text: metrics });
    }
    outcome = { kind: "done", report: await work() };
  } catch (error) {
    failure = { error };
    outcome = failedBy(error);
  }
  ended = { outcome, endedMs: context.dateMs() };
  await keeping?.end();
  await writePage(context, files, ended);
  await callFor(context, outcome);
  if (failure !== undefined) {
    throw failure.error;
  }
  return (outcome as Extract<Outcome, { kind: "done" }>).report;
}

/** A run that other workers have not completed yet is no success: one of them may fail. */
function succeeded(outcome: Outcome): boolean {
  return outcome.kind === "done" && ["complete", "already_complete"].includes(outcome.report.status);
}

function stateOf(
  record: AttemptRecord,
  ended: { readonly outcome: Outcome; readonly endedMs: number } | undefined,
  earlier: PreviousMetrics,
): MetricsState {
  const lastSuccessMs = ended !== undefined && succeeded(ended.outcome) ? ended.endedMs : earlier.lastSuccessMs;
  return { record, outcome: ended?.outcome, endedMs: ended?.endedMs, lastSuccessMs };
}

async function listen(
  { log, metricsPort: port }: ReportingContext,
  text: () => string,
): Promise<MetricsServer | undefined> {
  if (port === undefined) {
    return undefined;
  }
  try {
    const { serveMetrics } = await import("../report/metrics-server.js"); // and Node's HTTP with it
    return await serveMetrics(port, text);
  } catch (error) {
    log.warn(
      `listening on 127.0.0.1:${port} for --metrics-port: ${errnoOf(error) ?? messageOf(error)}; there are none`,
    );
    return undefined;
  }
}

/** Writes the HTML page, unless what the earlier one says still holds. */
async function writePage(
  { record, log }: ReportingContext,
  { html }: ReportFiles,
  ended: { readonly outcome: Outcome; readonly endedMs: number },
): Promise<void> {
  if (html === undefined) {
    return;
  }
  const earlier = await readReport(html);
  const page = pageAfter(earlier, { record, ...ended });
  const failed = page === earlier ? undefined : await writeReport(html, page);
  if (failed !== undefined) {
    log.warn(`writing report.html ${html}: ${failed}`);
  }
}

/**
 * Which URL is called. A held run calls `on_held` where that is set, once: only the attempt that made the verdict does.
 * Without it, exit code 67 is a failure like any other.
 */
function callOf(
  { on_held: onHeld }: ReportSpec,
  outcome: Outcome,
): "on_success" | "on_failure" | "on_held" | undefined {
  if (outcome.kind === "done" && outcome.report.decided !== undefined && onHeld !== "") {
    return outcome.report.decided.isOwnVerdict ? "on_held" : undefined;
  }
  return succeeded(outcome) ? "on_success" : exitCodeOfOutcome(outcome) === 0 ? undefined : "on_failure";
}

async function callFor(context: ReportingContext, outcome: Outcome): Promise<void> {
  const { loaded, record, log, signal } = context;
  const { method, timeout } = loaded.spec.report;
  const key = callOf(loaded.spec.report, outcome);
  const value = key === undefined ? "" : loaded.spec.report[key];
  if (key === undefined || value === "") {
    return;
  }
  const url = await pingUrl(context, key, value);
  if (url === undefined) {
    return;
  }
  const stopped = signal.aborted;
  const found = await ping({
    key: `report.${key}`,
    url,
    body: method === "post" ? pingBody(record, outcome) : undefined,
    timeoutMs: stopped ? Math.min(stoppedPingMs, timeout * 1000) : timeout * 1000,
    tries: stopped ? 1 : pingTries,
  });
  if (found !== undefined) {
    log.warn(found);
  }
}

/** Returns the URL to call; undefined if it cannot be read, which is logged. */
async function pingUrl(
  { loaded: { where }, folder, log }: ReportingContext,
  key: "on_success" | "on_failure" | "on_held",
  value: string,
): Promise<string | undefined> {
  try {
    const url = await readSecret(value, { folder, key: where(["report", key]) });
    if (isPlainUrl(url)) {
      return url;
    }
    log.warn(`calling report.${key}: the file does not hold an http(s) URL`);
  } catch (error) {
    log.warn(`calling report.${key}: ${messageOf(error)}`);
  }
  return undefined;
}

function pingBody(record: AttemptRecord, outcome: Outcome): string {
  const { info, run } = record;
  const told =
    outcome.kind === "done"
      ? {
          exit_code: exitCodeOfOutcome(outcome),
          text: pingText(outcome.report),
          ...reportFields(outcome.report),
        }
      : {
          exit_code: outcome.exitCode,
          text: `${info.job}: failed: ${outcome.message}`,
          run_id: run?.runId ?? null,
          status: "failed",
          code: outcome.code,
          message: outcome.message,
          hint: outcome.hint ?? null,
        };
  return JSON.stringify({ job: info.job, ...told, attempt: attemptJson(record) });
}

function pingText(report: RunReport): string {
  return [reportText(report), ...(report.verdict?.failed ?? [])].join("\n");
}

function failedBy(thrown: unknown): Outcome {
  const error = machineError(thrown) ?? thrown;
  const known = error instanceof JobError ? error : undefined;
  return {
    kind: "failed",
    code: known?.code ?? "BUG",
    message: messageOf(error),
    hint: known?.hint,
    exitCode: exitCodeOf(error),
  };
}
