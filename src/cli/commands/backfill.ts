import { type BackfillJobs, readBackfill } from "../../app/backfill-jobs.js";
import { shellWord } from "../../util/shell-word.js";
import { resolveOnce } from "../../app/shared-models.js";
import { runValues, orderOf, type RunOrder, type ValueStatus, worstOf } from "../../jobs/run-values.js";
import {
  type Backfill,
  backfillJson,
  backfillRunJson,
  backfillText,
  totalsText,
  valuesText,
} from "../../report/backfill-text.js";
import { modelUri } from "../../spec/model-spec.js";
import { modelName } from "../../report/plan-text.js";
import { type Progress, silentProgress } from "../../report/progress/progress.js";
import type { Log } from "../../scoring/context.js";
import { exitCodeOf, JobError } from "../../util/errors.js";
import { chooseProgress } from "../choose-progress.js";
import { type SafeIo, terminalWidth } from "../io.js";
import { wantsColor } from "../colors.js";
import { createLog } from "../logger.js";
import { abortOnSignals } from "../signals.js";
import { type BackfillOptions, runValue, type EndedRun } from "./backfill-run.js";

/** Carries out one run for each value of a range of dates. */
export async function backfillCommand(specPath: string, options: BackfillOptions, io: SafeIo): Promise<void> {
  using stop = abortOnSignals(io, options, {
    kept: "complete runs and committed spans are kept",
    hint: "run the same command again to continue",
  });
  const log = createLog(io.stderr, {
    level: options.quiet === true ? "error" : options.logLevel,
    format: options.logFormat,
    color: wantsColor(io.stderr.raw),
  });
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
  const shared = { specPath, options, jobs, order, sharedModels, runsOfCommand, log, progress, signal: stop.signal };
  const warned = new Set<string>();
  const ends = await runValues(jobs.jobs, { ...order, signal: stop.signal }, async (job) => {
    const end = await runValue({ ...shared, warned }, job);
    if (options.json === true) {
      io.stdout.write(`${backfillRunJson(param, end)}\n`);
    }
    return end;
  });
  const runs = jobs.jobs.map(({ value, runId }, index): EndedRun => {
    return ends[index] ?? { value, runId, status: "not_started", exitCode: 0 };
  });
  const backfill = { param, first, last, runs, model };
  const failure = stop.signal.aborted ? stop.signal.reason : failureOf(backfill, specPath, options);
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

/** The error that a backfill ends with: that of the worst run; undefined: every run is complete. */
function failureOf(
  { param, first, last, runs }: Backfill & { readonly runs: readonly EndedRun[] },
  specPath: string,
  options: BackfillOptions,
): unknown {
  const worst = worstOf(runs);
  if (worst === undefined) {
    return undefined;
  }
  if (!(worst.error instanceof JobError)) {
    return worst.error; // a bug, with its stack
  }
  const goOn = continuing(runs, { param, last, specPath, options });
  return new JobError(worst.error.code, `backfilling ${param}=${first}..${last}: ${totalsText(runs)}`, {
    hint: [...goOn, ...findings(runs)].join("\n    "),
    cause: worst.error,
  });
}

/** Returns the commands that continue the backfill. */
function continuing(
  runs: readonly EndedRun[],
  {
    param,
    last,
    specPath,
    options,
  }: { readonly param: string; readonly last: string; readonly specPath: string; readonly options: BackfillOptions },
): string[] {
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

/** Returns lines that name the values whose runs need a person. */
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
