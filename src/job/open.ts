import { userInfo } from "node:os";
import { dirname, resolve } from "node:path";
import { doWithoutVectors } from "../columns/loops/vectors.js";
import { filesAtOnce } from "../duckdb/instance.js";
import type { EarlyThreads } from "../models/onnx/early-threads.js";
import { paramTexts, runIdOf, splitRunId } from "../run/plan/identity.js";
import { decidedText, everyRun } from "../run/lifecycle/recorded-run.js";
import {
  type AttemptInfo,
  type AttemptRecord,
  type RecordOptions,
  createAttemptRecord,
  workerFile,
} from "../report/attempt-record.js";
import { type Progress, silentProgress, withRecord } from "../report/progress.js";
import {
  type AttemptShare,
  type ChainPosition,
  type Job,
  type Log,
  type OpenedJob,
  silentLog,
} from "../flow/opened-job.js";
import type { Sink } from "../targets/target.js";
import { type JobSpec, runParam } from "./jobfile/job-spec.js";
import { type LimitedRun, type LoadedSpec, limitParam } from "./jobfile/load.js";
import { challengerModel, challengerPlaces } from "./jobfile/model-spec.js";
import { JobError } from "../base/errors.js";
import { type MemoryBudget, memoryBudget } from "../base/memory-budget.js";
import { awaitedLater } from "../base/promises.js";
import { sha256Of } from "../base/sha256.js";
import { attemptServices, checkSeveral, programVersion, versionsFor } from "./attempt.js";
import { addressSpaceBytes, defaultMemory, minBudgetBytes, storedRowsMemory, usableCores } from "./machine.js";
import { engineOfSecondModel, type ModelToolsOptions, type SharedModels, modelTools } from "./model-tools.js";
import {
  type Permissions,
  type SinkOptions,
  openDecoder,
  openSink,
  openSource,
  shortPath,
  runFolder,
  runPattern,
  withAfterwards,
  withTarget,
  writtenTo,
} from "./kinds.js";
import { ofLastRun } from "./chain.js";
import { type JobOptions, readGivenText, readSpec } from "./reading.js";
import { shellWord } from "../base/texts.js";
import { startDecodeWorkers } from "./threads/worker-threads.js";

interface OpeningOptions {
  readonly log?: Log;
  readonly progress?: Progress;
  readonly signal?: AbortSignal;
  readonly attempt?: AttemptOptions;
  /** Default: a record that is not reported. */
  readonly record?: AttemptRecord;
  readonly profileFolder?: string | undefined;
  readonly early?: EarlyThreads | undefined;
  /** Jobs that this process carries out at once: each takes its share of cores and memory. Default: 1. */
  readonly jobsAtOnce?: number;
  /** What the run reads. Default: all of its input. */
  readonly chain?: ChainPosition | undefined;
  readonly sharedModels?: SharedModels | undefined;
}

/** How this process takes part in a run. Default: as the only worker. */
export interface AttemptOptions extends AttemptShare, Permissions {
  /** Plans only the first rows of the input; the spec is that of `limitedSpec`. */
  readonly limited?: LimitedRun | undefined;
}

/** An attempt without other workers, with no permission that is refused by default. */
export const alone: AttemptOptions = { worker: { index: 0, count: 1 }, steal: false, newRun: false, reuse: false };

/** Reads a spec and opens the adapters that it names. Disposing the job closes them. */
export async function openJob(
  specPath: string,
  options: JobOptions,
  parts: OpeningOptions = {},
): Promise<OpenedJob & AsyncDisposable> {
  return await openLoaded(await ofLastRun(await readSpec(specPath, options), specPath), specPath, parts);
}

/** Opens the adapters of a spec that is already read. Its folder and command line in messages come from `specPath`. */
export async function openLoaded(
  loaded: LoadedSpec,
  specPath: string,
  {
    log = silentLog,
    progress = silentProgress,
    signal = new AbortController().signal,
    attempt = alone,
    record = recordOf(loaded.spec, { worker: attempt.worker }),
    jobsAtOnce = 1,
    sharedModels = (_model, own) => own,
    chain,
    ...starting
  }: OpeningOptions = {},
): Promise<OpenedJob & AsyncDisposable> {
  const { spec, where, clock, dateParam } = loaded;
  checkSeveral(attempt, clock);
  const folder = dirname(resolve(specPath));
  const { cores, memory } = shareOf(spec, jobsAtOnce);
  const tools = { folder, ...attemptServices(spec, log, signal) };
  const { writer, isDead, retry } = tools;
  const modelOptions = { ...tools, where, worker: attempt.worker, cores, log, ...starting };
  const models = modelTools(spec, modelOptions);

  // The source first: a thread that reads from S3 takes longest to start.
  const source = await openSource(spec.input, writtenTo(spec, folder), spec.checks?.golden?.path ?? "", {
    ...tools,
    where,
  });
  const { outputPattern, variablesOf, hourParam } = loaded;
  const limits = { threads: cores, memoryBytes: memory.duckDbBytes };
  const sinkOptions = { ...tools, cores, memory, attempt, outputPattern, variablesOf, where };
  let sink: Sink;
  try {
    const after = { ...tools, ...limits, where, job: spec.name, hourParam, log };
    sink = await withAfterwards(spec, await openSink(spec, sinkOptions), after);
  } catch (error) {
    await source[Symbol.asyncDispose]();
    throw error;
  }

  const { timezone, report } = spec;
  return {
    job: {
      spec,
      where,
      dateParam,
      base: runIdOf(spec.name, spec.params, sha256Of),
      limited: attempt.limited,
      pathOf: (uri) => shortPath(resolve(folder, uri)),
      command: (params, other) => commandFor(specPath, params, { limited: attempt.limited, chain }, other),
      page: report.html && shortPath(workerFile(resolve(folder, report.html), attempt.worker)),
    },
    sink,
    input: {
      source,
      chain,
      openDecoder: (folders) => openDecoder(spec, { threads: cores, folders, timezone, memory }),
      async openGoldenReader(folders) {
        const { openGoldenReader } = await import("./duckdb.js");
        return await openGoldenReader({ threads: cores, folders, timezone, memory });
      },
      readGiven: (path, key) => readGivenText(resolve(folder, path), { key: where(key), limitBytes: givenBytes }),
      filesAtOnce,
      decodeWorkers: { cores, startDecodeWorkers },
    },
    models: {
      ...models,
      ...sharedModels(spec.model, models),
      openEngine(model, need) {
        const opening = models.openEngine(model, need);
        if (!("preview" in need)) {
          void withTarget(spec, ({ load }) => awaitedLater(load())); // while other threads open it: 30 ms of a small job
        }
        return opening;
      },
    },
    attempt: {
      ...attempt,
      writer,
      isDead,
      actingUser: () => actingUser(process.env),
      program: `infer-batch ${programVersion}`,
      signal,
      nowMs: retry.nowMs,
      dateMs: () => Date.now(),
      sleep: retry.sleep,
    },
    reporter: { log, progress: withRecord(progress, record), record },
    queries: {
      async openAggregates(conditions, columns) {
        const { openAggregates } = await import("../formats/sql/aggregates.js");
        return await openAggregates(conditions, { columns, timezone, memoryBytes: memory.duckDbBytes });
      },
      async openStoredRows(request) {
        const { openStoredRows } = await import("./duckdb.js");
        return await openStoredRows(limits, request);
      },
      async openRowJoiner(folders) {
        const { openRowJoin } = await import("./duckdb.js");
        return await openRowJoin({ folders, ...limits });
      },
    },
    memory,
    openSecondJob: secondJobOpener(spec, sinkOptions, modelOptions),
    async [Symbol.asyncDispose]() {
      await source[Symbol.asyncDispose]();
      await sink[Symbol.asyncDispose]();
    },
  };
}

/** A profile has at most some 200 KiB. */
const givenBytes = 16 * 1024 * 1024;

export function recordOf(
  spec: JobSpec,
  { onStage, ...info }: Pick<AttemptInfo, "worker" | "command" | "olderCommand"> & Pick<RecordOptions, "onStage">,
): AttemptRecord {
  const { name, params } = spec;
  if (Number.isFinite(addressSpaceBytes())) {
    doWithoutVectors(); // the record's profiles; threads that score see to themselves
  }
  const output = withTarget(spec, (kind, target) => kind.name(target)) ?? "stdout";
  return createAttemptRecord({
    info: { job: name, params, versions: versionsFor(spec), output, ...info },
    nowMs: () => performance.now(),
    dateMs: Date.now,
    onStage,
  });
}

function shareOf(spec: JobSpec, jobsAtOnce: number): { readonly cores: number; readonly memory: MemoryBudget } {
  const cores = usableCores();
  const { bytes, storedBytes } = budgetOf(spec, cores);
  const part = (whole: number): number => Math.floor(whole / jobsAtOnce);
  return {
    cores: Math.max(1, part(cores)),
    memory: memoryBudget(Math.max(minBudgetBytes, part(bytes)), part(storedBytes)),
  };
}

export function budgetOf({ engine: { memory } }: JobSpec, cores: number): MemoryBudget {
  return memory === "auto" ? memoryBudget(defaultMemory(cores), storedRowsMemory()) : memoryBudget(memory);
}

type Environment = Readonly<Record<string, string | undefined>>;

/** The task of Airflow, else the user; by number if the system's list lacks it, as in many containers. */
function actingUser(env: Environment): string {
  const { AIRFLOW_CTX_DAG_ID: dag, AIRFLOW_CTX_TASK_ID: task, AIRFLOW_CTX_DAG_OWNER: owner } = env;
  if (dag !== undefined) {
    return ["airflow", owner, dag, task].filter((part) => part !== undefined && part !== "").join("/");
  }
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`;
  }
}

/** Returns the command line that carries out the run of these params, decides on it, or shows it. */
export function commandFor(
  specPath: string,
  params: Readonly<Record<string, string>>,
  { limited, chain }: { readonly limited: LimitedRun | undefined; readonly chain: ChainPosition | undefined },
  other?: Parameters<Job["command"]>[1],
): string {
  // A run of a chain has no number before its range is stored: whoever leaves it out begins it.
  const isNumbered = other !== undefined || chain?.to !== null;
  const options = Object.entries(params)
    .filter(([name]) => isNumbered || name !== runParam)
    .map(([name, value]) =>
      name === limitParam
        ? `--limit ${value} --output ${shellWord(limited?.folder ?? "")}`
        : `--param ${shellWord(`${name}=${value}`)}`,
    );
  const run = other === undefined || !("runId" in other) ? [] : [`--run ${other.runId}`];
  return [`infer-batch ${other?.verb ?? "run"}`, shellWord(specPath), ...options, ...run].join(" ");
}

/** The folder with its predictions, below that of the published ones, and what is added to the name of a table. */
const place = "_challenger";

/** The longest time from the first failure of a call to its target to its last try: published rows wait for it. */
const mostRetrySeconds = 30;

/** Scores all rows, published nowhere. No spec can have its name. Without a challenger: where an earlier one's are. */
function specOf({ challenger, checks: _checks, reuse: _reuse, ...job }: JobSpec): JobSpec {
  const { columns, parquet, delta, iceberg, postgres } = job.output;
  return {
    ...job,
    name: `${job.name}.challenger`,
    model: challenger === undefined ? job.model : challengerModel(job.model, challenger),
    engine: engineOfSecondModel(job),
    input: { ...job.input, wait: 0, freshness: undefined },
    on_bad_row: "reject",
    max_rejects: "100%",
    output: {
      columns,
      lineage: postgres !== undefined && postgres.mode !== "replace",
      numbered: true,
      ...(parquet && { parquet: { ...parquet, path: `${parquet.path.replace(/\/+$/, "")}/${place}` } }),
      ...(delta && {
        parquet: { ...delta, path: `${delta.path.replace(/\/+$/, "")}/${runFolder(job.name, job.params)}/${place}` },
      }),
      ...(iceberg && { iceberg: { ...iceberg, beside: `${runFolder(job.name, job.params)}/${place}` } }),
      ...(postgres && { postgres: { ...postgres, table: `${postgres.table}${place}` } }),
    },
  };
}

function secondJobOpener(spec: JobSpec, options: SinkOptions, tools: ModelToolsOptions): OpenedJob["openSecondJob"] {
  const own = specOf(spec);
  const { job, series } = runPattern(spec, options.outputPattern);
  const debug = (message: string): void => {
    tools.log.debug(message);
  };
  return async () => {
    const opened = await openSink(own, {
      ...options,
      retry: { ...options.retry, maxSeconds: Math.min(options.retry.maxSeconds, mostRetrySeconds) },
      // Its rows are published nowhere: they may replace those of any earlier run, and be added to them.
      attempt: { allowDuplicates: true, allowOlder: true },
      outputPattern: { job: `${job}/${place}`, series: `${series}/${place}` },
    });
    const where = challengerPlaces(tools.where);
    return {
      job: { spec: own, where, base: runIdOf(own.name, own.params, sha256Of) },
      sink: opened,
      models: modelTools(own, { ...tools, where, profileFolder: undefined }), // its profiles would replace those of the model
      reporter: {
        log: { debug, info: debug, warn: debug }, // what is wrong with it is said once, at its end
        progress: silentProgress,
        record: recordOf(own, { worker: tools.worker }),
      },
      [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
    };
  };
}

export interface RunOptions extends JobOptions {
  readonly run?: string | undefined;
}

/** Reads a spec with the params of a run of the job, as `readSpecOfRun`; without an id, with those of the command. */
export async function readRunSpec(specPath: string, { run, ...options }: RunOptions): Promise<LoadedSpec> {
  return run === undefined || options.param.length > 0
    ? await ofLastRun(await readSpec(specPath, options), specPath)
    : await readSpecOfRun(specPath, { run, ...options });
}

/**
 * Params of the command only name the target. @throws JobError USAGE for no such run, or a later one of these params
 */
export async function readSpecOfRun(
  specPath: string,
  { run, ...options }: RunOptions & { readonly run: string },
): Promise<LoadedSpec> {
  const loaded = await readSpec(specPath, options, { standIns: "all" });
  await using opened = await openLoaded(loaded, specPath);
  const runs = await opened.sink.history({ job: loaded.spec.name, last: everyRun });
  const found = runs.find(({ runId }) => runId === run);
  if (found?.plan === undefined) {
    const { name, params } = loaded.spec;
    const [param = "NAME"] = loaded.dateParam === undefined ? Object.keys(params) : [loaded.dateParam];
    throw new JobError(
      "USAGE",
      `looking for run ${run}: none of the ${runs.length} runs of ${name} that were found has this id`,
      {
        hint: `infer-batch history lists the runs of all dates; to name a run that it does not list, give its params: --param ${param}=…`,
      },
    );
  }
  const { base, number } = splitRunId(found.runId);
  const later = runs.map(({ runId }) => splitRunId(runId)).find((one) => one.base === base && one.number > number);
  if (later !== undefined) {
    const { decision, verdict } = found;
    const decided = decision === undefined ? "" : `\n  it was ${decidedText({ decision, verdict })}`;
    throw new JobError("USAGE", `looking for run ${run}: run ${base}-r${later.number} came after it${decided}`, {
      hint: "name the later run; infer-batch history says what became of this one",
    });
  }
  const param = paramTexts(found.plan.params);
  return await readSpec(specPath, { param });
}
