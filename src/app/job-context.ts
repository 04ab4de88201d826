import { createHash, randomBytes } from "node:crypto";
import { hostname } from "node:os";
import { dirname, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { claimOf, decoderByFormat, type Claim } from "../formats/by-format.js";
import type { Decoder } from "../formats/port.js";
import type { EarlyThreads } from "../engine/onnx/early-threads.js";
import { errnoOf, JobError } from "../util/errors.js";
import {
  type AttemptInfo,
  type AttemptRecord,
  createAttemptRecord,
  type RecordOptions,
  withRecord,
} from "../report/attempt-record.js";
import { type Progress, silentProgress } from "../report/progress.js";
import { type MemoryBudget, memoryBudget } from "../util/memory-budget.js";
import type { RetryTools } from "../util/retry.js";
import type { JobContext, Log } from "../scoring/context.js";
import type { Sink } from "../sink/port.js";
import type { Source } from "../storage/port.js";
import type { JobSpec } from "../spec/job-spec.js";
import { type LoadedSpec, loadSpec } from "../spec/load.js";
import { openBatchLimitCache } from "./batch-limit-cache.js";
import { doWithoutVectors } from "../columnar/memory/vectors.js";
import { addressSpaceBytes, usableCores } from "./process-limits.js";
import { fileError, readStart } from "./given-files.js";
import { startDecodeWorkers } from "./threads/worker-threads.js";
import { openEngine } from "./open-engine.js";
import { resolveModel } from "./open-model.js";
import { openSink, type Permissions, targetName, writtenTo } from "./open-sink.js";
import { openSource } from "./open-source.js";
import { defaultMemory } from "./process-limits.js";
import { componentVersions, programVersion } from "./version.js";
import { decidedBy } from "./decided-by.js";
import { checkSeveral } from "./worker.js";

export interface JobOptions {
  /** `name=value` each. */
  readonly param: readonly string[];
}

export interface ContextParts {
  readonly log?: Log;
  readonly progress?: Progress;
  readonly signal?: AbortSignal;
  readonly attempt?: AttemptOptions;
  /** Default: a record that is not reported. */
  readonly record?: AttemptRecord;
  /** The folder that ONNX Runtime writes a profile of each session to. */
  readonly profileFolder?: string | undefined;
  readonly early?: EarlyThreads | undefined;
}

/** How this process takes part in a run. Default: as the only worker. */
export type AttemptOptions = Pick<JobContext, "worker" | "steal" | "newRun"> & Permissions;

/** An attempt without other workers, with no permission that is refused by default. */
export const alone: AttemptOptions = { worker: { index: 0, count: 1 }, steal: false, newRun: false };

const silentLog: Log = { info() {}, warn() {}, debug() {} };

/** Reads a spec and opens the adapters that it names. Disposing the job closes them. */
export async function openJob(
  specPath: string,
  options: JobOptions,
  parts: ContextParts = {},
): Promise<JobContext & AsyncDisposable> {
  return await openLoaded(await readSpec(specPath, options), specPath, parts);
}

/**
 * Opens the adapters of a spec that is already read. Its folder and the command line in messages come from `specPath`.
 */
export async function openLoaded(
  loaded: LoadedSpec,
  specPath: string,
  {
    log = silentLog,
    progress = silentProgress,
    signal = new AbortController().signal,
    attempt = alone,
    record = recordOf(loaded.spec, { worker: attempt.worker }),
    profileFolder,
    early,
  }: ContextParts = {},
): Promise<JobContext & AsyncDisposable> {
  const { spec, where, clock, dateParam } = loaded;
  checkSeveral(attempt, clock);
  const folder = dirname(resolve(specPath));
  const cores = usableCores();
  const memory = budgetOf(spec, cores);
  const services = attemptServices(spec, log, signal);
  const { source, sink } = await openEnds(loaded, { folder, cores, memory, attempt, ...services });
  return {
    spec,
    where,
    dateParam,
    writer: services.writer,
    decidedBy: () => decidedBy(process.env),
    command: (params, deciding) => commandFor(specPath, params, deciding),
    sink,
    source,
    memory,
    ...decoding(spec, cores, memory),
    resolveModel: (planned) => resolveModel(spec.model, { folder, ...services }, planned),
    openEngine: (model, need) =>
      openEngine(model, need, { spec, worker: attempt.worker, cores, log, profileFolder, early }),
    batchLimits: openBatchLimitCache(log),
    sha256,
    ...clockOf(services),
    log,
    progress: withRecord(progress, record),
    record,
    ...attempt,
    signal,
    program: `infer-batch ${programVersion}`,
    async [Symbol.asyncDispose]() {
      await source[Symbol.asyncDispose]();
      await sink[Symbol.asyncDispose]();
    },
  };
}

interface EndsOptions {
  readonly folder: string;
  readonly cores: number;
  readonly memory: MemoryBudget;
  readonly attempt: Permissions;
}

/** Opens the source of the shards and the sink of the predictions. */
async function openEnds(
  { spec, variablesOf, outputPattern, where }: LoadedSpec,
  { folder, cores, memory, attempt, ...services }: AttemptServices & EndsOptions,
): Promise<{ source: Source; sink: Sink }> {
  const output = writtenTo(spec, { folder, sha256 });
  // The source first: a thread that reads from S3 takes longest to start.
  const source = await openSource(spec.input, { folder, output, ...services });
  try {
    return {
      source,
      sink: await openSink(spec, { folder, cores, memory, outputPattern, variablesOf, where, attempt, ...services }),
    };
  } catch (error) {
    await source[Symbol.asyncDispose]();
    throw error;
  }
}

function clockOf({ retry }: AttemptServices): Pick<JobContext, "nowMs" | "dateMs" | "sleep"> {
  return { nowMs: retry.nowMs, sleep: retry.sleep, dateMs: () => Date.now() };
}

export function recordOf(
  spec: JobSpec,
  { worker, onStage }: Pick<AttemptInfo, "worker"> & Pick<RecordOptions, "onStage">,
): AttemptRecord {
  const { name, params } = spec;
  if (Number.isFinite(addressSpaceBytes())) {
    doWithoutVectors(); // the record's profiles; threads that score see to themselves
  }
  return createAttemptRecord({
    info: { job: name, params, versions: componentVersions, worker, output: targetName(spec) },
    nowMs: () => performance.now(),
    dateMs: Date.now,
    onStage,
  });
}

export function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}

/** The longest spec that is accepted has fewer bytes in UTF-8. */
const specLimitBytes = 1024 * 1024;

/** Reads and checks a spec. @param pipe whether its rows come and go through a pipe */
export async function readSpec(
  path: string,
  { param }: JobOptions,
  { pipe }: { readonly pipe?: true } = {},
): Promise<LoadedSpec> {
  let text: string;
  try {
    text = await readStart(path, specLimitBytes);
  } catch (cause) {
    throw fileError(`reading ${path}`, cause, "the first argument is the job spec, a YAML file this user can read");
  }
  return loadSpec(text, { file: path, params: parseParams(param), env: process.env, nowMs: Date.now(), pipe });
}

function parseParams(given: readonly string[]): Record<string, string> {
  const params = new Map<string, string>();
  for (const text of given) {
    const at = text.indexOf("=");
    if (at <= 0) {
      throw new JobError("USAGE", `reading --param ${text}: expected name=value`, {
        hint: "such as --param ds=2026-01-31",
      });
    }
    params.set(text.slice(0, at), text.slice(at + 1));
  }
  return Object.fromEntries(params);
}

/** Returns the command line that carries out the run of these params, or decides on it. */
function commandFor(
  specPath: string,
  params: Readonly<Record<string, string>>,
  deciding: Parameters<JobContext["command"]>[1],
): string {
  const options = Object.entries(params).map(([name, value]) => `--param ${shellWord(`${name}=${value}`)}`);
  const run = deciding === undefined ? [] : [`--run ${deciding.runId}`];
  return [`infer-batch ${deciding?.verb ?? "run"}`, shellWord(specPath), ...options, ...run].join(" ");
}

/** Quotes a text so that a POSIX shell takes it as one word. */
export function shellWord(text: string): string {
  return /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

interface AttemptServices {
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly retry: RetryTools;
  readonly warn: (message: string) => void;
  readonly signal: AbortSignal;
}

export function attemptServices(spec: JobSpec, log: Log, signal: AbortSignal): AttemptServices {
  const host = hostname().replaceAll(/[^A-Za-z0-9-]/g, "_");
  const warn = (message: string): void => {
    log.warn(message);
  };
  const retry = {
    maxSeconds: spec.retry.max_seconds,
    nowMs: () => performance.now(),
    random: Math.random,
    sleep: (ms: number) => interruptibleSleep(ms, signal),
    warn,
  };
  const writer = `${host}.${process.pid}.${randomBytes(4).toString("hex")}`;
  return { writer, isDead: (other) => isDead(other, host), retry, warn, signal };
}

/** Sleeps until the time is over. @throws the signal's reason if the job is stopped first */
async function interruptibleSleep(ms: number, signal: AbortSignal): Promise<void> {
  await sleep(ms, undefined, { signal }).catch((error: unknown) => {
    signal.throwIfAborted();
    throw error;
  });
}

/**
 * Whether a process has ended. Known for processes of this host only; one with our own pid is of an earlier container.
 */
function isDead(writer: string, host: string): boolean {
  const [otherHost, pidText] = writer.split(".");
  const pid = Number(pidText);
  if (otherHost !== host || !Number.isSafeInteger(pid) || pid <= 0) {
    return false;
  }
  if (pid === process.pid) {
    return true;
  }
  try {
    process.kill(pid, 0);
    return false;
  } catch (error) {
    return errnoOf(error) === "ESRCH";
  }
}

/** Returns the memory budget of a job: `engine.memory`, or a part of what this process may use. */
export function budgetOf({ engine: { memory } }: JobSpec, cores: number): MemoryBudget {
  return memoryBudget(memory === "auto" ? defaultMemory(cores) : memory);
}

function decoding(
  spec: JobSpec,
  cores: number,
  memory: MemoryBudget,
): Pick<JobContext, "openDecoder" | "decodeWorkers"> {
  return {
    openDecoder: (folders) => Promise.resolve(openDecoder(spec, { threads: cores, folders, memory })),
    decodeWorkers: { cores, startDecodeWorkers },
  };
}

/** Opens a decoder that loads the code of each format when the first shard of that format comes. */
function openDecoder(
  { input: { format }, timezone }: JobSpec,
  { threads, folders, memory }: { threads: number; folders: readonly string[]; memory: MemoryBudget },
): Decoder {
  const claim = (name: string): Claim => claimOf(name, format);
  return decoderByFormat(format, {
    async parquet() {
      const { openParquetDecoder } = await import("../formats/parquet/decoder.js");
      return openParquetDecoder({ threads, folders, timezone, memory });
    },
    async arrow() {
      const { openArrowDecoder } = await import("../formats/arrow/decoder.js");
      const { openShards } = await import("../formats/arrow/ipc/shards.js");
      return openArrowDecoder({ timezone, memory, files: { claimOf: claim }, open: openShards(claim) });
    },
  });
}
