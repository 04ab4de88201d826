import type { JobSpec } from "../job/jobfile/job-spec.js";
import { count } from "../base/shown-numbers.js";
import { type Contract, outputTensors } from "../models/binding/contract.js";
import { blankInputs } from "./pack/packer.js";
import { bytesPerRow } from "../models/binding/row-bytes.js";
import type { Engine, TreesState } from "../models/engine.js";
import type { Plan } from "../run/plan/plan.js";
import type { BatchLimitCache, Log } from "./opened-job.js";
import { JobError } from "../base/errors.js";

interface Measuring {
  readonly engine: Engine;
  readonly rows: number;
  readonly batchSize: JobSpec["engine"]["batch_size"];
}

/** Finds out how many rows a batch can have, and how many it should have. */
export async function measureEngine(
  batchLimits: BatchLimitCache,
  log: Log,
  plan: Pick<Plan, "contract" | "commitRows"> & { readonly model: Pick<Plan["model"], "sha256"> },
  { engine, rows, batchSize }: Measuring,
): Promise<{ batchLimit: BatchLimit; sizer: BatchSizer }> {
  const { contract } = plan;
  const batchLimit = await openBatchLimit(batchLimits, log, { engine, contract, modelSha256: plan.model.sha256 });
  const sizer = await warmUp(log, plan, { engine, limit: batchLimit.rows, rows, batchSize });
  return { batchLimit, sizer: contract.fixedBatchRows === null ? sizeWithin(batchLimit, sizer) : sizer };
}

/** Enough to lay out memory and page code in, and soon done with heavy models. */
const warmUpRows = 256;

/** Calls the model on blank rows, as its first call costs more than the others, and says how large batches are. */
async function warmUp(
  log: Log,
  { contract, commitRows }: Pick<Plan, "contract" | "commitRows">,
  { engine, limit, rows, batchSize }: Measuring & { readonly limit: number },
): Promise<BatchSizer> {
  const given = contract.fixedBatchRows ?? batchSize;
  if (given !== "auto") {
    const batchRows = contract.fixedBatchRows ?? Math.min(given, commitRows);
    if (rows > 0) {
      const tried = contract.fixedBatchRows ?? Math.min(batchRows, warmUpRows, limit);
      const times = await callAll(engine, contract, tried);
      expectRows(engine, rows, times.length === 0 ? 0 : Math.min(...times) / tried);
    }
    return fixedSize(batchRows);
  }
  const rowMs = rows === 0 ? 0 : await timeRow(engine, contract);
  expectRows(engine, rows, rowMs);
  const { largest, batchBytes } =
    engine.local === undefined ? servedBatch : engine.provider === "cpu" ? cpuBatch : gpuBatch;
  const inBytes = Math.floor(batchBytes / bytesPerRow(contract));
  const most = Math.max(1, Math.min(commitRows, limit, largest, inBytes));
  return measuringSize({
    start: startingSize(rowMs, most),
    limit: most,
    onSettled: (settled) => {
      log.debug(`batches of ${settled} rows are the fastest`);
    },
  });
}

/** The engine prepares for them while it scores the first batches. */
function expectRows(engine: Engine, rows: number, rowMs: number): void {
  engine.local?.expect(rows, rowMs).catch(() => undefined); // the next batch reports its error
}

/** The batch size where the time of a row is not known. */
const firstRows = 16;
/** The batch size for a model on a server, where each request has a fixed cost. */
const firstServedRows = 256;
/** A call that takes longer than this is slow by itself, not delayed by chance. */
const slowMs = 50;

/** Milliseconds that a session takes for a row, about, in small batches; 0 when the model refuses zeros. */
export async function timeRow(engine: Engine, contract: Contract): Promise<number> {
  const wanted = engine.local === undefined ? firstServedRows : firstRows;
  const rows = contract.fixedBatchRows ?? Math.min(wanted, engine.mostRows ?? wanted);
  let fastestMs = Number.POSITIVE_INFINITY;
  // The first of these costs more than the others, and any of them may be held up.
  for (let round = 0; round < 3 && (round < 2 || fastestMs < slowMs); round += 1) {
    fastestMs = Math.min(fastestMs, ...(await callAll(engine, contract, rows)));
  }
  return Number.isFinite(fastestMs) ? fastestMs / rows : 0;
}

/*
 * The largest batches, and the bytes of their features. On a CPU, more rows hardly reduce the overhead, and do not fit in
 * the cache, so that each layer waits for memory. A GPU has no such cache, and thousands of threads to be kept busy. A
 * server gets many requests at once, and may batch small ones together; all of them are in this process's memory.
 */
const cpuBatch = { largest: 16_384, batchBytes: 4 * 1024 * 1024 };
const gpuBatch = { largest: 131_072, batchBytes: 64 * 1024 * 1024 };
const servedBatch = { largest: 8192, batchBytes: 1024 * 1024 };

/** Runs one call for each session, all at once; a server gets one call. Returns the milliseconds of each call. */
async function callAll(engine: Engine, contract: Contract, rows: number): Promise<number[]> {
  const outputs = outputTensors(contract);
  const calls = Array.from({ length: engine.local === undefined ? 1 : engine.concurrency }, () =>
    engine.run({ inputs: blankInputs(contract, rows), outputs, isBlank: true }),
  );
  const ended = await Promise.allSettled(calls);
  // A model may reject zeros and still score its rows. A server that is unreachable after all retries ends the run.
  await (engine.local === undefined ? Promise.all(calls) : undefined);
  return ended.flatMap((end) => (end.status === "fulfilled" && end.value.kind === "done" ? [end.value.ms] : []));
}

/** What computes a model's trees, as reports say it; null: it has none, or too few rows came to compile them for. */
export function treesText(state: TreesState): string | null {
  return state.kind === "none" ? null : state.kind === "compiled" ? "compiled" : `onnxruntime: ${state.reason}`;
}

/** The largest batch that the device is known to have memory for. It never grows. */
export interface BatchLimit {
  readonly rows: number;
  /** Called before a batch goes to the engine; `exceeded` takes what it returns. */
  begin(rows: number): BegunBatch;
  /**
   * Halves the limit after a batch that did not fit, and renews the engine.
   * @throws JobError MEMORY when a batch cannot have fewer rows
   */
  exceeded(batch: BegunBatch, fault: { readonly fixed: boolean; readonly message: string }): Promise<void>;
}

interface BegunBatch {
  readonly rows: number;
  readonly renewals: number;
}

interface BatchLimitOptions {
  readonly engine: Engine;
  readonly contract: Contract;
  readonly modelSha256: string;
}

/** Starts with the limit that an earlier run found. */
export async function openBatchLimit(
  batchLimits: BatchLimitCache,
  log: Log,
  { engine, contract, modelSha256 }: BatchLimitOptions,
): Promise<BatchLimit> {
  const device = engine.local?.device ?? engine.provider;
  const of = { modelSha256, device, rowBytes: bytesPerRow(contract) };
  const known = await batchLimits.find(of);
  if (known !== undefined) {
    log.info(`batches have at most ${count(known, "row")}: in an earlier run, larger ones did not fit on ${device}`);
  }
  const reloads = engine.local === undefined ? "" : "the model is loaded again, ";
  const most = engine.mostRows ?? Number.POSITIVE_INFINITY;
  let rows = Math.min(known ?? most, most);
  let renewals = 0;
  /**
   * Rows of the largest batch since the engine was renewed: it has used most of the memory, even if another batch
   * fails.
   */
  let largest = 0;
  let renewing = Promise.resolve();
  return {
    get rows() {
      return rows;
    },
    begin(begun) {
      largest = Math.max(largest, begun);
      return { rows: begun, renewals };
    },
    async exceeded(batch, { fixed, message }) {
      if (batch.renewals !== renewals) {
        await renewing; // the memory that the batch lacked is free now
        return;
      }
      if (fixed || largest === 1) {
        throw engine.traffic === undefined ? noMemoryFor(device, largest, message) : tooLargeFor(largest, message);
      }
      const tried = largest;
      rows = Math.floor(tried / 2);
      renewals += 1;
      largest = 0;
      const why =
        engine.traffic === undefined
          ? `no memory for a batch of ${count(tried, "row")} on ${device}`
          : `no request of ${count(tried, "row")} fits (${message})`;
      log.warn(`${why}: ${reloads}from now on batches have at most ${count(rows, "row")}`);
      renewing = engine.local?.renew() ?? Promise.resolve();
      await renewing;
      await batchLimits.keep(of, rows);
    },
  };
}

function noMemoryFor(device: string, rows: number, message: string): JobError {
  const what = rows === 1 ? "one row" : `${rows} rows, which is the model's own`;
  return new JobError("MEMORY", `scoring on ${device}: there is no memory for a batch of ${what}: ${message}`, {
    hint: "something else may hold it (nvidia-smi lists who): run the same command again; or take a device with more memory",
  });
}

function tooLargeFor(rows: number, message: string): JobError {
  return new JobError("MODEL_INVALID", `scoring: the server takes no request of ${count(rows, "row")}: ${message}`, {
    hint: "raise the limit of the server, or of the proxy in front of it",
  });
}

/** A sizer whose batches stay within the limit. */
export function sizeWithin(batchLimit: Pick<BatchLimit, "rows">, sizer: BatchSizer): BatchSizer {
  return {
    get rows() {
      return Math.min(sizer.rows, batchLimit.rows);
    },
    took(rows, ms) {
      sizer.took(rows, ms);
    },
  };
}

/** Says how many rows a batch has. */
export interface BatchSizer {
  readonly rows: number;
  /** What a batch of so many rows took inside the engine, in milliseconds. */
  took(rows: number, ms: number): void;
}

/** The size that was asked for, or that the model has. */
export function fixedSize(rows: number): BatchSizer {
  return { rows, took() {} };
}

/**
 * CPU time of a batch outside `session.run`: messages to the thread and back, tensors made and let go. A table of 4 M
 * rows took this much less for each batch that it was cut into fewer (docs/decisions/models-and-engines.md).
 */
const overheadMs = 0.05;
/** The fastest of this many batches counts as the time of a size, since something else delayed the slower ones. */
const samples = 6;
/** A smaller gain is noise. */
const gain = 0.015;
/** A batch is not made longer than this to save overhead: a stop waits for it. */
const longestMs = 500;
const smallest = 16;

interface MeasuringOptions {
  /** Rows of the first batch: a power of two. */
  readonly start: number;
  /** The largest size. It is used itself if it is less than the smallest size to try. */
  readonly limit: number;
  readonly onSettled: (rows: number) => void;
}

/**
 * Finds the fastest size on the run's own first batches: doubles it as long as rows become cheaper, else halves it as
 * long as they do. Each size costs `samples` batches, whose results count like any other's.
 * @public so that tests call it
 */
export function measuringSize({ start, limit, onSettled }: MeasuringOptions): BatchSizer {
  let best = { rows: Math.min(start, limit), cost: Number.POSITIVE_INFINITY };
  let trying: number | undefined = best.rows;
  let factor = 2;
  let seen: number[] = [];
  const settle = (): void => {
    trying = undefined;
    onSettled(best.rows);
  };
  const proceed = (fastestMs: number): void => {
    const wanted = Math.floor(best.rows * factor);
    const tooLong = factor > 1 && fastestMs * factor > longestMs;
    if (wanted <= limit && wanted >= Math.min(smallest, limit) && !tooLong) {
      trying = wanted;
    } else if (factor > 1 && best.rows === start) {
      factor = 0.5;
      proceed(fastestMs);
    } else {
      settle();
    }
  };
  return {
    get rows() {
      return trying ?? best.rows;
    },
    took(rows, ms) {
      if (rows !== trying) {
        return; // the rest of a span, or one that was under way when the size changed
      }
      seen.push(ms);
      if (seen.length < samples) {
        return;
      }
      const fastestMs = Math.min(...seen);
      const cost = (fastestMs + overheadMs) / rows;
      seen = [];
      if (cost < best.cost * (1 - gain)) {
        best = { rows, cost };
        proceed(fastestMs);
      } else if (factor > 1 && best.rows === start) {
        factor = 0.5;
        proceed(fastestMs);
      } else {
        settle();
      }
    },
  };
}

/** Rows of the first batches, where a row takes about `msPerRow`: short batches, so that slow models are no surprise. @public so that tests call it */
export function startingSize(msPerRow: number, limit: number): number {
  const startMs = 50;
  const rows = 2 ** Math.floor(Math.log2(Math.max(1, startMs / msPerRow)));
  return Math.min(limit, 4096, Math.max(smallest, rows));
}
