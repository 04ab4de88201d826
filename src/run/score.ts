import type { FeatureBatch } from "../batch/packer.js";
import { createPacker } from "../batch/packer.js";
import { createSpanRows, type SpanRows } from "../batch/span-rows.js";
import type { Decoder } from "../decode/port.js";
import type { Engine } from "../engine/port.js";
import type { Plan, Span } from "../plan/plan.js";
import { spansOf } from "../plan/spans.js";
import { commitConcurrency, type RunSink } from "../sink/port.js";
import { badRow, notFinite } from "./bad-row.js";
import { type FeedPiece, feedRows, pendingRanges, projectionOf } from "./feed.js";
import { createInFlight } from "./in-flight.js";
import type { JobContext } from "./job.js";

export interface ScoringTools {
  readonly plan: Plan;
  readonly run: RunSink;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly batchRows: number;
}

export interface Scored {
  readonly rows: number;
  /** Committed by this attempt; the others were adopted from one beside it. */
  readonly spansCommitted: number;
}

interface OpenSpan {
  readonly span: Span;
  readonly rows: SpanRows;
  /** One a batch. */
  readonly predictions: Promise<void>[];
}

/**
 * The one loop: decodes pending rows in order, scores them in batches, commits each span when its last
 * batch is back. Decoding, inference and commits of neighbouring spans overlap, each bounded.
 */
export async function scoreSpans(context: JobContext, tools: ScoringTools): Promise<Scored> {
  const { source, signal, progress, log } = context;
  const { plan, run, decoder, engine } = tools;
  const spans = spansOf(plan);
  const { contract } = plan;
  const tensors = [...new Set(contract.outputs.map(({ tensor }) => tensor))];
  const packer = createPacker({
    contract,
    batchRows: tools.batchRows,
    onFault: (fault) => {
      throw new PendingFault(() => badRow(spans, decoder, source, fault));
    },
  });
  const batches = createInFlight(engine.concurrency);
  const commits = createInFlight(commitConcurrency);
  let rows = 0;
  let spansCommitted = 0;

  const predict = async (open: OpenSpan, batch: FeatureBatch): Promise<void> => {
    const packedRows = batch.inputs[0]?.dims[0] ?? 0;
    const response = await engine.run({ inputs: batch.inputs, outputs: tensors });
    packer.recycle(response.buffers);
    const outputs = new Map(tensors.map((name, index) => [name, response.outputs[index]] as const).filter(hasTensor));
    open.rows.predict(outputs, { rowStart: batch.rowStart, rowCount: batch.rowCount, packedRows });
    progress.scored(batch.rowCount);
  };
  const commit = async (open: OpenSpan): Promise<void> => {
    await Promise.all(open.predictions);
    const outcome = await run.commit(open.span, open.rows.finish());
    rows += open.span.rowEnd - open.span.rowStart;
    spansCommitted += outcome === "committed" ? 1 : 0;
    log.debug(`span ${open.span.index} ${outcome}`);
  };
  const submit = async (open: OpenSpan, batch: FeatureBatch | undefined): Promise<void> => {
    if (batch !== undefined) {
      const { done } = await batches.start(() => predict(open, batch));
      open.predictions.push(done);
    }
  };
  const openSpan = (row: number): OpenSpan => {
    const span = spans.at(Math.floor(row / plan.commitRows));
    const onNotFinite = (column: string, bad: number, value: number): void => {
      throw notFinite(spans, column, bad, value);
    };
    return { span, rows: createSpanRows({ contract, span, onNotFinite }), predictions: [] };
  };
  let open: OpenSpan | undefined;
  const take = async ({ rowStart, batch, shard }: FeedPiece): Promise<void> => {
    for (let from = 0; from < batch.rowCount; ) {
      const row = rowStart + from;
      open ??= openSpan(row);
      const to = Math.min(batch.rowCount, open.span.rowEnd - rowStart);
      open.rows.carry(batch, { from, to, row });
      for (const full of packer.push(batch, { from, to, row })) {
        await submit(open, full);
      }
      if (rowStart + to === open.span.rowEnd) {
        const ended = open;
        open = undefined;
        await submit(ended, packer.flush());
        await shard.check(); // what was read must be what was pinned, before anything made from it is committed
        await commits.start(() => commit(ended));
      }
      from = to;
    }
  };

  try {
    const feed = feedRows({ source, decoder, spans, projection: projectionOf(contract) }, pendingRanges(spans, run.committed));
    for await (const piece of feed) {
      signal.throwIfAborted();
      await take(piece);
    }
    await commits.drained();
  } catch (error) {
    // Let what is under way end by itself: threads are never torn down inside the model, nor a part half published.
    await Promise.allSettled([batches.settled(), commits.settled()]);
    throw error instanceof PendingFault ? await error.explain() : error;
  }
  return { rows, spansCommitted };
}

function hasTensor<T>(entry: readonly [string, T | undefined]): entry is [string, T] {
  return entry[1] !== undefined;
}

/** A bad value was met; telling about it takes a look at the shard. */
class PendingFault extends Error {
  readonly explain: () => Promise<Error>;

  constructor(explain: () => Promise<Error>) {
    super("a row cannot be scored");
    this.explain = explain;
  }
}
