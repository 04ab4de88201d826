import { dirname, resolve } from "node:path";
import { openArrowDecoder } from "../formats/arrow/decoder.js";
import { openArrowPipe } from "../formats/arrow/pipe/pipe.js";
import { problemOfPipe } from "../spec/prompt-spec.js";
import { JobError } from "../util/errors.js";
import { silentProgress } from "../report/progress.js";
import type { PipeContext } from "../run/pipe.js";
import { openArrowStream } from "../sink/arrow/stream.js";
import { pipeName } from "../spec/load.js";
import { openBatchLimitCache } from "./batch-limit-cache.js";
import { usableCores } from "./process-limits.js";
import { attemptServices } from "./attempt-services.js";
import { budgetOf, recordOf } from "./job-context.js";
import { type JobOptions, readSpec } from "./reading/read-spec.js";
import { modelTools } from "./models/model-tools.js";
import { programVersion } from "./version.js";
import { sha256Of } from "../util/sha256.js";

/** stdin and stdout of a pipe. */
export interface Stdio extends Disposable {
  readonly chunks: AsyncIterable<Uint8Array>;
  /** Stops reading: `chunks` ends. */
  readonly close: () => void;
  /** Resolves when the system has accepted all chunks. */
  readonly write: (chunks: readonly Uint8Array[]) => Promise<void>;
  /** Aborted with the given signal, or when stdout cannot be written; ends waiting for either end. */
  readonly signal: AbortSignal;
}

export interface PipeParts extends Pick<PipeContext, "log" | "onRejected"> {
  readonly stdio: Stdio;
}

/** Reads a spec and connects its model to a pipe. */
export async function openPipe(
  specPath: string,
  options: JobOptions,
  { stdio, log, onRejected }: PipeParts,
): Promise<PipeContext> {
  const { spec, where } = await readSpec(specPath, options, { pipe: true });
  const problem = problemOfPipe(spec.model);
  if (problem !== undefined) {
    throw new JobError("SPEC_INVALID", `reading ${where(problem.path)}: ${problem.message}`);
  }
  const { signal, chunks, close } = stdio;
  const folder = dirname(resolve(specPath));
  const cores = usableCores();
  const worker = { index: 0, count: 1 };
  const services = attemptServices(spec, log, signal);
  const memory = budgetOf(spec, cores);
  const input = openArrowPipe({ name: pipeName, chunks, close, memory });
  return {
    spec,
    where,
    input,
    output: openArrowStream(stdio.write),
    openDecoder: () => Promise.resolve(openArrowDecoder({ timezone: spec.timezone, memory, open: input.open })),
    ...modelTools(spec, { ...services, folder, where, worker, cores, log }),
    memory,
    batchLimits: openBatchLimitCache(log),
    sha256: sha256Of,
    nowMs: () => performance.now(),
    dateMs: () => Date.now(),
    log,
    progress: silentProgress,
    record: recordOf(spec, { worker }),
    onRejected,
    signal,
    program: `infer-batch ${programVersion}`,
  };
}
