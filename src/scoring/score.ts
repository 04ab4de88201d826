import { type Contract, outputTensors } from "../binding/contract.js";
import type { Aggregates } from "../checks/aggregates.js";
import type { FeaturePlan } from "../checks/profile/features.js";
import type { SlicePlan } from "../checks/profile/slices.js";
import { createReusingPacker } from "../packing/reusing-packer.js";
import type { RowFault } from "../packing/input-target.js";
import { type Lineage, withLineage, withRowNumbers } from "../binding/lineage.js";
import { outputRowBytes } from "../binding/row-bytes.js";
import { createPacker, type FeatureBatch, type Packer } from "../packing/packer.js";
import type { Reuse, RowReuse } from "../packing/row-reuse.js";
import type { Decoder } from "../formats/port.js";
import type { Engine } from "../engine/port.js";
import type { RowRange } from "../columnar/types.js";
import type { Plan, Span } from "../plan/plan.js";
import { spansOf } from "../plan/spans.js";
import { commitConcurrency } from "../sink/port.js";
import type { Progress } from "../report/progress/progress.js";
import type { StageTimer } from "../report/stage-times.js";
import type { BatchSizer } from "./batch-size.js";
import { checkAll, type DecodedRows, readRanges, rowsRead } from "./read-ranges.js";
import type { BatchLimit } from "./batch-limit.js";
import type { JobContext, ScoringContext } from "./context.js";
import { openSpan, type OpenSpan, type SpanTotals } from "./open-span.js";
import { featurePlanOf, keyColumns, profiledOutput, takeFeatures, slicePlanOf } from "./features.js";
import { faultError, faultHandler, PendingFault } from "./pending-fault.js";
import { createRejectBudget, runRejectLimit } from "./reject-budget.js";
import { describeFaults, type RejectOptions } from "./rejects.js";
import type { SliceReader } from "./workers/slice-reader.js";
import { createSpanPipeline, type SpanPipeline, type SpanTarget } from "./span-pipeline.js";

export interface ScoringOptions {
  readonly plan: Plan;
  /** Rows that were rejected before count, too. */
  readonly rejectedRows: number;
  readonly writer: SpanTarget;
  readonly decoder: Decoder;
  readonly reader: SliceReader;
  readonly engine: Engine;
  readonly sizer: BatchSizer;
  readonly batchLimit: BatchLimit;
  /** The expressions of `checks.sql`; undefined: there are none. */
  readonly aggregates?: Aggregates | undefined;
  /** Hashes rows, and finds those of an earlier run; undefined: the plan has no `reuse`. */
  readonly reuse?: Reuse | undefined;
}

/** Scores rows of a run. @param ranges whole spans, in order */
export async function scoreSpans(
  context: JobContext,
  tools: ScoringOptions,
  ranges: readonly RowRange[],
): Promise<void> {
  const { source, spec, record } = context;
  const { stages } = record;
  const { plan, rejectedRows, writer, decoder, reader, engine, sizer, batchLimit, aggregates, reuse } = tools;
  const { contract, commitRows, runId } = plan;
  const spans = spansOf(plan);
  const uniform = plan.input.uniform === true;
  const { unitPorts, sessions = 1 } = engine.local ?? {};
  const windowsAhead = unitPorts === undefined ? 1 : sessions;
  const feed = { source, decoder, reader, windowsAhead, spans, projection: contract, uniform, stages };
  const features = featurePlanOf(plan, keyColumns(spec));
  const limit = runRejectLimit(spec, { rows: plan.input.rows, already: rejectedRows });
  await scorePieces(
    context,
    {
      contract,
      engine,
      sizer,
      batchLimit,
      target: writer,
      commits: commitConcurrency,
      spanOf: (row) => spans.at(Math.floor(row / commitRows)),
      lineage: () => ({ runId, modelSha256: plan.model.sha256, scoredAtMs: context.dateMs() }),
      rejects: { spans, decoder, source, contract, kept: "Committed spans are kept" },
      onReject: spec.on_bad_row === "reject" ? createRejectBudget(limit).spend : undefined,
      pieceBytes: context.memory.pieceBytes,
      keys: keyColumns(spec),
      features,
      slices: slicePlanOf(plan, keyColumns(spec)),
      aggregate: aggregates?.profile,
      reuse,
    },
    readRanges(feed, ranges),
  );
}

export interface PieceOptions {
  readonly contract: Contract;
  readonly engine: Engine;
  readonly sizer: BatchSizer;
  readonly batchLimit: BatchLimit;
  readonly target: SpanTarget;
  /** Commits under way at once. */
  readonly commits: number;
  /** Returns the span that a row belongs to. A piece without rows has a span of its own. */
  readonly spanOf: (row: number) => Span;
  /** The lineage of rows that are completed now. */
  readonly lineage: () => Lineage;
  readonly rejects: RejectOptions;
  /** Called once for each rejected row; throws when there are too many. undefined: the first bad row ends the run. */
  readonly onReject: (() => void) | undefined;
  /** Rows of a span that are held before the target spills them. */
  readonly pieceBytes: number;
  /** Output columns that name a row. Default: none. */
  readonly keys?: ReadonlySet<string> | undefined;
  /** Which features are profiled; default: none. */
  readonly features?: FeaturePlan | undefined;
  /** Which slices are profiled; default: none. */
  readonly slices?: SlicePlan | undefined;
  /** Profiles the expressions of `checks.sql` over rows; undefined: there are none. */
  readonly aggregate?: Aggregates["profile"] | undefined;
  /** Set where the contract has `reuse`. */
  readonly reuse?: Reuse | undefined;
}

/**
 * The one loop: takes decoded rows in order, scores them in batches, commits each span when its last batch is back.
 * Decoding, inference and commits of neighbouring spans overlap, each bounded.
 */
export async function scorePieces(
  context: Pick<ScoringContext, "signal" | "progress" | "log" | "record">,
  tools: PieceOptions,
  pieces: AsyncIterable<DecodedRows>,
): Promise<void> {
  const { contract, sizer, lineage, rejects, target } = tools;
  const { stages } = context.record;
  const state: ScoringState = {
    ...tools,
    pieceBytes: target.spill === undefined ? Number.POSITIVE_INFINITY : tools.pieceBytes,
    progress: context.progress,
    stages,
    onFault: faultHandler(tools),
    open: undefined,
  };
  const packer = packerFor(state, sizer);
  const pipeline = createSpanPipeline(context, {
    ...tools,
    packer,
    tensors: outputTensors(contract),
    profiled: profiledOutput(contract, tools),
    fixedBatchRows: contract.fixedBatchRows,
    describe: (faults) => describeFaults(rejects, faults),
    complete(rows, numbers) {
      const named = contract.lineage === true ? withLineage(rows, lineage()) : rows;
      return contract.numbered === true ? withRowNumbers(named, numbers) : named;
    },
  });
  try {
    for await (const piece of pieces) {
      context.signal.throwIfAborted();
      await takePiece(state, { packer, pipeline }, piece);
    }
    if (state.open !== undefined) {
      throw new Error(`rows of span ${state.open.span.index} did not come`);
    }
    const sinceMs = stages.nowMs();
    await pipeline.drained();
    stages.took("wait", sinceMs);
  } catch (error) {
    // What is under way ends by itself: threads are never torn down inside the model, nor a part half published.
    await pipeline.settled();
    throw error instanceof PendingFault
      ? await faultError({ ...rejects, nullFeatures: context.record.nullFeatures }, error)
      : error;
  }
}

/** The state of the loop between decoder and batches. */
interface ScoringState extends Pick<PieceOptions, "contract" | "spanOf" | "pieceBytes" | "features" | "reuse"> {
  readonly progress: Progress;
  readonly stages: StageTimer;
  readonly onFault: (open: OpenSpan, fault: RowFault) => void;
  /** The span, or the piece of a span, that rows are added to. */
  open: OpenSpan | undefined;
}

function packerFor(state: ScoringState, sizer: BatchSizer): Packer {
  const options = {
    contract: state.contract,
    batchRows: () => sizer.rows,
    onFault: (fault: RowFault) => state.open?.onFault(fault),
  };
  const reuse = (): RowReuse => {
    if (state.open?.reuse === undefined) {
      throw new RangeError("rows came for no span");
    }
    return state.open.reuse;
  };
  return state.reuse === undefined ? createPacker(options) : createReusingPacker({ ...options, reuse });
}

/** The span that a row is the first of, or the piece that begins with it behind others of the span. */
function spanFrom(state: ScoringState, rowStart: number, before?: SpanTotals): OpenSpan {
  const { contract, spanOf, onFault, pieceBytes, features, reuse } = state;
  const span = spanOf(rowStart);
  const most = Math.max(1, Math.floor(pieceBytes / outputRowBytes(contract)));
  const piece = { rowStart, rowEnd: Math.min(span.rowEnd, rowStart + most) };
  return openSpan({ contract, span, piece, before, onFault, features, reuse });
}

/** Packs rows into batches, starts their scoring, and commits the spans that they complete. */
async function takePiece(
  state: ScoringState,
  { packer, pipeline }: { readonly packer: Packer; readonly pipeline: SpanPipeline },
  { rowStart, batch, shards }: DecodedRows,
): Promise<void> {
  const { stages } = state;
  let sinceMs = stages.nowMs();
  let from = 0;
  do {
    const open = (state.open ??= spanFrom(state, rowStart + from));
    const to = Math.min(rowsRead(batch), open.piece.rowEnd - rowStart);
    const { range, filtered } = open.take(batch, { from, to, row: rowStart + from });
    takeFeatures(state.features, open, { batch, range, firstRow: rowStart });
    const reused = reusedIn(open);
    if (batch.predictions === undefined) {
      for (const full of packer.push(batch, range)) {
        sinceMs = stages.took("pack", sinceMs);
        await pipeline.score(open, full);
        sinceMs = stages.took("wait", sinceMs);
      }
    } else {
      // The packer takes consecutive rows only, and the rows that it holds come before these.
      await scoreRest(pipeline, open, packer.flush());
      pipeline.take(open, batch, range);
    }
    state.progress.scored(filtered + reusedIn(open) - reused);
    from = to;
    const row = rowStart + from;
    const isWhole = row === open.span.rowEnd;
    if (isWhole || row === open.piece.rowEnd || bytesOf(open) >= state.pieceBytes) {
      const rest = packer.flush();
      sinceMs = stages.took("pack", sinceMs);
      await scoreRest(pipeline, open, rest);
      if (isWhole) {
        await checkAll(shards); // before anything made from what was read is committed
        await pipeline.commit(open);
        state.open = undefined;
      } else {
        state.open = spanFrom(state, row, await pipeline.spill(open));
      }
      sinceMs = stages.took("wait", sinceMs);
    }
  } while (from < rowsRead(batch));
  stages.took("pack", sinceMs);
}

/** Bytes of a piece that are held in memory. */
function bytesOf({ rows, features }: OpenSpan): number {
  return rows.bytes + (features?.bytes ?? 0);
}

/** Rows so far that take stored predictions. */
function reusedIn({ reuse }: OpenSpan): number {
  return reuse === undefined ? 0 : reuse.rowCount - reuse.scoredCount;
}

async function scoreRest(pipeline: SpanPipeline, open: OpenSpan, rest: FeatureBatch | undefined): Promise<void> {
  if (rest !== undefined) {
    await pipeline.score(open, rest);
  }
}
