import { randomUUID } from "node:crypto";
import { readFile, readdir, realpath, stat } from "node:fs/promises";
import { basename, dirname, join, relative, resolve } from "node:path";
import { type AttemptRecord, attemptJson, isWorkerFile, workerFile } from "../report/attempt-record.js";
import { type Lateness, deadlineNear, latenessOf, ping, timeOfDayAt } from "../report/calls.js";
import {
  type CarriedOut,
  type DatasetName,
  type LineageRun,
  decidedEvent,
  endEvent,
  filesDataset,
  inputDatasets,
  parentRun,
  startEvent,
  tableDataset,
} from "../report/lineage.js";
import {
  type MetricsServer,
  type MetricsState,
  type PreviousMetrics,
  decidedMetrics,
  metricsText,
  parsePreviousMetrics,
  serveMetrics,
} from "../report/metrics.js";
import {
  type DueCall,
  type FailedOutcome,
  type Outcome,
  type RunReport,
  decidingTexts,
  exitCodeOfOutcome,
  failureFields,
  reportFields,
  reportText,
  statusOfOutcome,
} from "../report/report.js";
import type { DecisionReport } from "../run/decide.js";
import type { Log } from "../flow/opened-job.js";
import type { JobSpec } from "./jobfile/job-spec.js";
import type { LoadedSpec } from "./jobfile/load.js";
import type { OpenLineageSpec, ReportSpec } from "./jobfile/report-spec.js";
import { isObjectUri, isPlainUrl } from "./jobfile/uri.js";
import { makeFolder, nodeFileSystem, replaceFile } from "../stores/disk.js";
import { JobError, errnoOf, exitCodeOf, exitCodes, messageOf } from "../base/errors.js";
import { alone } from "./open.js";
import { finalError } from "./machine.js";
import { failureText, readSecret } from "./reading.js";
import type { Worker } from "../run/plan/spans.js";
import { byChecks } from "../run/lifecycle/lifecycle.js";

/** An attempt whose spec may name URLs to call. It is known as soon as its spec is read. */
export interface CallContext {
  readonly loaded: Pick<LoadedSpec, "spec" | "where">;
  readonly folder: string;
  readonly record: AttemptRecord;
  readonly log: Log;
  readonly signal: AbortSignal;
}

interface ReportingContext extends CallContext {
  /** Milliseconds since 1970. */
  readonly dateMs: () => number;
  /** The port to serve metrics at; 0: any free port; undefined: metrics are not served. */
  readonly metricsPort: number | undefined;
}

/** Also makes the calls that the target records. @param deadline as `reporting` passes it on */
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

/** A failure to report is logged and changes nothing else. @throws JobError USAGE for a report among the predictions */
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
  if (html === undefined || statusOfOutcome(ended.outcome) === "nothing_new") {
    return; // the page is that of the last run
  }
  const { pageAfter, pageJob } = await import("../report/page/page.js"); // which few runs write
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

type DeadlineContext = Omit<ReportingContext, "metricsPort">;

interface DeadlineWatch {
  /**
   * An attempt past its deadline is reported unless it had nothing to do. Called while the target is open. Safe to
   * repeat.
   */
  end(outcome: Outcome): Promise<void>;
}

const everyMs = 1000;

/**
 * Reports once if the deadline is missed or will be. Never fails. Late only if there are rows. @public so that tests
 * reach it
 */
export function watchDeadline(context: DeadlineContext, { checkMs = everyMs } = {}): DeadlineWatch {
  const { loaded, record, dateMs } = context;
  const { timezone, report } = loaded.spec;
  const { deadline: time } = report;
  if (time === undefined) {
    return { end: () => Promise.resolve() };
  }
  const startedMs = dateMs();
  const deadlineMs = deadlineNear(startedMs, { time, timeZone: timezone });
  let reported: ReturnType<typeof reportLate> | undefined;
  const reportOnce = (lateness: Lateness): void => {
    reported ??= reportLate(context, lateness);
  };
  const timer = setInterval(() => {
    const mayWork = startedMs < deadlineMs || record.rowsToScore !== undefined || record.inputWaitSeconds > 0;
    const lateness = mayWork ? latenessOf(record, { nowMs: dateMs(), deadlineMs }) : undefined;
    if (lateness !== undefined) {
      clearInterval(timer);
      reportOnce(lateness);
    }
  }, checkMs).unref();
  return {
    async end(outcome) {
      clearInterval(timer);
      await (await reported)?.();
      const hadWork = outcome.kind === "failed" || record.counts.spansCommitted > 0;
      if (hadWork && dateMs() >= deadlineMs) {
        if (record.run === undefined && exitCodeOfOutcome(outcome) !== exitCodes.INPUT_NOT_READY) {
          record.lateCall = undefined; // a run that is planned only after a correction leaves nothing at the target
        }
        reportOnce({ deadlineMs, expectedEndMs: undefined });
      }
      await reported;
      reported &&= Promise.resolve(undefined); // a call that failed now is not made again
    },
  };
}

async function reportLate(context: DeadlineContext, lateness: Lateness): Promise<(() => Promise<boolean>) | undefined> {
  const { timezone, report } = context.loaded.spec;
  const { expectedEndMs } = lateness;
  const deadline = `report.deadline, ${report.deadline} ${timezone}`;
  const text =
    expectedEndMs === undefined
      ? `the run missed ${deadline}`
      : `the run will miss ${deadline}: it is expected to end at ${timeOfDayAt(expectedEndMs, timezone)}`;
  context.log.warn(text);
  const due = report.on_late === "" ? undefined : await lateCallDue(context, text);
  const call = async (): Promise<boolean> => {
    const isMade = await callLate(context, text, lateness);
    await (isMade ? due?.done() : undefined);
    return isMade;
  };
  return due === undefined || (await call()) ? undefined : call;
}

const recordMs = 5000;
const unrecorded: DueCall = { done: () => Promise.resolve() };

/** undefined: another attempt or worker has made the call. It is due, too, where the target cannot record it. */
async function lateCallDue({ record, log }: DeadlineContext, text: string): Promise<DueCall | undefined> {
  let timer: NodeJS.Timeout | undefined;
  const tooLate = new Promise<DueCall>((giveUp) => {
    timer = setTimeout(giveUp, recordMs, unrecorded);
  });
  const recorded = (record.lateCall?.(text) ?? Promise.resolve(unrecorded)).catch((error: unknown) => {
    log.debug(`noting a call of report: ${messageOf(error)}`);
    return unrecorded;
  });
  const call = await Promise.race([recorded, tooLate]);
  clearTimeout(timer);
  return call;
}

type CallKey = "on_success" | "on_failure" | "on_held" | "on_late";

/** The time limit of calls after a signal. It is short, because the process may be killed soon. */
const stoppedPingMs = 2000;
const pingTries = 3;

/** A run that waits for other workers is not complete: one of them may fail. */
function succeeded(outcome: Outcome): boolean {
  return outcome.kind === "done" && ["complete", "already_complete", "nothing_new"].includes(outcome.report.status);
}

/** Nothing more is called for a held run if `on_held` is set; else exit code 67 counts as a failure. */
function callOf({ on_held: onHeld }: ReportSpec, outcome: Outcome): "on_success" | "on_failure" | undefined {
  if (outcome.kind === "done" && outcome.report.decided !== undefined && onHeld !== "") {
    return undefined;
  }
  return succeeded(outcome) ? "on_success" : exitCodeOfOutcome(outcome) === 0 ? undefined : "on_failure";
}

async function callFor(context: CallContext, outcome: Outcome): Promise<void> {
  const key = callOf(context.loaded.spec.report, outcome);
  if (key !== undefined) {
    await callUrl(context, key, () => pingBody(context.record, outcome));
  }
}

/** The target must still be open: it notes the call. */
async function callHeld(context: CallContext, report: RunReport): Promise<void> {
  const { heldCall } = report.decided ?? {};
  if (
    heldCall !== undefined &&
    (await callUrl(context, "on_held", () => pingBody(context.record, { kind: "done", report })))
  ) {
    await heldCall.done();
  }
}

async function callLate(context: CallContext, text: string, lateness: Lateness): Promise<boolean> {
  const { record } = context;
  const { deadlineMs, expectedEndMs } = lateness;
  const body = {
    job: record.info.job,
    text: `${record.info.job}: ${text}`,
    run_id: record.run?.runId ?? null,
    status: "late",
    deadline: new Date(deadlineMs).toISOString(),
    expected_end: expectedEndMs === undefined ? null : new Date(expectedEndMs).toISOString(),
    attempt: attemptJson(record),
  };
  return await callUrl(context, "on_late", () => JSON.stringify(body));
}

async function callUrl(context: CallContext, key: CallKey, body: () => string): Promise<boolean> {
  const { loaded, log, signal } = context;
  const { method, timeout } = loaded.spec.report;
  const value = loaded.spec.report[key];
  const url = value === "" ? undefined : await plainUrlAt(context, [key], value);
  if (url === undefined) {
    return false;
  }
  const stopped = signal.aborted;
  const found = await ping({
    key: `report.${key}`,
    url,
    body: method === "post" ? body() : undefined,
    timeoutMs: stopped ? Math.min(stoppedPingMs, timeout * 1000) : timeout * 1000,
    tries: stopped ? 1 : pingTries,
  });
  if (found !== undefined) {
    log.warn(found);
  }
  return found === undefined;
}

/** Reads a URL of `report` that may be a secret; undefined if it cannot be read, which is logged without it. */
export async function plainUrlAt(
  { loaded: { where }, folder, log }: Pick<CallContext, "loaded" | "folder" | "log">,
  path: readonly string[],
  value: string,
): Promise<string | undefined> {
  const key = ["report", ...path];
  try {
    const url = await readSecret(value, { folder, key: where(key) });
    if (isPlainUrl(url)) {
      return url;
    }
    log.warn(`calling ${key.join(".")}: the file does not hold an http(s) URL`);
  } catch (error) {
    log.warn(`calling ${key.join(".")}: ${messageOf(error)}`);
  }
  return undefined;
}

function pingBody(record: AttemptRecord, outcome: Outcome): string {
  const { info, run } = record;
  const fields =
    outcome.kind === "done"
      ? {
          exit_code: exitCodeOfOutcome(outcome),
          text: pingText(outcome.report),
          ...reportFields(outcome.report),
        }
      : { text: `${info.job}: failed: ${outcome.message}`, ...failureFields(outcome, run?.runId) };
  return JSON.stringify({ job: info.job, ...fields, attempt: attemptJson(record) });
}

function pingText(report: RunReport): string {
  const lines = [reportText(report), ...(report.verdict?.failed ?? [])];
  const commands = report.decided?.commands;
  if (commands !== undefined) {
    const texts = decidingTexts(commands);
    lines.push(`${texts.approve}: ${commands.approve}`, `${texts.discard}: ${commands.discard}`);
  }
  return lines.join("\n");
}

interface LineageEvents {
  /** Sends the last event. Never fails. */
  end(ended: { readonly outcome: Outcome; readonly endedMs: number }): Promise<void>;
}

/** The time limit for sending an event. An event that fails is not sent again. */
const eventMs = 2000;
/** The time limit after a signal. It is short, because the process may be killed soon. */
const stoppedEventMs = 1000;

type Environment = Readonly<Record<string, string | undefined>>;

/** Never fails, and delays the attempt by at most a few seconds. @public so that tests reach it */
export function beginLineage(context: CallContext, env: Environment = process.env): LineageEvents {
  const send = senderOf(context, env);
  if (send === undefined) {
    return { end: () => Promise.resolve() };
  }
  const { record } = context;
  const started = send((lineage) => startEvent(lineage, record));
  return {
    async end(ended) {
      await started; // the server receives the events in order
      await send((lineage) => endEvent(lineage, { record, ...ended }));
    },
  };
}

/** Never fails. */
async function sendDecision(
  context: CallContext,
  decision: Omit<CarriedOut, "record">,
  env: Environment = process.env,
): Promise<void> {
  const send = senderOf(context, env);
  const { record } = context;
  await send?.((lineage) => startEvent(lineage, record));
  await send?.((lineage) => decidedEvent(lineage, { record, ...decision }, Date.now()));
}

type Send = (eventOf: (lineage: LineageRun) => unknown) => Promise<void>;

/** Logs only the first failure; undefined: the spec names no server. */
function senderOf(context: CallContext, env: Environment): Send | undefined {
  const { loaded, log, signal } = context;
  const { openlineage } = loaded.spec.report;
  if (openlineage === undefined || openlineage.url === "") {
    return undefined;
  }
  const url = plainUrlAt(context, ["openlineage", "url"], openlineage.url);
  const token = tokenOf(context, openlineage);
  const described = describe(context, openlineage.namespace, env);
  let hasWarned = false;
  const warnOnce = (found: string | undefined): void => {
    if (found !== undefined && !hasWarned) {
      hasWarned = true;
      log.warn(found);
    }
  };
  return async (eventOf) => {
    try {
      const server = await url;
      const body = JSON.stringify(eventOf(await described));
      const timeoutMs = signal.aborted ? stoppedEventMs : eventMs;
      const key = "report.openlineage.url";
      const secret = await token;
      if (server !== undefined && secret !== undefined) {
        const request = { key, url: eventsUrl(server), body, timeoutMs, tries: 1 };
        warnOnce(await ping(secret === "" ? request : { ...request, token: secret }));
      }
    } catch (error) {
      warnOnce(`sending a lineage event: ${messageOf(error)}`);
    }
  };
}

/** Reads the token of the server; "": there is none; undefined: it cannot be read, which is logged. */
export async function tokenOf(
  { loaded: { where }, folder, log }: Pick<CallContext, "loaded" | "folder" | "log">,
  { token = "" }: OpenLineageSpec,
): Promise<string | undefined> {
  try {
    return await readSecret(token, { folder, key: where(["report", "openlineage", "token"]) });
  } catch (error) {
    log.warn(`sending lineage events: ${messageOf(error)}`);
    return undefined;
  }
}

/** As OpenLineage's clients do: `api/v1/lineage` below the server's URL. */
function eventsUrl(given: string): string {
  const url = new URL(given);
  const path = url.pathname.replace(/\/+$/, "");
  url.pathname = path.endsWith("/api/v1/lineage") ? path : `${path}/api/v1/lineage`;
  return url.href;
}

async function describe(context: CallContext, namespace: string, env: Environment): Promise<LineageRun> {
  const { spec } = context.loaded;
  return {
    id: randomUUID(),
    namespace,
    parent: parentRun(env),
    inputs: inputDatasets(spec, (path) => resolve(context.folder, path)),
    output: await outputDataset(context, env),
  };
}

async function outputDataset(
  { loaded: { spec, where }, folder }: CallContext,
  env: Environment,
): Promise<DatasetName | undefined> {
  const { parquet, postgres } = spec.output;
  if (parquet !== undefined) {
    return filesDataset(parquet.path, (path) => resolve(folder, path));
  }
  if (postgres === undefined) {
    return undefined;
  }
  const key = where(["output", "postgres", "url"]);
  // The target reports a secret that cannot be read.
  const url = await readSecret(postgres.url, { folder, key }).catch(() => undefined);
  return url === undefined ? undefined : tableDataset(url, postgres.table, env);
}

/** Into the pages and metrics of each worker on this machine, and as lineage events. A failure is only logged. */
export async function reportDecision(context: CallContext, report: DecisionReport): Promise<void> {
  const { loaded, folder, log } = context;
  const { runId, state, carriedOut, decision, readers, newRun } = report;
  if (decision === null || decision.kind === "superseded" || (decision.by === byChecks && !carriedOut)) {
    return;
  }
  const { kind, by, reason, asBaseline, at } = decision;
  const failed = (failure: string): void => {
    log.warn(`writing the decision into the reports: ${failure}`);
  };
  try {
    const { decidedPage } = await import("../report/page/page.js");
    const { html, metrics } = await placeReports(loaded, { folder, worker: alone.worker });
    const missing = [
      ...(await rewrite("metrics", metrics, {
        changed: (text) => decidedMetrics(text, { runId, state, atMs: Date.parse(at) }),
        failed,
      })),
      ...(await rewrite("html", html, {
        changed: (page) => decidedPage(page, { runId, kind, by, reason, asBaseline, readers, newRun }),
        failed,
      })),
    ];
    if (missing.length > 0) {
      failed(
        `there is no file of ${missing.join(" and ")} here; one on another machine does not show the decision until the job runs there again with the same params, which scores nothing`,
      );
    }
  } catch (error) {
    failed(messageOf(error));
  }
  if (carriedOut) {
    await sendDecision(context, { state, by, reason });
  }
}

/** A failure is only logged. @param about `readersHave`: the run whose rows are there; undefined: none wrote them */
export async function reportRollback(
  { load, folder, log }: Pick<CallContext, "folder" | "log"> & { readonly load: () => Promise<CallContext["loaded"]> },
  { runId, readersHave }: { readonly runId: string; readonly readersHave: string | undefined },
): Promise<void> {
  const failed = (failure: string): void => {
    log.warn(`writing the rollback into the page: ${failure}`);
  };
  try {
    const { rolledBackPage } = await import("../report/page/page.js");
    const { html } = await placeReports(await load(), { folder, worker: alone.worker });
    await rewrite("html", html, { changed: (page) => rolledBackPage(page, runId, readersHave), failed });
  } catch (error) {
    failed(messageOf(error));
  }
}

interface Rewriting {
  /** undefined: the report is about another run. */
  readonly changed: (text: string) => string | undefined;
  readonly failed: (failure: string) => void;
}

/** Returns the key of the spec if there are no reports. */
async function rewrite(
  key: "html" | "metrics",
  path: string | undefined,
  { changed, failed }: Rewriting,
): Promise<string[]> {
  if (path === undefined) {
    return [];
  }
  const files = await reportsOfWorkers(path);
  for (const file of files) {
    const earlier = await readReport(file);
    const text = changed(earlier);
    const failure = text === undefined || text === earlier ? undefined : await writeReport(file, text);
    if (failure !== undefined) {
      failed(`${file}: ${failure}`); // the other reports can be written anyway
    }
  }
  return files.length > 0 ? [] : [`report.${key}`];
}

interface ReportFiles {
  readonly html?: string | undefined;
  readonly metrics?: string | undefined;
}

/** Each of several workers has its own. @throws JobError USAGE if one is in the folder of the predictions */
export async function placeReports(
  { spec, where }: Pick<LoadedSpec, "spec" | "where">,
  { folder, worker }: { readonly folder: string; readonly worker: Worker },
): Promise<ReportFiles> {
  const place = async (key: "html" | "metrics"): Promise<string | undefined> => {
    const given = spec.report[key];
    if (given === undefined) {
      return undefined;
    }
    const path = resolve(folder, given);
    await refuseAmongPredictions(spec, { folder, path: dirname(path), doing: `reading ${where(["report", key])}` });
    return workerFile(path, worker);
  };
  return { html: await place("html"), metrics: await place("metrics") };
}

/** Refuses a file in the output folder: the next attempt would take it for a foreign file. @throws JobError USAGE */
export async function refuseAmongPredictions(
  { output: { parquet } }: JobSpec,
  { folder, path, doing }: { readonly folder: string; readonly path: string; readonly doing: string },
): Promise<void> {
  if (parquet === undefined || isObjectUri(parquet.path)) {
    return;
  }
  const output = await realPath(resolve(folder, parquet.path));
  if (!relative(output, await realPath(path)).startsWith("..")) {
    throw new JobError("USAGE", `${doing}: it is in the folder of the predictions`, {
      hint: "only predictions may be in output.parquet.path; keep reports in another folder",
    });
  }
}

/** Resolves the links of the part that exists. */
async function realPath(path: string): Promise<string> {
  const parent = dirname(path);
  // It does not exist, or this user may not read it: opening the file reports which.
  return await realpath(path).catch(async () =>
    parent === path ? path : join(await realPath(parent), basename(path)),
  );
}

async function reportsOfWorkers(path: string): Promise<string[]> {
  const folder = dirname(path);
  const names = await readdir(folder).catch(() => []);
  return names.map((name) => join(folder, name)).filter((file) => isWorkerFile(file, path));
}

/** Empty if there is none. Opens plain files only, since a pipe would block. */
async function readReport(path: string): Promise<string> {
  // One that cannot be read is written anew, which says what is wrong.
  const found = await stat(path).catch(() => undefined);
  return found?.isFile() === true ? await readFile(path, "utf8").catch(() => "") : "";
}

/** Replaces a report at once: readers see all of it or the old one. Returns what failed; undefined: nothing. */
export async function writeReport(path: string, text: string): Promise<string | undefined> {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    await makeFolder(nodeFileSystem, dirname(path));
    await replaceFile(nodeFileSystem, { path, temporary, text });
    return undefined;
  } catch (error) {
    return failureText(error, "let this user write there, or name another file");
  }
}

const writeMs = 15_000;

/** At once, at intervals and at the end. A failure is logged once, and writing is retried. */
function keepWriting(
  log: Log,
  { key, path, text }: { readonly key: string; readonly path: string; readonly text: () => string },
): { readonly end: () => Promise<void> } {
  let hasWarned = false;
  let writing = Promise.resolve();
  const writeAfter = async (before: Promise<void>): Promise<void> => {
    await before;
    const failed = await writeReport(path, text());
    if (failed !== undefined && !hasWarned) {
      hasWarned = true;
      log.warn(`writing ${key} ${path}: ${failed}`);
    }
  };
  const write = (): void => {
    writing = writeAfter(writing);
  };
  write();
  const timer = setInterval(write, writeMs).unref();
  return {
    async end() {
      clearInterval(timer);
      write();
      await writing;
    },
  };
}
