import { type Contract, outputTensors } from "../binding/contract.js";
import { createPacker, type FeatureBatch, sliceBatch } from "../packing/packer.js";
import type { NamedTensor } from "../columnar/tensor.js";
import type { Engine } from "../engine/port.js";
import type { FoundModel } from "../models/port.js";
import { JobError } from "../util/errors.js";
import { runIdOf } from "../plan/identity.js";
import { spansOf } from "../plan/spans.js";
import { readRanges } from "../scoring/read-ranges.js";
import { openSliceReader } from "../scoring/workers/slice-reader.js";
import type { EngineLayout, JobContext } from "../scoring/context.js";
import { wholeInput } from "./planning/input.js";
import { planRun } from "./planning/planning.js";

/** The speed of the model alone, while nothing is read or written. */
export interface Tuning extends EngineLayout {
  readonly batchRows: number;
  readonly rowsPerSecond: number;
}

export interface TuneOptions {
  readonly layouts: readonly EngineLayout[];
  /** Milliseconds that each combination is measured. */
  readonly ms: number;
  /** Is called if the job has fewer rows than the largest batch size, so that large batches cannot be measured. */
  readonly onFewRows?: () => void;
}

const batchSizes = [64, 256, 1024, 2048, 4096, 8192, 16_384];
/** Batch sizes for a GPU, which may be faster with larger batches. */
const gpuBatchSizes = [...batchSizes, 32_768, 65_536, 131_072];

/** Scores the job's first rows repeatedly, with each batch size in each layout. Writes nothing. */
export async function* tune(
  context: JobContext,
  resolved: FoundModel,
  { layouts, ms, onFewRows }: TuneOptions,
): AsyncGenerator<Tuning> {
  const { spec, signal } = context;
  const listing = await wholeInput(context);
  let rows: { readonly contract: Contract; readonly batch: FeatureBatch } | undefined;
  for (const layout of layouts) {
    await using engine = await context.openEngine(resolved.model, layout);
    await engine.local?.opened();
    if (rows === undefined) {
      await using decoder = await context.openDecoder(listing.folders);
      const runId = runIdOf(spec.name, spec.params, context.sha256);
      const plan = await planRun(context, {
        runId,
        listed: listing.shards,
        decoder,
        resolved,
        engine: Promise.resolve(engine),
      });
      const { contract } = plan;
      const spans = spansOf(plan);
      const rowEnd = Math.min(plan.input.rows, Math.max(...triedSizes(engine)));
      await using reader = openSliceReader({ decoder, ...context.decodeWorkers, memory: context.memory });
      const { source } = context;
      const feed = readRanges(
        { source, decoder, reader, windowsAhead: 1, spans, projection: contract, uniform: false },
        [{ rowStart: 0, rowEnd }],
      );
      rows = { contract, batch: await packAll(contract, feed, rowEnd) };
      if (contract.fixedBatchRows === null && rows.batch.rowCount < Math.max(...batchSizes)) {
        onFewRows?.();
      }
    }
    const { contract, batch } = await compileTrees(engine, rows);
    const most = contract.fixedBatchRows ?? batch.rowCount;
    const sizes = contract.fixedBatchRows === null ? triedSizes(engine).filter((size) => size <= most) : [];
    for (const batchRows of sizes.length === 0 ? [most] : sizes) {
      signal.throwIfAborted();
      const cut = sliceBatch(batch, batch.inputs, { from: 0, to: batchRows, fixedBatchRows: contract.fixedBatchRows });
      const rowsPerSecond = await rate(context, engine, { contract, batch: cut, ms });
      if (rowsPerSecond === undefined) {
        break; // larger ones would not fit either
      }
      yield { ...layout, batchRows, rowsPerSecond };
    }
  }
}

/** Compiles trees as a run of many rows does: a call names the outputs for each session. Returns the rows. */
async function compileTrees<T extends { readonly contract: Contract; readonly batch: FeatureBatch }>(
  engine: Engine,
  rows: T,
): Promise<T> {
  const { contract, batch } = rows;
  const { fixedBatchRows } = contract;
  const first = sliceBatch(batch, batch.inputs, { from: 0, to: 1, fixedBatchRows });
  const outputs = outputTensors(contract);
  const calls = Array.from({ length: engine.concurrency }, () => engine.run({ inputs: copyOf(first.inputs), outputs }));
  await Promise.all(calls);
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1);
  return rows;
}

function triedSizes({ provider }: Engine): readonly number[] {
  return provider === "cpu" ? batchSizes : gpuBatchSizes;
}

/** Packs the rows that pass the filter into one batch. Bad rows take as long as others. */
async function packAll(
  contract: Contract,
  feed: ReturnType<typeof readRanges>,
  batchRows: number,
): Promise<FeatureBatch> {
  const packer = createPacker({
    contract: { ...contract, fixedBatchRows: null },
    batchRows: () => batchRows,
    onFault() {},
  });
  let packed: FeatureBatch | undefined;
  let row = 0;
  for await (const { batch } of feed) {
    for (const full of packer.push(batch, { from: 0, to: batch.rowCount, row })) {
      packed = full;
    }
    row += batch.rowCount;
  }
  packed ??= packer.flush();
  if (packed === undefined) {
    throw new JobError("INPUT_NOT_READY", "tuning: none of the job's first rows passes input.where", {
      hint: "tune needs rows to score; try it with params of a day that has some",
    });
  }
  return packed;
}

/** Measures rows per second with as many batches at once as in a run; undefined if there is no memory for them. */
async function rate(
  { nowMs }: JobContext,
  engine: Engine,
  { contract, batch, ms }: { contract: Contract; batch: FeatureBatch; ms: number },
): Promise<number | undefined> {
  const outputs = outputTensors(contract);
  let startedMs = nowMs();
  let rows = 0;
  let fits = true;
  const caller = async (until: (ran: number) => boolean): Promise<void> => {
    let inputs = copyOf(batch.inputs);
    for (let ran = 0; fits && !until(ran); ran += 1) {
      const response = await engine.run({ inputs, outputs });
      if (response.kind === "exhausted") {
        fits = false;
        return;
      }
      if (response.kind === "failed") {
        throw new JobError("MODEL_INVALID", `tuning: the model refuses the job's first rows: ${response.message}`, {
          hint: "`infer-batch run` with on_bad_row: reject names these rows",
        });
      }
      inputs = response.inputs.length === inputs.length ? [...response.inputs] : copyOf(batch.inputs);
      rows += batch.rowCount;
    }
  };
  const callers = async (until: (ran: number) => boolean): Promise<void> => {
    const ended = await Promise.allSettled(Array.from({ length: engine.concurrency }, () => caller(until)));
    for (const end of ended) {
      if (end.status === "rejected") {
        throw end.reason;
      }
    }
  };
  await callers((ran) => ran === 1); // the first call allocates memory
  rows = 0;
  startedMs = nowMs();
  await callers((ran) => ran > 0 && nowMs() - startedMs >= ms);
  return fits ? Math.round((rows / (nowMs() - startedMs)) * 1000) : undefined;
}

/** Copies inputs, since the engine detaches their buffers. Texts are not detached, and never come back. */
function copyOf(inputs: readonly NamedTensor[]): NamedTensor[] {
  return inputs.map((input) => (input.dtype === "string" ? input : { ...input, data: input.data.slice() }));
}
