import type { AttemptRecord } from "../../report/attempt-record.js";
import {
  type MetricsServer,
  type MetricsState,
  metricsText,
  parsePreviousMetrics,
  type PreviousMetrics,
} from "../../report/metrics.js";
import type { FailedOutcome, Outcome, RunReport } from "../../report/report.js";
import type { Log } from "../../scoring/context.js";
import type { LoadedSpec } from "../../spec/load.js";
import { errnoOf, exitCodeOf, JobError, messageOf } from "../../util/errors.js";
import { finalError } from "../machine-errors.js";
import { type CallContext, callFor, callHeld, succeeded } from "./call-urls.js";
import { type DeadlineWatch, watchDeadline } from "./deadline.js";
import { keepWriting, placeReports, readReport, type ReportFiles, writeReport } from "./files.js";
import { beginLineage } from "./lineage.js";

/** An attempt to report on. It is known as soon as its spec is read. */
export interface ReportingContext {
  readonly loaded: Pick<LoadedSpec, "spec" | "where">;
  /** The folder of the spec. */
  readonly folder: string;
  readonly record: AttemptRecord;
  readonly log: Log;
  readonly signal: AbortSignal;
  /** Milliseconds from 1970. */
  readonly dateMs: () => number;
  /** The port to serve metrics at; 0: any free port; undefined: metrics are not served. */
  readonly metricsPort: number | undefined;
}

/**
 * Carries out a run whose target is open, and makes the calls that the target records.
 * @param deadline as `reporting` passes it on
 */
export async function calling(
  context: CallContext,
  deadline: DeadlineWatch,
  run: () => Promise<RunReport>,
): Promise<RunReport> {
  try {
    const report = await run();
    await deadline.end({ kind: "done", report });
    await callHeld(context, report);
    return report;
  } catch (error) {
    await deadline.end(failedBy(error));
    throw error;
  }
}

/**
 * Carries out `work` and writes the reports that the spec and the options ask for. A failure to report is logged and
 * changes nothing else.
 * @throws JobError USAGE if a report would be in the folder of the predictions; the errors of `work`
 */
export async function reporting(
  context: ReportingContext,
  work: (deadline: DeadlineWatch) => Promise<RunReport>,
): Promise<RunReport> {
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
  const lineage = beginLineage(context);
  const deadline = watchDeadline(context);
  let outcome: Outcome;
  try {
    files = await placeReports(loaded, { folder, worker: record.info.worker });
    if (files.metrics !== undefined) {
      earlier = parsePreviousMetrics(await readReport(files.metrics), record.info);
      keeping = keepWriting(log, { key: "report.metrics", path: files.metrics, text: metrics });
    }
    outcome = { kind: "done", report: await work(deadline) };
  } catch (error) {
    failure = { error };
    outcome = failedBy(error);
  }
  ended = { outcome, endedMs: context.dateMs() };
  await keeping?.end();
  await writePage(context, files, ended);
  await deadline.end(outcome);
  await callFor(context, outcome);
  await lineage.end(ended);
  if (failure !== undefined) {
    throw failure.error;
  }
  return (outcome as Extract<Outcome, { kind: "done" }>).report;
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
    const { serveMetrics } = await import("../../report/metrics.js"); // and Node's HTTP with it
    return await serveMetrics(port, text);
  } catch (error) {
    log.warn(
      `listening on 127.0.0.1:${port} for --metrics-port: ${errnoOf(error) ?? messageOf(error)}; metrics are not served`,
    );
    return undefined;
  }
}

async function writePage(
  { record, log }: ReportingContext,
  { html }: ReportFiles,
  ended: { readonly outcome: Outcome; readonly endedMs: number },
): Promise<void> {
  if (html === undefined) {
    return;
  }
  const { pageAfter, pageJob } = await import("../../report/page/page.js"); // which few runs write
  const earlier = await readReport(html);
  const page = pageAfter(earlier, { record, ...ended });
  const other = pageJob(earlier);
  if (other !== undefined && other !== record.info.job) {
    log.warn(
      `writing report.html ${html}: it replaces the page of job ${other}; give each job a file of its own, such as ${record.info.job}.html`,
    );
  }
  const failed = page === earlier ? undefined : await writeReport(html, page);
  if (failed !== undefined) {
    log.warn(`writing report.html ${html}: ${failed}`);
  }
}

/** Returns the outcome of an attempt that ended with the error `thrown`. */
export function failedBy(thrown: unknown): FailedOutcome {
  const error = finalError(thrown);
  const known = error instanceof JobError ? error : undefined;
  return {
    kind: "failed",
    code: known?.code ?? "BUG",
    message: messageOf(error),
    hint: known?.hint,
    exitCode: exitCodeOf(error),
  };
}
