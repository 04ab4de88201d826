import type { FeatureBatch, Packer } from "../batch/packer.js";
import type { SpanRows } from "../batch/span-rows.js";
import type { Tensor } from "../batch/types.js";
import type { Engine } from "../engine/port.js";
import type { Span } from "../plan/plan.js";
import { commitConcurrency, type RunSink } from "../sink/port.js";
import { createInFlight } from "./in-flight.js";
import type { JobContext } from "./job.js";

/** A span whose rows are being read. */
export interface OpenSpan {
  readonly span: Span;
  readonly rows: SpanRows;
  /** Ends of its batches, in the order they were submitted. */
  readonly predictions: Promise<void>[];
}

/** Inference and commits under way beside the decoder, each bounded; the first failure ends it. */
export interface SpanPipeline {
  /** Waits for room, then scores a batch into its span. */
  score(open: OpenSpan, batch: FeatureBatch): Promise<void>;
  /** Waits for room, then commits the span once its last batch is back. */
  commit(open: OpenSpan): Promise<void>;
  /** Waits for everything; throws the first failure. */
  drained(): Promise<Scored>;
  /** Waits for everything, whatever became of it. */
  settled(): Promise<void>;
}

export interface Scored {
  readonly rows: number;
  /** Committed by this attempt; the others were adopted from one beside it. */
  readonly spansCommitted: number;
}

export interface SpanPipelineOptions {
  readonly engine: Engine;
  readonly run: RunSink;
  readonly packer: Packer;
  /** The tensors that the contract's outputs come from, each once. */
  readonly tensors: readonly string[];
}

export function createSpanPipeline(
  { progress, log }: Pick<JobContext, "progress" | "log">,
  { engine, run, packer, tensors }: SpanPipelineOptions,
): SpanPipeline {
  const batches = createInFlight(engine.concurrency);
  const commits = createInFlight(commitConcurrency);
  let rows = 0;
  let spansCommitted = 0;
  const predict = async ({ rows: target }: OpenSpan, { inputs, rowStart, rowCount }: FeatureBatch): Promise<void> => {
    const packedRows = inputs[0]?.dims[0] ?? 0;
    const response = await engine.run({ inputs, outputs: tensors });
    packer.recycle(response.buffers);
    target.predict(byName(tensors, response.outputs), { rowStart, rowCount, packedRows });
    progress.scored(rowCount);
  };
  const publish = async ({ span, rows: source, predictions }: OpenSpan): Promise<void> => {
    await Promise.all(predictions);
    const outcome = await run.commit(span, source.finish());
    rows += span.rowEnd - span.rowStart;
    spansCommitted += outcome === "committed" ? 1 : 0;
    log.debug(`span ${span.index} ${outcome}`);
  };
  return {
    async score(open, batch) {
      const { done } = await batches.start(() => predict(open, batch));
      open.predictions.push(done);
    },
    async commit(open) {
      await commits.start(() => publish(open));
    },
    async drained() {
      await commits.drained();
      return { rows, spansCommitted };
    },
    async settled() {
      await Promise.all([batches.settled(), commits.settled()]);
    },
  };
}

function byName(names: readonly string[], tensors: readonly Tensor[]): ReadonlyMap<string, Tensor> {
  const found = new Map<string, Tensor>();
  for (const [index, name] of names.entries()) {
    const tensor = tensors[index];
    if (tensor !== undefined) {
      found.set(name, tensor);
    }
  }
  return found;
}
