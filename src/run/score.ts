import type { RowFault } from "../batch/input-target.js";
import { type Lineage, withLineage } from "../batch/lineage.js";
import { createPacker, type FeatureBatch } from "../batch/packer.js";
import type { Decoder } from "../decode/port.js";
import type { Engine } from "../engine/port.js";
import type { Plan } from "../plan/plan.js";
import { spansOf } from "../plan/spans.js";
import type { RunSink } from "../sink/port.js";
import type { OpenShard } from "../source/port.js";
import type { BatchSizer } from "./batch-size.js";
import { type FeedPiece, feedRows, pendingRanges, rowsRead } from "./feed.js";
import type { JobContext } from "./job.js";
import { openSpan, type OpenSpan } from "./open-span.js";
import { badRowError, createRejectBudget, describeFaults } from "./rejects.js";
import type { SpanRange } from "./share.js";
import { createSpanPipeline, type Scored, type SpanPipeline } from "./span-pipeline.js";

export interface ScoringTools {
  readonly plan: Plan;
  readonly run: RunSink;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly sizer: BatchSizer;
}

/**
 * The one loop: decodes pending rows of a share in order, scores them in batches, commits each span when its last
 * batch is back. Decoding, inference and commits of neighbouring spans overlap, each bounded.
 */
export async function scoreSpans(context: JobContext, tools: ScoringTools, share: SpanRange): Promise<Scored> {
  const { source, signal } = context;
  const { plan, run, decoder, engine, sizer } = tools;
  const { contract, commitRows } = plan;
  const spans = spansOf(plan);
  const rejectTools = { spans, decoder, source, contract };
  const onFault = faultHandler(context, tools);
  let open: OpenSpan | undefined;
  const packer = createPacker({ contract, batchRows: () => sizer.rows, onFault: (fault) => open?.onFault(fault) });
  const pipeline = createSpanPipeline(context, {
    engine,
    run,
    packer,
    sizer,
    tensors: [...new Set(contract.outputs.map(({ tensor }) => tensor))],
    fixedBatchRows: contract.fixedBatchRows,
    describe: (faults) => describeFaults(rejectTools, faults),
    complete: (rows) => (contract.lineage === true ? withLineage(rows, lineageOf(plan, context.dateMs())) : rows),
  });
  const take = async ({ rowStart, batch, shard }: FeedPiece): Promise<void> => {
    for (let from = 0; from < rowsRead(batch); ) {
      open ??= openSpan({ contract, span: spans.at(Math.floor((rowStart + from) / commitRows)), onFault });
      const to = Math.min(rowsRead(batch), open.span.rowEnd - rowStart);
      const { range, filtered } = open.take(batch, { from, to, row: rowStart + from });
      context.progress.scored(filtered);
      for (const full of packer.push(batch, range)) {
        await pipeline.score(open, full);
      }
      from = to;
      if (rowStart + from === open.span.rowEnd) {
        await endSpan(pipeline, open, packer.flush(), shard);
        open = undefined;
      }
    }
  };
  try {
    const feed = { source, decoder, spans, projection: contract };
    for await (const piece of feedRows(feed, pendingRanges(spans, run.committed, share))) {
      signal.throwIfAborted();
      await take(piece);
    }
    return await pipeline.drained();
  } catch (error) {
    // What is under way ends by itself: threads are never torn down inside the model, nor a part half published.
    await pipeline.settled();
    throw error instanceof PendingFault ? await badRowError(rejectTools, error.fault) : error;
  }
}

function lineageOf({ runId, model }: Plan, scoredAtMs: number): Lineage {
  return { runId, modelSha256: model.sha256, scoredAtMs };
}

async function endSpan(
  pipeline: SpanPipeline,
  open: OpenSpan,
  rest: FeatureBatch | undefined,
  shard: OpenShard,
): Promise<void> {
  if (rest !== undefined) {
    await pipeline.score(open, rest);
  }
  await shard.check(); // what was read must be what was pinned, before anything made from it is committed
  await pipeline.commit(open);
}

/** Where a bad row ends the run: throws. Where it is set aside: once a row, as long as `max_rejects` allows. */
function faultHandler({ spec }: JobContext, { plan, run }: ScoringTools): (open: OpenSpan, fault: RowFault) => void {
  if (spec.on_bad_row === "fail") {
    return (_open, fault) => {
      throw new PendingFault(fault);
    };
  }
  const budget = createRejectBudget(spec.max_rejects, plan.input.rows, run.rejectedRows);
  return (open, fault) => {
    if (open.setAside(fault)) {
      budget.spend();
    }
  };
}

/** A bad row was met; telling about it takes a look at the shard. */
class PendingFault extends Error {
  readonly fault: RowFault;

  constructor(fault: RowFault) {
    super("a row cannot be scored");
    this.fault = fault;
  }
}
