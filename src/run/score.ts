import { createPacker } from "../batch/packer.js";
import { createSpanRows } from "../batch/span-rows.js";
import type { Decoder } from "../decode/port.js";
import type { Engine } from "../engine/port.js";
import type { Plan } from "../plan/plan.js";
import { type Spans, spansOf } from "../plan/spans.js";
import type { RunSink } from "../sink/port.js";
import { badRow, notFinite } from "./bad-row.js";
import { type FeedPiece, feedRows, pendingRanges, projectionOf } from "./feed.js";
import type { JobContext } from "./job.js";
import { createSpanPipeline, type OpenSpan, type Scored } from "./span-pipeline.js";

export interface ScoringTools {
  readonly plan: Plan;
  readonly run: RunSink;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly batchRows: number;
}

/**
 * The one loop: decodes pending rows in order, scores them in batches, commits each span when its last
 * batch is back. Decoding, inference and commits of neighbouring spans overlap, each bounded.
 */
export async function scoreSpans(context: JobContext, tools: ScoringTools): Promise<Scored> {
  const { source, signal } = context;
  const { plan, run, decoder, engine } = tools;
  const { contract } = plan;
  const spans = spansOf(plan);
  const packer = createPacker({
    contract,
    batchRows: tools.batchRows,
    onFault: (fault) => {
      throw new PendingFault(() => badRow(spans, decoder, source, fault));
    },
  });
  const tensors = [...new Set(contract.outputs.map(({ tensor }) => tensor))];
  const pipeline = createSpanPipeline(context, { engine, run, packer, tensors });
  let open: OpenSpan | undefined;
  const take = async ({ rowStart, batch, shard }: FeedPiece): Promise<void> => {
    for (let from = 0; from < batch.rowCount; ) {
      open ??= openSpan(plan, spans, rowStart + from);
      const range = { from, to: Math.min(batch.rowCount, open.span.rowEnd - rowStart), row: rowStart + from };
      open.rows.carry(batch, range);
      for (const full of packer.push(batch, range)) {
        await pipeline.score(open, full);
      }
      from = range.to;
      if (rowStart + from === open.span.rowEnd) {
        const rest = packer.flush();
        if (rest !== undefined) {
          await pipeline.score(open, rest);
        }
        await shard.check(); // what was read must be what was pinned, before anything made from it is committed
        await pipeline.commit(open);
        open = undefined;
      }
    }
  };
  try {
    const feed = { source, decoder, spans, projection: projectionOf(contract) };
    for await (const piece of feedRows(feed, pendingRanges(spans, run.committed))) {
      signal.throwIfAborted();
      await take(piece);
    }
    return await pipeline.drained();
  } catch (error) {
    // What is under way ends by itself: threads are never torn down inside the model, nor a part half published.
    await pipeline.settled();
    throw error instanceof PendingFault ? await error.explain() : error;
  }
}

function openSpan(plan: Plan, spans: Spans, row: number): OpenSpan {
  const span = spans.at(Math.floor(row / plan.commitRows));
  const rows = createSpanRows({
    contract: plan.contract,
    span,
    onNotFinite: (column, bad, value) => {
      throw notFinite(spans, column, bad, value);
    },
  });
  return { span, rows, predictions: [] };
}

/** A bad value was met; telling about it takes a look at the shard. */
class PendingFault extends Error {
  readonly explain: () => Promise<Error>;

  constructor(explain: () => Promise<Error>) {
    super("a row cannot be scored");
    this.explain = explain;
  }
}
