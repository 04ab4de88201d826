import { listedProviders, type Provider } from "../../spec/engine-spec.js";
import { messageOf } from "../../util/errors.js";
import { table } from "../../report/table.js";
import type { EngineLayout } from "../../scoring/context.js";
import { openPinnedModel } from "../../run/model.js";
import { type Tuning, tune } from "../../run/tune.js";
import { usableCores } from "../../app/process-limits.js";
import type { SafeIo } from "../io.js";
import { openJob } from "../../app/job-context.js";
import { requireModelPath } from "../../app/models/model-path.js";
import type { JobOptions } from "../../app/reading/read-spec.js";
import { type CachedTuning, openTuneCache } from "../../app/caches/tune-cache.js";

/** Long enough for a dozen batches of most models, short enough to measure all combinations. */
const msEach = 300;

export interface TuneCommandOptions extends JobOptions {
  readonly json?: boolean;
  /** false: ignores earlier results. */
  readonly cache: boolean;
}

export async function tuneCommand(spec: string, options: TuneCommandOptions, io: SafeIo): Promise<void> {
  await using job = await openJob(spec, options);
  requireModelPath(job.spec, "tune measures the model on this machine");
  const resolved = await openPinnedModel(job);
  const [preferred = "cpu"] = listedProviders(job.spec.engine);
  const onGpu = preferred !== "cpu";
  // Results are not kept for GPUs: the kind of GPU is no part of the key.
  const cache = onGpu ? undefined : openTuneCache(job.spec, resolved.model.sha256);
  const known = options.cache ? await cache?.read() : undefined;
  if (known !== undefined) {
    io.stdout.write(options.json === true ? jsonText(known) : tuningText(known, { cached: true }));
    return;
  }
  const tuning: Tuning[] = [];
  let whole = true;
  const onFewRows = (): void => {
    whole = false;
  };
  for await (const one of tune(job, resolved, {
    layouts: layoutsOf(usableCores(), preferred),
    ms: msEach,
    onFewRows,
  })) {
    tuning.push(one);
  }
  const found = { measuredAt: new Date().toISOString(), tuning };
  io.stdout.write(options.json === true ? jsonText(found) : tuningText(found, { cached: false }));
  if (whole) {
    await cache?.write(found).catch((error: unknown) => {
      io.stderr.write(`keeping what was measured: ${messageOf(error)}\n`);
    });
  }
}

/**
 * Returns the layouts to measure: the cores as sessions or as threads of one session; on a GPU one or two sessions. Two
 * threads with a session of WebGPU each crash in ONNX Runtime 1.30 (segmentation fault).
 */
function layoutsOf(cores: number, provider: Provider): EngineLayout[] {
  const one = { sessions: 1, threads: cores };
  if (provider === "cpu") {
    return [{ sessions: cores, threads: 1 }, ...(cores > 1 ? [one] : [])];
  }
  return provider === "webgpu" ? [one] : [{ sessions: 2, threads: cores }, one];
}

function fastestOf(found: readonly Tuning[]): Tuning | undefined {
  return found.reduce<Tuning | undefined>(
    (best, one) => (best === undefined || one.rowsPerSecond > best.rowsPerSecond ? one : best),
    undefined,
  );
}

function jsonText({ measuredAt, tuning }: CachedTuning): string {
  const lines = tuning.map(({ sessions, threads, batchRows, rowsPerSecond }) => ({
    sessions,
    threads,
    batch_size: batchRows,
    rows_per_second: rowsPerSecond,
  }));
  return `${JSON.stringify({ tuning: lines, measured_at: measuredAt })}\n`;
}

function tuningText({ measuredAt, tuning }: CachedTuning, { cached }: { readonly cached: boolean }): string {
  const best = fastestOf(tuning);
  const rows = tuning.map((one) => [
    String(one.sessions),
    String(one.threads),
    one.batchRows.toLocaleString("en-US"),
    one.rowsPerSecond.toLocaleString("en-US"),
    one === best ? "<- fastest" : "",
  ]);
  return [
    "The model alone, on the job's first rows, without reading or writing:",
    ...table([["sessions", "threads each", "batch_size", "rows/s", ""], ...rows], { right: [0, 1, 2, 3] }),
    ...(cached ? [`Measured at ${measuredAt}, with this model on this machine; --no-cache measures anew.`] : []),
    "batch_size: auto looks for the fastest on a run's own first batches; threads: auto takes a session for each core.",
    "",
  ].join("\n");
}
