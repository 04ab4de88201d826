import { refuseChain } from "../../job/chain.js";
import { type CommandLine, paramAs, countOf, quietFlag, logFlags } from "../flags.js";
import { dirname, resolve } from "node:path";
import { firstLine } from "../../duckdb/sql.js";
import { alone, openLoaded, recordOf } from "../../job/open.js";
import { finalError } from "../../job/machine.js";
import { resolveOnce } from "../../job/model-tools.js";
import { type JobOptions, type LoadWith, readSpecOnce } from "../../job/reading.js";
import { calling, reporting } from "../../job/reporting.js";
import {
  type DateRange,
  type RangeStep,
  type ValueEnd,
  type ValueStatus,
  findRange,
  orderOf,
  rangeValues,
  runValues,
  stepOf,
  valueStatuses,
  worstOf,
  rangeSteps,
} from "../../run/series/backfill.js";
import { runIdOf } from "../../run/plan/identity.js";
import type { RunId } from "../../run/plan/plan.js";
import type { RowsOfRun } from "../../run/lifecycle/span-record.js";
import type { AttemptRecord } from "../../report/attempt-record.js";
import { modelName } from "../../report/plan-text.js";
import { silentProgress } from "../../report/progress.js";
import { type RunReport, reportFields, reportText } from "../../report/report.js";
import { showCount, count } from "../../base/shown-numbers.js";
import { fitTable, sameValueFirst } from "../../report/table.js";
import { runJob } from "../../run/run.js";
import type { Log } from "../../flow/opened-job.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import { modelUri } from "../../job/jobfile/model-spec.js";
import { type ErrorCode, type ExitCode, JobError, exitCodeOf, messageOf } from "../../base/errors.js";
import { sha256Of } from "../../base/sha256.js";
import { shellWord } from "../../base/texts.js";
import { abortOnSignals } from "../failure.js";
import { type SafeIo, terminalWidth } from "../io.js";
import { type LogOptions, chooseProgress, createLog } from "../logger.js";

export const backfillCommand: CommandLine = {
  flags: {
    ...paramAs("Set a param of the spec; may be repeated. One takes a range of dates: ds=2026-01-01..2026-01-31"),
    "--step <step>": [
      "Time between two values. Default: day, or month for a range such as 2026-01..2026-12, or hour for 2026-01-01T00..2026-01-01T23",
      rangeSteps,
    ],
    "--parallel <n>": [
      "Runs at once, which share cores and memory. Runs with checks, and runs into Postgres with upsert or replace, go one at a time",
      countOf(64),
      1,
    ],
    "--stop-on-failure": "Start no further run after one that fails or is held by its checks",
    "--reprocess <which>": [
      "Which runs to score again as new runs: failed are those that are held, discarded or damaged, or whose input, model or spec changed; completed are all of them",
      ["none", "failed", "completed"],
      "none",
    ],
    "--allow-duplicates":
      "Allow --reprocess to append to a table that is not empty; rows may then be there twice (mode append)",
    "--allow-older": "Allow these runs to overwrite the rows of newer runs of this job (Postgres: upsert, replace)",
    "--json": "Print one line of JSON for each run, and one for all of them at the end",
    ...quietFlag,
    "--no-progress": "Print no progress",
    ...logFlags,
  },
  examples: ["infer-batch backfill job.yaml --param ds=2026-01-01..2026-01-31"],
  run: runBackfill,
};

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

async function runBackfill(specPath: string, options: BackfillOptions, io: SafeIo): Promise<void> {
  using stop = abortOnSignals(io, options, {
    kept: "complete runs and committed spans are kept",
    hint: "run the same command again to continue",
  });
  const log = createLog(io.stderr, options);
  const jobs = await readBackfill(specPath, options);
  const { param, first, last } = jobs.range;
  const { parallel, stopOnFailure = false, allowDuplicates = false, allowOlder = false, reprocess } = options;
  const order = orderOf(jobs.first.spec, { parallel, stopOnFailure, allowOlder });
  if (order.why !== undefined) {
    log.warn(`runs are carried out one at a time, not ${parallel} at once: ${order.why}`);
  }
  let model: Backfill["model"];
  const sharedModels = resolveOnce((named, { model: { sha256 }, version }) => {
    model = { uri: modelUri(named), version, sha256 };
    log.info(`all runs that this backfill plans: model ${modelName(model)}, sha256 ${sha256}`);
  });
  const runsOfCommand = new Set<string>(jobs.jobs.map(({ runId }) => runId));
  const { signal } = stop;
  const warned = new Set<string>();

  const attempted = async ({ load }: BackfillJob, valueLog: ValueLog, newRun: boolean): Promise<Attempted> => {
    const attempt = { ...alone, newRun, runsOfCommand, allowDuplicates, allowOlder };
    const logLine = (line: string): void => valueLog.announce(line);
    let record: AttemptRecord | undefined;
    try {
      const loaded = load();
      const begun = recordOf(loaded.spec, { worker: attempt.worker });
      record = begun;
      const about = { loaded, folder: dirname(resolve(specPath)), record, log: valueLog, signal, dateMs: Date.now };
      const report = await reporting({ ...about, metricsPort: undefined }, async (deadline) => {
        await using opened = await openLoaded(loaded, specPath, {
          log: valueLog,
          signal,
          attempt,
          record: begun,
          sharedModels,
          jobsAtOnce: order.parallel,
          progress: order.parallel > 1 ? silentProgress : await chooseProgress(options, logLine, io.stderr.raw),
        });
        return await calling(about, deadline, () => runJob(opened));
      });
      const error = report.decided?.error;
      const modelSha256 = record.run?.modelSha256;
      return { status: report.status, exitCode: error?.exitCode ?? 0, report, modelSha256, error };
    } catch (thrown) {
      const error = finalError(thrown);
      return { status: statusOf(error), exitCode: exitCodeOf(error), modelSha256: record?.run?.modelSha256, error };
    }
  };

  /** Never throws. */
  const runValue = async (job: BackfillJob, index: number): Promise<BackfillRun> => {
    const { value, runId } = job;
    const valueLog = logOfValue(log, `${param}=${value}`, warned);
    const newRun = reprocess === "completed";
    const end = await attempted(job, valueLog, newRun);
    const again = reprocess !== "none" && !newRun && isFinal(end);
    if (again) {
      valueLog.announce(`${firstLine(messageOf(end.error))}; --reprocess ${reprocess} scores it again`);
    }
    const run = { value, runId, ...(again ? await attempted(job, valueLog, true) : end) };

    const place = `(${index + 1} of ${jobs.jobs.length})`;
    if (run.error === undefined) {
      valueLog.announce(`${run.report === undefined ? run.status : reportText(run.report)} ${place}`);
    } else if (run.status !== "stopped") {
      const hint = run.error instanceof JobError && run.error.hint !== undefined ? `\n  hint: ${run.error.hint}` : "";
      valueLog.warn(`${messageOf(run.error)} ${place}${hint}`);
    }
    return run;
  };

  const ends = await runValues(jobs.jobs, { ...order, signal }, async (job) => {
    const end = await runValue(job, jobs.jobs.indexOf(job));
    if (options.json === true) {
      io.stdout.write(`${backfillRunJson(param, end)}\n`);
    }
    return end;
  });
  const runs = jobs.jobs.map(
    ({ value, runId }, index): BackfillRun => ends[index] ?? { value, runId, status: "not_started", exitCode: 0 },
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

function failureOf(backfill: Backfill, specPath: string, options: BackfillOptions): unknown {
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

function continuing({ param, last, runs }: Backfill, specPath: string, options: BackfillOptions): string[] {
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

function findings(runs: readonly BackfillRun[]): string[] {
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

/** Whether the same command would always fail in the same way, so that only a new run helps. */
function isFinal({ error, report }: Attempted): boolean {
  const changed: readonly ErrorCode[] = ["INPUT_CHANGED", "MODEL_CHANGED", "PLAN_CHANGED", "OUTPUT_DAMAGED"];
  return report?.decided === undefined
    ? error instanceof JobError && changed.includes(error.code)
    : !report.decided.isOwnVerdict;
}

type Attempted = Omit<BackfillRun, "value" | "runId">;

function statusOf(error: unknown): ValueStatus {
  const code = error instanceof JobError ? error.code : undefined;
  if (code === "PRUNED") {
    return "pruned";
  }
  return code === "INPUT_NOT_READY" ? "no_input" : code === "SIGINT" || code === "SIGTERM" ? "stopped" : "failed";
}

/** Informational lines are logged at level debug, and a warning that another run has logged is not repeated. */
interface ValueLog extends Log {
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

interface BackfillJob {
  readonly value: string;
  readonly runId: RunId;
  /** Loads the spec with the value of the job, which is already checked. */
  readonly load: () => LoadedSpec;
}

interface BackfillJobs {
  readonly range: DateRange;
  readonly jobs: readonly BackfillJob[];
  readonly first: LoadedSpec;
}

/**
 * Checks a spec with each value of `--param name=A..B`. @throws JobError USAGE, SPEC_INVALID @public so that tests
 * reach it
 */
export async function readBackfill(
  specPath: string,
  { param, step: asked }: JobOptions & { readonly step?: RangeStep | undefined },
): Promise<BackfillJobs> {
  const { range, others } = findRange(param);
  const step = stepOf(range, asked);
  const load = await readSpecOnce(specPath, { param: others });
  const hourParam = step === "hour" ? hourParamOf(load, range) : undefined;
  const values = rangeValues(range, step, hourParam);
  const loadFirst = (index: number): LoadedSpec => forBackfill(load(values[index]?.params ?? {}));
  const first = loadFirst(0);
  const second = values.length > 1 ? loadFirst(1) : undefined;
  refuseChain(
    first,
    "backfilling",
    "its first run scores all rows that are there, and each later one those that came since",
  );
  refuseClock(range, first);
  if (second !== undefined) {
    refuseSameRows(specPath, range, [first, second]);
  }
  const sharesPage = second !== undefined && first.spec.report.html === second.spec.report.html;
  const prepare = sharesPage ? withoutPage : (loaded: LoadedSpec): LoadedSpec => loaded;
  const jobs = values.map(({ text, params }) => {
    const { name, params: all } = load(params).spec;
    return {
      value: text,
      runId: runIdOf(name, all, sha256Of),
      load: () => prepare(forBackfill(load(params))),
    };
  });
  return { range, jobs, first };
}

/** undefined: the param with the range has date and hour, or the spec has no hour. */
function hourParamOf(load: LoadWith, { param, first }: DateRange): string | undefined {
  const { hourParam } = load({ [param]: first.slice(0, "2026-01-01".length) });
  return hourParam === param ? undefined : hourParam;
}

/**
 * Does not wait for input (that of past dates does not arrive later); no metrics, URLs or deadline, as these report on
 * the scheduled run. Lineage events are sent: each run makes a version of the dataset.
 */
function forBackfill(loaded: LoadedSpec): LoadedSpec {
  const { spec } = loaded;
  const { html, openlineage, method, timeout } = spec.report;
  const silent = { on_success: "", on_failure: "", on_held: "", on_late: "", method, timeout };
  const report = { ...silent, html, openlineage };
  return { ...loaded, spec: { ...spec, input: { ...spec.input, wait: 0 }, report } };
}

/** The same command would plan different runs tomorrow. */
function refuseClock({ param }: DateRange, { clock: [key] }: LoadedSpec): void {
  if (key === undefined) {
    return;
  }
  const name = key.startsWith("params.") ? key.slice("params.".length) : undefined;
  throw new JobError(
    "USAGE",
    `reading the spec: ${key} comes from the clock, so the same backfill would plan different runs tomorrow`,
    {
      hint:
        name === undefined
          ? `declare the value under params, computed from \${${param}}`
          : `set it: --param ${name}=…, or compute it from \${${param}}`,
    },
  );
}

function refuseSameRows(specPath: string, { param }: DateRange, loaded: readonly LoadedSpec[]): void {
  const [first, second] = loaded.map(({ spec }) => JSON.stringify({ ...spec, params: {} }));
  if (first === second) {
    throw new JobError(
      "USAGE",
      `reading ${specPath}: no key uses \${${param}}, so all runs would score the same rows`,
      {
        hint: `write \${${param}} into input.path or input.where, and into output.parquet.path`,
      },
    );
  }
}

function withoutPage(loaded: LoadedSpec): LoadedSpec {
  const { html: _, ...report } = loaded.spec.report;
  return { ...loaded, spec: { ...loaded.spec, report } };
}

interface BackfillRun extends ValueEnd {
  readonly value: string;
  readonly runId: string;
  /** The report of the attempt; undefined: it failed or was not started. */
  readonly report?: RunReport | undefined;
  /** What it ended with, if it needs a person or another attempt. */
  readonly error?: unknown;
  /** The digest of the model that the run's plan pins; undefined: there is no plan. */
  readonly modelSha256?: string | undefined;
}

interface Backfill {
  readonly param: string;
  readonly first: string;
  readonly last: string;
  readonly runs: readonly BackfillRun[];
  /** The model of the runs that this command planned; undefined: it planned none. */
  readonly model?: { readonly uri: string; readonly version?: string | undefined; readonly sha256: string } | undefined;
}

const words: Readonly<Record<ValueStatus, string>> = {
  complete: "complete",
  already_complete: "already complete",
  nothing_new: "nothing new",
  partial: "partial",
  held: "held",
  discarded: "discarded",
  pruned: "pruned",
  failed: "failed",
  no_input: "without input",
  stopped: "stopped",
  not_started: "not started",
};

/** With more values, the table shows only the runs that are not complete or have warnings. */
const mostShown = 400;

function valuesOf(runs: readonly BackfillRun[], status: ValueStatus): readonly string[] {
  return runs.filter((run) => run.status === status).map(({ value }) => value);
}

function valuesText(runs: readonly BackfillRun[], status: ValueStatus, most = 40): string {
  const values = valuesOf(runs, status);
  const more = values.length > most ? [`and ${count(values.length - most, "more value")}`] : [];
  return [...values.slice(0, most), ...more].join(", ");
}

/** "90 runs: 87 complete, 1 held, 2 without input; 3 with warnings". */
function totalsText(runs: readonly BackfillRun[]): string {
  const parts = valueStatuses.flatMap((status) => {
    const number = valuesOf(runs, status).length;
    return number === 0 ? [] : [`${showCount(number)} ${words[status]}`];
  });
  const warned = runs.filter(hasWarnings).length;
  return `${count(runs.length, "run")}: ${parts.join(", ")}${warned === 0 ? "" : `; ${showCount(warned)} with warnings`}`;
}

function hasWarnings({ report }: BackfillRun): boolean {
  return report?.verdict?.warned !== undefined;
}

/** @param width characters in a line of the terminal; undefined: there is none */
function backfillText({ param, runs, model }: Backfill, width: number | undefined): string {
  const shown =
    runs.length <= mostShown ? runs : runs.filter((run) => !run.status.endsWith("complete") || hasWarnings(run));
  const rows = shown.map(({ value, status, report, error }) => [
    value,
    words[status],
    shownCount(writtenRows(report)?.output),
    shownCount(writtenRows(report)?.rejected),
    report === undefined || report.seconds === 0 ? "" : report.seconds.toFixed(1),
    firstLine(report?.verdict?.warned ?? report?.verdict?.failed[0] ?? (error === undefined ? "" : messageOf(error))),
  ]);
  const missing = valuesText(runs, "no_input");
  const { length: others } = runs.filter(
    ({ modelSha256 }) => model !== undefined && modelSha256 !== undefined && modelSha256 !== model.sha256,
  );
  return [
    ...fitTable([[param, "status", "rows", "rejected", "seconds", ""], ...rows], {
      right: [2, 3, 4],
      width,
      leaveOut: sameValueFirst(rows, [4, 3, 2]),
      hasNotes: true,
    }),
    ...(others === 0
      ? []
      : [`${count(others, "run")} of these ${others === 1 ? "has" : "have"} the predictions of another model`]),
    ...(missing === "" ? [] : [`no input: ${missing}`]),
    totalsText(runs),
  ].join("\n");
}

/** Also of a held run, whose rows are staged; undefined: discarded or rolled back, or its attempt has no report. */
function writtenRows(report: RunReport | undefined): RowsOfRun | undefined {
  return report?.status === "discarded" || report?.rolledBack !== undefined ? undefined : report?.rowsOfRun;
}

function shownCount(value: number | undefined): string {
  return value === undefined ? "" : showCount(value);
}

function backfillRunJson(param: string, run: BackfillRun): string {
  const { value, runId, status, exitCode, report, error, modelSha256 } = run;
  const known = error instanceof JobError ? error : undefined;
  return JSON.stringify({
    param,
    value,
    ...(report === undefined ? { run_id: runId } : reportFields(report)),
    status,
    exit_code: exitCode,
    rows: writtenRows(report)?.output ?? null,
    model_sha256: modelSha256 ?? null,
    ...(error !== undefined && { code: known?.code ?? "BUG", message: messageOf(error), hint: known?.hint ?? null }),
  });
}

function backfillJson({ param, first, last, runs, model }: Backfill, exitCode: ExitCode): string {
  const counts = valueStatuses.map((status) => [status, valuesOf(runs, status).length]);
  return JSON.stringify({
    param,
    first,
    last,
    runs: runs.length,
    ...(Object.fromEntries(counts) as Record<ValueStatus, number>),
    values_failed: valuesOf(runs, "failed"),
    values_held: valuesOf(runs, "held"),
    values_no_input: valuesOf(runs, "no_input"),
    values_warned: runs.filter(hasWarnings).map(({ value }) => value),
    model: model === undefined ? null : { uri: model.uri, version: model.version ?? null, sha256: model.sha256 },
    exit_code: exitCode,
  });
}
