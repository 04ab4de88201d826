import { dirname, resolve } from "node:path";
import { type BackfillJob, type BackfillJobs, readBackfill } from "../../app/backfill-jobs.js";
import { alone, openLoaded, recordOf } from "../../app/job-context.js";
import { finalError } from "../../app/machine-errors.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { calling, reporting } from "../../app/reports/reporting.js";
import { resolveOnce, type SharedModels } from "../../app/shared-models.js";
import { orderOf, type RangeStep, type RunOrder, runValues, type ValueStatus, worstOf } from "../../jobs/backfill.js";
import type { AttemptRecord } from "../../report/attempt-record.js";
import {
  type Backfill,
  backfillJson,
  type BackfillRun,
  backfillRunJson,
  backfillText,
  totalsText,
  valuesText,
} from "../../report/backfill-text.js";
import { modelName } from "../../report/plan-text.js";
import { type Progress, silentProgress } from "../../report/progress/progress.js";
import { reportText } from "../../report/report-text.js";
import { runJob } from "../../run/run.js";
import type { Log } from "../../scoring/context.js";
import { modelUri } from "../../spec/model-spec.js";
import { type ErrorCode, exitCodeOf, JobError, messageOf } from "../../util/errors.js";
import { shellWord } from "../../util/shell-word.js";
import { chooseProgress } from "../choose-progress.js";
import { type SafeIo, terminalWidth } from "../io.js";
import { createLog, type LogOptions } from "../logger.js";
import { abortOnSignals } from "../signals.js";

interface BackfillOptions extends JobOptions, LogOptions {
  readonly step?: RangeStep;
  readonly parallel: number;
  readonly stopOnFailure?: boolean;
  readonly reprocess: "none" | "failed" | "completed";
  readonly allowDuplicates?: boolean;
  readonly allowOlder?: boolean;
  readonly json?: boolean;
  readonly progress: boolean;
}

/** Carries out one run for each value of a range of dates. */
export async function backfillCommand(specPath: string, options: BackfillOptions, io: SafeIo): Promise<void> {
  using stop = abortOnSignals(io, options, {
    kept: "complete runs and committed spans are kept",
    hint: "run the same command again to continue",
  });
  const log = createLog(io.stderr, options);
  const jobs = await readBackfill(specPath, options);
  const { param, first, last } = jobs.range;
  const order = orderFor(jobs, options, log);
  let model: Backfill["model"];
  const sharedModels = resolveOnce((named, { model: { sha256 }, version }) => {
    model = { uri: modelUri(named), version, sha256 };
    log.info(`all runs that this backfill plans: model ${modelName(model)}, sha256 ${sha256}`);
  });
  const runsOfCommand = new Set<string>(jobs.jobs.map(({ runId }) => runId));
  const progress = (logLine: (line: string) => void): Progress =>
    order.parallel > 1 ? silentProgress : chooseProgress(options, logLine, io.stderr.raw);
  const { signal } = stop;
  const warned = new Set<string>();
  const shared = { specPath, options, jobs, order, sharedModels, runsOfCommand, log, progress, warned, signal };

  const ends = await runValues(jobs.jobs, { ...order, signal }, async (job) => {
    const end = await runValue(shared, job);
    if (options.json === true) {
      io.stdout.write(`${backfillRunJson(param, end)}\n`);
    }
    return end;
  });
  const runs = jobs.jobs.map(
    ({ value, runId }, index): EndedRun => ends[index] ?? { value, runId, status: "not_started", exitCode: 0 },
  );

  const backfill = { param, first, last, runs, model };
  const failure = signal.aborted ? signal.reason : failureOf(backfill, specPath, options);
  if (options.json === true) {
    io.stdout.write(`${backfillJson(backfill, failure === undefined ? 0 : exitCodeOf(failure))}\n`);
  } else if (options.quiet !== true) {
    io.stdout.write(`${backfillText(backfill, terminalWidth(io.stdout))}\n`);
  }
  if (failure !== undefined) {
    throw failure;
  }
}

function orderFor({ first }: BackfillJobs, options: BackfillOptions, log: Log): RunOrder {
  const { parallel, stopOnFailure = false, allowOlder = false } = options;
  const order = orderOf(first.spec, { parallel, stopOnFailure, allowOlder });
  if (order.why !== undefined) {
    log.warn(`runs are carried out one at a time, not ${parallel} at once: ${order.why}`);
  }
  return order;
}

type EndedBackfill = Backfill & { readonly runs: readonly EndedRun[] };

/** The error that a backfill ends with: that of the worst run; undefined: every run is complete. */
function failureOf(backfill: EndedBackfill, specPath: string, options: BackfillOptions): unknown {
  const { param, first, last, runs } = backfill;
  const worst = worstOf(runs);
  if (worst === undefined) {
    return undefined;
  }
  if (!(worst.error instanceof JobError)) {
    return worst.error; // a bug, with its stack
  }
  return new JobError(worst.error.code, `backfilling ${param}=${first}..${last}: ${totalsText(runs)}`, {
    hint: [...continuing(backfill, specPath, options), ...findings(runs)].join("\n    "),
    cause: worst.error,
  });
}

function continuing({ param, last, runs }: EndedBackfill, specPath: string, options: BackfillOptions): string[] {
  if (options.reprocess !== "completed") {
    const changed = runs.some(({ status }) => status === "failed" || status === "held" || status === "discarded");
    const again =
      changed && options.reprocess === "none"
        ? ["after you correct the input, the model or the spec, add --reprocess failed"]
        : [];
    return ["run the same command again to continue the runs that are not complete", ...again];
  }
  const next = runs.find(({ status }) => status === "not_started");
  const range = shellWord(`${param}=${next?.value ?? ""}..${last}`);
  return [
    "the same command scores all of them again; without --reprocess it continues the runs that it has planned",
    ...(next === undefined
      ? []
      : [
          `for the runs that were not started: infer-batch backfill ${shellWord(specPath)} --param ${range} --reprocess completed`,
        ]),
  ];
}

/** Lines that name the values whose runs need a person. */
function findings(runs: readonly EndedRun[]): string[] {
  const named = (status: ValueStatus, text: string): string[] => {
    const values = valuesText(runs, status, 10);
    return values === "" ? [] : [`${text}: ${values}`];
  };
  return [
    ...named("failed", "failed"),
    ...named("held", "held by their checks, to be approved or discarded"),
    ...named("not_started", "not started"),
    ...(runs.every(({ status }) => status === "no_input") ? ["no value has input: is input.path right?"] : []),
  ];
}

/** What all runs of a backfill share. */
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
interface EndedRun extends BackfillRun {
  readonly error?: unknown;
}

/** Carries out the run of one value, and logs how it ended. Never throws. */
async function runValue(shared: Shared, job: BackfillJob): Promise<EndedRun> {
  const { jobs, options } = shared;
  const { value, runId } = job;
  const log = logOfValue(shared.log, `${jobs.range.param}=${value}`, shared.warned);
  const newRun = options.reprocess === "completed";
  const end = await attempted(shared, job, log, newRun);

  const again = options.reprocess !== "none" && !newRun && isFinal(end);
  if (again) {
    const [firstLine = ""] = messageOf(end.error).split("\n");
    log.announce(`${firstLine}; --reprocess ${options.reprocess} scores it again`);
  }
  const run = { value, runId, ...(again ? await attempted(shared, job, log, true) : end) };

  const place = `(${jobs.jobs.findIndex((other) => other.value === value) + 1} of ${jobs.jobs.length})`;
  if (run.failure === undefined) {
    log.announce(`${run.report === undefined ? run.status : reportText(run.report)} ${place}`);
  } else if (run.status !== "stopped") {
    const hint = run.failure.hint === undefined ? "" : `\n  hint: ${run.failure.hint}`;
    log.warn(`${run.failure.message} ${place}${hint}`);
  }
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

async function attempted(shared: Shared, { load }: BackfillJob, log: ValueLog, newRun: boolean): Promise<Attempted> {
  const { specPath, options, order, sharedModels, runsOfCommand, progress, signal } = shared;
  const { allowDuplicates = false, allowOlder = false } = options;
  const attempt = { ...alone, newRun, runsOfCommand, allowDuplicates, allowOlder };
  let record: AttemptRecord | undefined;
  try {
    const loaded = load();
    const begun = recordOf(loaded.spec, { worker: attempt.worker });
    record = begun;
    const about = { loaded, folder: dirname(resolve(specPath)), record, log, signal, dateMs: Date.now };
    const report = await reporting({ ...about, metricsPort: undefined }, async (deadline) => {
      await using job = await openLoaded(loaded, specPath, {
        log,
        signal,
        attempt,
        record: begun,
        sharedModels,
        jobsAtOnce: order.parallel,
        progress: progress((line) => log.announce(line)),
      });
      return await calling(about, deadline, () => runJob(job));
    });

    const error = report.decided?.error;
    const modelSha256 = record.run?.modelSha256;
    return { status: report.status, exitCode: error?.exitCode ?? 0, report, modelSha256, ...(error && failed(error)) };
  } catch (thrown) {
    const error = finalError(thrown);
    return {
      status: statusOf(error),
      exitCode: exitCodeOf(error),
      modelSha256: record?.run?.modelSha256,
      ...failed(error),
    };
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

/**
 * The log of one of several runs. Its informational lines are logged at level debug, and a warning that another run has
 * logged is not repeated.
 */
interface ValueLog extends Log {
  /** Logs a line about the run at level info. */
  announce(message: string): void;
}

function logOfValue(log: Log, label: string, warned: Set<string>): ValueLog {
  const debug = (message: string): void => log.debug(`${label}: ${message}`);
  return {
    announce: (message) => log.info(`${label}: ${message}`),
    info: debug,
    debug,
    warn(message) {
      if (!warned.has(message)) {
        warned.add(message);
        log.warn(`${label}: ${message}`);
      }
    },
  };
}
