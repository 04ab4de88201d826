import { dirname, resolve } from "node:path";
import type { BackfillJob, BackfillJobs } from "../../app/backfill-jobs.js";
import { alone, openLoaded, recordOf } from "../../app/job-context.js";
import { finalError } from "../../app/machine-errors.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { calling, reporting } from "../../app/reports/reporting.js";
import type { SharedModels } from "../../app/shared-models.js";
import type { RunOrder, ValueStatus } from "../../jobs/run-values.js";
import type { RangeStep } from "../../jobs/date-range.js";
import type { BackfillRun } from "../../report/backfill-text.js";
import type { Progress } from "../../report/progress/progress.js";
import type { RunReport } from "../../report/report.js";
import { reportText } from "../../report/report-text.js";
import { runJob } from "../../run/run.js";
import type { Log } from "../../scoring/context.js";
import { type ErrorCode, exitCodeOf, JobError, messageOf } from "../../util/errors.js";
import { logOf, type ValueLog } from "../value-log.js";

export interface BackfillOptions extends JobOptions {
  readonly step?: RangeStep;
  readonly parallel: number;
  readonly stopOnFailure?: boolean;
  readonly reprocess: "none" | "failed" | "completed";
  readonly allowDuplicates?: boolean;
  readonly allowOlder?: boolean;
  readonly json?: boolean;
  readonly quiet?: boolean;
  readonly progress: boolean;
  readonly logLevel: "debug" | "info" | "warn" | "error";
  readonly logFormat: "pretty" | "json";
}

/** The context that all runs of a backfill share. */
interface Shared {
  readonly specPath: string;
  readonly options: BackfillOptions;
  readonly jobs: BackfillJobs;
  readonly order: RunOrder;
  readonly sharedModels: SharedModels;
  readonly runsOfCommand: ReadonlySet<string>;
  readonly log: Log;
  readonly progress: (logLine: (line: string) => void) => Progress;
  /** The warnings that earlier runs have logged. */
  readonly warned: Set<string>;
  readonly signal: AbortSignal;
}

/** The run of one value, with the error that it ended with. */
export interface EndedRun extends BackfillRun {
  readonly error?: unknown;
}

/** Carries out the run of one value, and logs how it ended. Never throws. */
export async function runValue(shared: Shared, job: BackfillJob): Promise<EndedRun> {
  const { jobs, options } = shared;
  const log = logOf(shared.log, { label: `${jobs.range.param}=${job.value}`, warned: shared.warned });
  const newRun = options.reprocess === "completed";
  const end = await attempted(shared, job, { log, newRun });
  const again = options.reprocess !== "none" && !newRun && isFinal(end);
  if (again) {
    log.announce(`${firstLine(messageOf(end.error))}; --reprocess ${options.reprocess} scores it again`);
  }
  const run = {
    value: job.value,
    runId: job.runId,
    ...(again ? await attempted(shared, job, { log, newRun: true }) : end),
  };
  logEnd(log, shared, run);
  return run;
}

/** Whether the same command would always fail in the same way, so that only a new run helps. */
function isFinal({ error, report }: Attempted): boolean {
  const changed: readonly ErrorCode[] = ["INPUT_CHANGED", "MODEL_CHANGED", "PLAN_CHANGED", "OUTPUT_DAMAGED"];
  return report?.decided === undefined
    ? error instanceof JobError && changed.includes(error.code)
    : !report.decided.isOwnVerdict;
}

type Attempted = Pick<EndedRun, "status" | "exitCode" | "report" | "failure" | "modelSha256" | "error">;

interface AttemptOptions {
  readonly log: ValueLog;
  readonly newRun: boolean;
}

async function attempted(shared: Shared, job: BackfillJob, how: AttemptOptions): Promise<Attempted> {
  let modelSha256: string | undefined;
  try {
    const report = await openAndRun(shared, job, how, (sha256) => {
      modelSha256 = sha256;
    });
    const error = report.decided?.error;
    return { status: report.status, exitCode: error?.exitCode ?? 0, report, modelSha256, ...(error && failed(error)) };
  } catch (thrown) {
    const error = finalError(thrown);
    return { status: statusOf(error), exitCode: exitCodeOf(error), modelSha256, ...failed(error) };
  }
}

/** Carries out the run of one value as `run` does. @param onModel called with the digest of the planned model */
async function openAndRun(
  { options, runsOfCommand, sharedModels, order, progress, signal, specPath }: Shared,
  { load }: BackfillJob,
  { log, newRun }: AttemptOptions,
  onModel: (sha256: string | undefined) => void,
): Promise<RunReport> {
  const loaded = load();
  const { allowDuplicates = false, allowOlder = false } = options;
  const attempt = { ...alone, newRun, runsOfCommand, allowDuplicates, allowOlder };
  const record = recordOf(loaded.spec, { worker: attempt.worker });
  const about = { loaded, folder: dirname(resolve(specPath)), record, log, signal, dateMs: Date.now };
  try {
    return await reporting({ ...about, metricsPort: undefined }, async (deadline) => {
      const parts = { log, signal, attempt, record, sharedModels, jobsAtOnce: order.parallel };
      await using job = await openLoaded(loaded, specPath, {
        ...parts,
        progress: progress((line) => log.announce(line)),
      });
      return await calling(about, deadline, () => runJob(job));
    });
  } finally {
    onModel(record.run?.modelSha256);
  }
}

function failed(error: unknown): Pick<EndedRun, "failure" | "error"> {
  const known = error instanceof JobError ? error : undefined;
  return { error, failure: { code: known?.code ?? "BUG", message: messageOf(error), hint: known?.hint } };
}

function statusOf(error: unknown): ValueStatus {
  const code = error instanceof JobError ? error.code : undefined;
  if (code === "PRUNED") {
    return "pruned";
  }
  return code === "INPUT_NOT_READY" ? "no_input" : code === "SIGINT" || code === "SIGTERM" ? "stopped" : "failed";
}

function logEnd(log: ValueLog, { jobs }: Shared, run: EndedRun): void {
  const at = jobs.jobs.findIndex(({ value }) => value === run.value) + 1;
  const place = `(${at} of ${jobs.jobs.length})`;
  if (run.failure === undefined) {
    log.announce(`${run.report === undefined ? run.status : reportText(run.report)} ${place}`);
  } else if (run.status !== "stopped") {
    const hint = run.failure.hint === undefined ? "" : `\n  hint: ${run.failure.hint}`;
    log.warn(`${run.failure.message} ${place}${hint}`);
  }
}

function firstLine(text: string): string {
  const [line = ""] = text.split("\n");
  return line;
}
