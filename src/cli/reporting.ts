import { mkdir } from "node:fs/promises";
import { basename, dirname, join, parse, relative, resolve } from "node:path";
import { errnoOf, JobError, messageOf } from "../errors.js";
import { attemptJson } from "../report/attempt-json.js";
import { htmlReport } from "../report/html-report.js";
import { lastSuccessOf, type MetricsState, metricsText } from "../report/metrics-text.js";
import { type MetricsServer, serveMetrics } from "../report/metrics-server.js";
import { type Outcome, statusOf } from "../report/outcome.js";
import { ping } from "../report/ping.js";
import { reportFields, reportText, type RunReport } from "../report/report.js";
import type { JobContext } from "../run/job.js";
import { replaceDurably } from "../sink/durable.js";
import { nodeFileSystem } from "../sink/file-system.js";
import { isS3Uri } from "../spec/s3-uri.js";
import { exitCodeOf } from "./failure.js";

export interface ReportingOptions {
  /** The spec's. */
  readonly folder: string;
  /** 0: any that is free. */
  readonly metricsPort: number | undefined;
}

/** Where an attempt that is under way keeps its metrics up to date. */
const metricsEveryMs = 15_000;
/** A process that was told to stop is ended by its signal soon. */
const stoppedPingMs = 2000;
const pingTries = 3;

/**
 * Carries out `work` and tells of it as the spec's `report` and the options ask. What fails in telling is logged, and
 * changes nothing else.
 * @throws JobError USAGE where a report would lie among the predictions; what `work` throws
 */
export async function reporting(
  job: JobContext,
  options: ReportingOptions,
  work: () => Promise<RunReport>,
): Promise<RunReport> {
  const files = reportFiles(job, options.folder);
  const lastSuccessMs = files.metrics === undefined ? undefined : await readLastSuccess(files.metrics);
  let state: MetricsState = { record: job.record, outcome: undefined, lastSuccessMs, endedMs: undefined };
  await using server = await listen(job, options.metricsPort, () => metricsText(state));
  if (server !== undefined) {
    job.log.info(`metrics: ${server.url}`);
  }
  const { report: spec } = job.spec;
  const keeping = keepMetrics(job, files.metrics, () => metricsText(state));
  let failure: { readonly error: unknown } | undefined;
  let outcome: Outcome;
  try {
    outcome = { kind: "done", report: await work() };
  } catch (error) {
    failure = { error };
    outcome = failedBy(error);
  }
  const endedMs = job.dateMs();
  state = { ...state, outcome, endedMs, ...(outcome.kind === "done" ? { lastSuccessMs: endedMs } : {}) };
  await keeping.end();
  if (files.html !== undefined && !(await saysMore(files.html, outcome))) {
    const text = (): string => htmlReport(job.record, outcome, endedMs);
    await writeReport(job, { key: "report.html", path: files.html, text });
  }
  const [key, url] = outcome.kind === "done" ? ["on_success", spec.on_success] : ["on_failure", spec.on_failure];
  if (url !== undefined && url !== "") {
    await call(job, { key: `report.${key}`, url, outcome });
  }
  if (failure !== undefined) {
    throw failure.error;
  }
  return (outcome as Extract<Outcome, { kind: "done" }>).report;
}

interface ReportFiles {
  readonly html: string | undefined;
  readonly metrics: string | undefined;
}

/** Absolute paths; each of several workers has files of its own. */
function reportFiles({ spec, worker, where }: JobContext, folder: string): ReportFiles {
  const { parquet } = spec.output;
  const output = parquet === undefined || isS3Uri(parquet.path) ? undefined : resolve(folder, parquet.path);
  const place = (key: "html" | "metrics"): string | undefined => {
    const given = spec.report[key];
    if (given === undefined) {
      return undefined;
    }
    const { dir, name, ext } = parse(resolve(folder, given));
    if (output !== undefined && !relative(output, dir).startsWith("..")) {
      throw new JobError("USAGE", `reading ${where(["report", key])}: it lies in the folder of the predictions`, {
        hint: "nothing but predictions may lie in output.parquet.path; keep reports in another folder",
      });
    }
    return join(dir, worker.count === 1 ? `${name}${ext}` : `${name}.worker-${worker.index}${ext}`);
  };
  return { html: place("html"), metrics: place("metrics") };
}

/** The page of the attempt that did the work stays when another one finds nothing to do. */
async function saysMore(path: string, outcome: Outcome): Promise<boolean> {
  return statusOf(outcome) === "already_complete" && (await nodeFileSystem.sizeOf(path).catch(() => 0)) > 0;
}

/** A failed attempt keeps what the one before it told. */
async function readLastSuccess(path: string): Promise<number | undefined> {
  return lastSuccessOf(await nodeFileSystem.readText(path).catch(() => ""));
}

async function listen(
  { log }: JobContext,
  port: number | undefined,
  text: () => string,
): Promise<MetricsServer | undefined> {
  if (port === undefined) {
    return undefined;
  }
  try {
    return await serveMetrics(port, text);
  } catch (error) {
    log.warn(
      `listening on 127.0.0.1:${port} for --metrics-port: ${errnoOf(error) ?? messageOf(error)}; there are none`,
    );
    return undefined;
  }
}

/** Writes metrics now, now and then, and at the end. */
function keepMetrics(
  job: JobContext,
  path: string | undefined,
  text: () => string,
): { readonly end: () => Promise<void> } {
  if (path === undefined) {
    return { end: () => Promise.resolve() };
  }
  let failed = false;
  let writing = Promise.resolve();
  const writeAfter = async (before: Promise<void>): Promise<void> => {
    await before;
    failed ||= !(await writeReport(job, { key: "report.metrics", path, text }));
  };
  const write = (): void => {
    writing = writeAfter(writing);
  };
  write();
  const timer = setInterval(() => {
    if (!failed) {
      write();
    }
  }, metricsEveryMs).unref();
  return {
    async end() {
      clearInterval(timer);
      if (!failed) {
        write();
      }
      await writing;
    },
  };
}

/** All of it or nothing, for whoever reads it just then. Returns whether it is there. */
async function writeReport(
  { log }: JobContext,
  { key, path, text }: { readonly key: string; readonly path: string; readonly text: () => string },
): Promise<boolean> {
  const temporary = join(dirname(path), `.${basename(path)}.${process.pid}.tmp`);
  try {
    await mkdir(dirname(path), { recursive: true });
    await replaceDurably(nodeFileSystem, { temporary, final: path, text: text(), check: () => Promise.resolve() });
    return true;
  } catch (error) {
    log.warn(`writing ${key} ${path}: ${errnoOf(error) ?? messageOf(error)}`);
    return false;
  }
}

async function call(
  job: JobContext,
  { key, url, outcome }: { readonly key: string; readonly url: string; readonly outcome: Outcome },
): Promise<void> {
  const { method, timeout } = job.spec.report;
  const stopped = job.signal.aborted;
  const found = await ping({
    key,
    url,
    body: method === "post" ? pingBody(job, outcome) : undefined,
    timeoutMs: stopped ? Math.min(stoppedPingMs, timeout * 1000) : timeout * 1000,
    tries: stopped ? 1 : pingTries,
  });
  if (found !== undefined) {
    job.log.warn(found);
  }
}

function pingBody({ record }: JobContext, outcome: Outcome): string {
  const { about, run } = record;
  const told =
    outcome.kind === "done"
      ? { exit_code: 0, text: reportText(outcome.report), ...reportFields(outcome.report) }
      : {
          exit_code: outcome.exitCode,
          text: `${about.job}: failed: ${outcome.message}`,
          run_id: run?.runId ?? null,
          status: "failed",
          code: outcome.code,
          message: outcome.message,
          hint: outcome.hint ?? null,
        };
  return JSON.stringify({ job: about.job, ...told, attempt: attemptJson(record) });
}

function failedBy(error: unknown): Outcome {
  const known = error instanceof JobError ? error : undefined;
  return {
    kind: "failed",
    code: known?.code ?? "BUG",
    message: messageOf(error),
    hint: known?.hint,
    exitCode: exitCodeOf(error),
  };
}
