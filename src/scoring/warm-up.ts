import { type Contract, outputTensors } from "../binding/contract.js";
import { blankInputs } from "../packing/packer.js";
import { bytesPerRow } from "../binding/row-bytes.js";
import type { Engine, TreesState } from "../engine/port.js";
import type { Plan } from "../plan/plan.js";
import { type BatchSizer, fixedSize, measuringSize, startingSize } from "./batch-size.js";
import { type BatchLimit, openBatchLimit, sizeWithin } from "./batch-limit.js";
import type { ScoringContext } from "./context.js";

export interface WarmUpOptions {
  readonly plan: Pick<Plan, "contract" | "commitRows">;
  readonly engine: Engine;
  readonly batchLimit: Pick<BatchLimit, "rows">;
  /** Rows that will be scored. */
  readonly rows: number;
}

/** Finds out how many rows a batch can have, and how many it should have. */
export async function measureEngine(
  context: Pick<ScoringContext, "spec" | "log" | "batchLimits">,
  plan: Pick<Plan, "contract" | "commitRows" | "model">,
  { engine, rows }: { readonly engine: Engine; readonly rows: number },
): Promise<{ batchLimit: BatchLimit; sizer: BatchSizer }> {
  const batchLimit = await openBatchLimit(context, { engine, contract: plan.contract, modelSha256: plan.model.sha256 });
  return { batchLimit, sizer: await warmUp(context, { plan, engine, batchLimit, rows }) };
}

/** Enough to lay out memory and page code in, and soon done with heavy models. */
const warmUpRows = 256;

/** Calls the model on blank rows, as its first call costs more than the others, and says how large batches are. */
export async function warmUp(
  { spec, log }: Pick<ScoringContext, "spec" | "log">,
  { plan: { contract, commitRows }, engine, batchLimit, rows }: WarmUpOptions,
): Promise<BatchSizer> {
  const given = contract.fixedBatchRows ?? spec.engine.batch_size;
  if (given !== "auto") {
    const batchRows = contract.fixedBatchRows ?? Math.min(given, commitRows);
    if (rows > 0) {
      const tried = contract.fixedBatchRows ?? Math.min(batchRows, warmUpRows, batchLimit.rows);
      const times = await callAll(engine, contract, tried);
      expectRows(engine, rows, times.length === 0 ? 0 : Math.min(...times) / tried);
    }
    return contract.fixedBatchRows === null ? sizeWithin(batchLimit, fixedSize(batchRows)) : fixedSize(batchRows);
  }
  const rowMs = rows === 0 ? 0 : await timeRow(engine, contract);
  expectRows(engine, rows, rowMs);
  const { largest, batchBytes } =
    engine.local === undefined ? servedBatch : engine.provider === "cpu" ? cpuBatch : gpuBatch;
  const most = Math.min(commitRows, batchLimit.rows, largest, Math.floor(batchBytes / bytesPerRow(contract)));
  const limit = Math.max(1, most);
  const measuring = measuringSize({
    start: startingSize(rowMs, limit),
    limit,
    onSettled: (settled) => {
      log.debug(`batches of ${settled} rows are the fastest`);
    },
  });
  return sizeWithin(batchLimit, measuring);
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

interface LargestBatch {
  /** The number of rows in the largest batch. */
  readonly largest: number;
  /** Bytes of a row's features. */
  readonly batchBytes: number;
}

/** More rows hardly reduce the overhead, and do not fit in the cache, so that each layer waits for memory. */
const cpuBatch: LargestBatch = { largest: 16_384, batchBytes: 4 * 1024 * 1024 };
/** A GPU has no such cache, and thousands of threads to be kept busy. Sizes up to these limits are tried and timed. */
const gpuBatch: LargestBatch = { largest: 131_072, batchBytes: 64 * 1024 * 1024 };
/** A server gets many requests at once, and may batch small ones together. All of them are in this process's memory. */
const servedBatch: LargestBatch = { largest: 8192, batchBytes: 1024 * 1024 };

/** Runs one call for each session, all at once; a server gets one call. Returns the milliseconds of each call. */
async function callAll(engine: Engine, contract: Contract, rows: number): Promise<number[]> {
  const outputs = outputTensors(contract);
  const calls = Array.from({ length: engine.local === undefined ? 1 : engine.concurrency }, () =>
    engine.run({ inputs: blankInputs(contract, rows), outputs, isBlank: true }),
  );
  // A model may reject zeros and still score its rows. A server that is unreachable after all retries ends the run.
  const ended = await (engine.local === undefined ? allFulfilled(calls) : Promise.allSettled(calls));
  return ended.flatMap((end) => (end.status === "fulfilled" && end.value.kind === "done" ? [end.value.ms] : []));
}

async function allFulfilled<T>(calls: readonly Promise<T>[]): Promise<PromiseFulfilledResult<T>[]> {
  const values = await Promise.all(calls);
  return values.map((value) => ({ status: "fulfilled", value }));
}

/** What computes a model's trees, as reports say it; null: it has none, or too few rows came to compile them for. */
export function treesText(state: TreesState): string | null {
  return state.kind === "none" ? null : state.kind === "compiled" ? "compiled" : `onnxruntime: ${state.reason}`;
}
