import { type Contract, outputTensors } from "../binding/contract.js";
import type { Aggregates } from "../checks/aggregates.js";
import type { FeaturePlan } from "../checks/profile/features.js";
import { profileSlices, type SlicePlan } from "../checks/profile/slices.js";
import { createReusingPacker } from "../packing/reusing-packer.js";
import type { BatchRows, RowFault } from "../packing/input-target.js";
import { type Lineage, withLineage, withRowNumbers } from "../binding/lineage.js";
import { outputRowBytes } from "../binding/row-bytes.js";
import { createPacker, type FeatureBatch, type Packer, sliceBatch, sliceRows } from "../packing/packer.js";
import type { Reuse, RowReuse } from "../packing/row-reuse.js";
import type { Decoder } from "../formats/port.js";
import type { Engine, EngineResponse } from "../engine/port.js";
import type { OutputRows, RejectedRow, RowRange } from "../columnar/types.js";
import type { Plan, Span } from "../plan/plan.js";
import { spansOf } from "../plan/spans.js";
import { commitConcurrency, type RunWriter } from "../sink/port.js";
import type { Progress } from "../report/progress/progress.js";
import type { StageTimer } from "../report/stage-times.js";
import type { BatchLimit, BatchSizer } from "./batch-size.js";
import { checkAll, type DecodedRows, readRanges, rowsRead } from "./read.js";
import type { JobContext, ScoringContext } from "./context.js";
import { openSpan, type OpenSpan, type ScoredRows, type SpanTotals } from "./span.js";
import { featurePlanOf, keyColumns, profiledOutput, slicePlanOf, takeFeatures, unprofiledText } from "./features.js";
import {
  createRejectBudget,
  describeFaults,
  faultError,
  faultHandler,
  PendingFault,
  type RejectOptions,
  runRejectLimit,
} from "./rejects.js";
import { openSliceReader, type SliceReader } from "./workers/slice-reader.js";
import { countStored, type HashedUnit } from "../packing/feature-hasher.js";
import type { Predictions, ScoredBatch } from "../packing/scored-batch.js";
import {
  mergeProfiles,
  type ProfiledOutput,
  profileRows,
  profileText,
  type SpanProfile,
} from "../checks/profile/profile.js";
import type { NamedTensor, Tensor } from "../columnar/tensor.js";
import { assertNever } from "../util/errors.js";
import { createCondition } from "../util/condition.js";

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

interface PieceOptions {
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

/** Reads a run's slices in the engine's workers if they can score the rows that they read, else in workers that only decode. */
export function openRunReader(
  { spec, decodeWorkers, memory, record, log }: JobContext,
  { plan, decoder, engine, sizer, reuse }: Pick<ScoringOptions, "plan" | "decoder" | "engine" | "sizer" | "reuse">,
): SliceReader {
  const { contract } = plan;
  const features = featurePlanOf(plan, keyColumns(spec));
  const left = unprofiledText(plan, keyColumns(spec));
  if (left !== undefined) {
    log.info(`checks: ${left}`);
  }
  const { unitPorts: ports, sessions = 1 } = engine.local ?? {};
  const warned = new Set<string>();
  return openSliceReader({
    decoder,
    ...decodeWorkers,
    memory,
    scoring:
      ports === undefined
        ? undefined
        : {
            count: sessions,
            ports,
            contract,
            tensors: outputTensors(contract),
            batchRows: () => sizer.rows,
            features,
            hashing: reuse?.hashing,
          },
    onFailure({ kind, message }) {
      record.addFailedUnit(kind);
      const isNew = !warned.has(kind);
      warned.add(kind);
      if (kind === "unsupported" || !isNew) {
        log.debug(`rows are read again in the main thread (${kind}): ${message}`);
      } else {
        const bug = kind === "defect" ? "; this is a bug in infer-batch" : "";
        log.warn(`rows are read again, more slowly, because a worker could not read them${bug}: ${message}`);
      }
    },
    onGivenUp(reason) {
      log.debug(`the main thread reads all further slices: ${reason}`);
    },
  });
}

/** Runs inference and commits while the decoder continues, each within a bound. The first failure ends it. */
interface SpanPipeline {
  /** Scores a batch into its span, once fewer batches than the bound are under way. */
  score(open: OpenSpan, batch: FeatureBatch): Promise<void>;
  /** Puts rows [from, to) of a batch that was scored already into their span; `row` is the number of row `from`. */
  take(open: OpenSpan, batch: ScoredBatch, rows: BatchRows): void;
  /**
   * Has the target encode a piece of a span after the piece's last batch, which frees its memory. Returns what the next
   * piece of the span must know.
   */
  spill(open: OpenSpan): Promise<SpanTotals>;
  /** Commits the span after its last batch, once fewer commits than the bound are under way. */
  commit(open: OpenSpan): Promise<void>;
  /** Waits for everything; throws the first failure. */
  drained(): Promise<void>;
  /** Waits for everything, and throws nothing. */
  settled(): Promise<void>;
}

/** Where spans are committed. Without `spill`, the rows of a span are held in memory until it is complete. */
export type SpanTarget = Pick<RunWriter, "commit"> & Partial<Pick<RunWriter, "spill" | "unfit">>;

interface SpanPipelineOptions {
  readonly engine: Engine;
  readonly target: SpanTarget;
  /** Commits under way at once. */
  readonly commits: number;
  readonly packer: Packer;
  readonly sizer: BatchSizer;
  readonly batchLimit: BatchLimit;
  /** The tensors that the contract's outputs come from, each once. */
  readonly tensors: readonly string[];
  readonly fixedBatchRows: number | null;
  /** The columns that are profiled. */
  readonly profiled: ProfiledOutput;
  /** Which slices are profiled; undefined: none. */
  readonly slices?: SlicePlan | undefined;
  /** Profiles the expressions of `checks.sql` over rows; undefined: there are none. */
  readonly aggregate?: Aggregates["profile"] | undefined;
  /** Describes rejected rows with their values. */
  readonly describe: (faults: readonly RowFault[]) => Promise<RejectedRow[]>;
  /** Adds the columns that come from neither input nor model. `numbers`: the numbers of the rows in the run. */
  readonly complete: (rows: OutputRows, numbers: () => BigInt64Array<ArrayBuffer>) => OutputRows;
}

/** @public so that tests call it */
export function createSpanPipeline(
  context: Pick<ScoringContext, "progress" | "log" | "record">,
  options: SpanPipelineOptions,
): SpanPipeline {
  const batches = createInFlight(options.engine.concurrency);
  const commits = createInFlight(options.commits);
  const { record, log } = context;
  const { stages } = record;
  const predict = createPredictor(context, options);
  const publish = async (open: OpenSpan): Promise<void> => {
    const { span } = open;
    await Promise.all(open.predictions);
    let sinceMs = stages.nowMs();
    const onEncoded = (): void => {
      sinceMs = stages.took("encode", sinceMs);
    };
    const output = await fittingRows(options.target, open);
    const totals = await totalsWith(options, open, output);
    const rejects = await options.describe([...open.faults.values()]);
    const filtered = span.rowEnd - span.rowStart - totals.keptRows;
    const rows = options.complete(output, () => numbersOf(open, output));
    const made = { ...makerOf(options, open), profile: profileText(totals.profile), onEncoded };
    await options.engine.paid?.keep(); // what an answer cost is counted from what is kept
    const outcome = await options.target.commit(span, { rows, rejects, filtered, ...made });
    stages.took("commit", sinceMs);
    if (outcome === "committed") {
      record.addSpan({ ...totals, byTrees: totals.scored.byTrees, rejects, filtered });
    }
    log.debug(`span ${span.index} ${outcome}`);
  };
  return {
    spill: (open) => spillPiece(options, open),
    async score(open, batch) {
      const { done } = await batches.start(() => predict(open, batch));
      open.predictions.push(done);
    },
    take(open, { predictions = [], hashed }, range) {
      const rows = hashed === undefined ? range : takeHashed(open, hashed, range);
      takePredictions(context, options, { open, predictions, rows });
    },
    async commit(open) {
      await commits.start(() => publish(open));
    },
    async drained() {
      await commits.drained();
    },
    async settled() {
      await Promise.all([batches.settled(), commits.settled()]);
    },
  };
}

function countRows({ scored }: OpenSpan, rows: number, byTrees = false): void {
  scored.byTrees += byTrees ? rows : 0;
  scored.byRuntime += byTrees ? 0 : rows;
}

/** What computes a span's predictions, for its label. */
function makerOf(
  { sizer, engine }: Pick<SpanPipelineOptions, "sizer" | "engine">,
  { scored }: OpenSpan,
): { batchSize: number; provider: string | undefined } {
  return { batchSize: sizer.rows, provider: providerOf(engine, scored) };
}

/** As a span's label names it; undefined: the engine's provider. */
function providerOf({ provider }: Engine, { byTrees, byRuntime }: ScoredRows): string | undefined {
  return byTrees === 0
    ? undefined
    : byRuntime === 0
      ? `${provider}, compiled trees`
      : `${provider}, partly compiled trees`;
}

async function spillPiece(
  { target, complete, ...options }: Pick<SpanPipelineOptions, "target" | "complete" | ProfileOption>,
  open: OpenSpan,
): Promise<SpanTotals> {
  await Promise.all(open.predictions);
  const output = await fittingRows(target, open);
  await target.spill?.(
    open.span,
    complete(output, () => numbersOf(open, output)),
  );
  return await totalsWith(options, open, output);
}

type ProfileOption = "profiled" | "slices" | "aggregate";

/** Adds a piece to the pieces of the span before it. */
async function totalsWith(
  { profiled, slices, aggregate }: Pick<SpanPipelineOptions, ProfileOption>,
  open: OpenSpan,
  output: OutputRows,
): Promise<SpanTotals & { readonly profile: SpanProfile }> {
  const { before, keptRows, rows, faults, scored, features } = open;
  const profile: SpanProfile = {
    ...profileRows(output, profiled, features?.finish()),
    ...(slices === undefined ? {} : { slices: profileSlices(output, slices) }),
    ...(aggregate === undefined ? {} : { aggregates: await aggregate(output) }),
  };
  return {
    keptRows: before.keptRows + keptRows,
    rowCount: before.rowCount + output.rowCount,
    reused: before.reused + rows.reused,
    faults,
    scored,
    profile: before.profile === undefined ? profile : mergeProfiles(before.profile, profile),
  };
}

interface TakenRows {
  readonly open: OpenSpan;
  readonly predictions: readonly Predictions[];
  readonly rows: BatchRows;
}

/**
 * Takes rows that a worker has hashed, and scored as far as they take no stored prediction. Returns which rows of those
 * that were scored these are.
 */
function takeHashed({ reuse }: OpenSpan, hashed: HashedUnit, { from, to }: BatchRows): BatchRows {
  if (reuse === undefined) {
    throw new RangeError("hashes of rows came for a span that takes none");
  }
  const before = reuse.scoredCount;
  reuse.takeHashed(hashed, from, to);
  const first = from - (hashed.places === undefined ? 0 : countStored(hashed.places.subarray(0, from)));
  return { from: first, to: first + reuse.scoredCount - before, row: reuse.rowStart + before };
}

function numbersOf({ rows, rowInRun }: OpenSpan, { rowCount }: OutputRows): BigInt64Array<ArrayBuffer> {
  const places = Array.from({ length: rowCount }, (_, index) => index);
  return BigInt64Array.from(rows.rowsAt(places), (row) => BigInt(rowInRun(row)));
}

/** Counts rows that a worker scored as scored. */
function takePredictions(
  { progress, record: { stages } }: Pick<ScoringContext, "progress" | "record">,
  { sizer, tensors }: Pick<SpanPipelineOptions, "sizer" | "tensors">,
  { open, predictions, rows }: TakenRows,
): void {
  for (const { part, isBegun, outputs, ...taken } of predictedParts(predictions, rows)) {
    if (isBegun) {
      const endedMs = stages.nowMs();
      stages.took("infer", endedMs - part.ms, endedMs);
      sizer.took(part.packedRows, part.ms);
    }
    countRows(open, taken.rowCount, part.byTrees);
    open.rows.predict(tensorsByName(tensors, outputs), taken);
    progress.scored(taken.rowCount);
  }
}

/** A span's rows without those that the target cannot hold, which are bad rows like any other. */
async function fittingRows(target: SpanTarget, open: OpenSpan): Promise<OutputRows> {
  const { piece, rows, keptRows } = open;
  const output = rows.finish(keptRows);
  const unfit = (await target.unfit?.(output)) ?? [];
  const rowNumbers = rows.rowsAt(unfit.map(({ row }) => row));
  for (const [index, { column, found }] of unfit.entries()) {
    open.onFault({ reason: "target", column, row: rowNumbers[index] ?? piece.rowStart, value: found });
  }
  return unfit.length === 0 ? output : rows.finish(keptRows);
}

/** Scores one batch into its span. */
function createPredictor(
  { progress, record: { stages } }: Pick<ScoringContext, "progress" | "record">,
  { engine, packer, sizer, batchLimit, tensors, fixedBatchRows }: SpanPipelineOptions,
): (open: OpenSpan, batch: FeatureBatch) => Promise<void> {
  return async (open, batch) => {
    const onDone: BatchOptions["onDone"] = (done, response) => {
      const endedMs = stages.nowMs();
      stages.took("infer", endedMs - response.ms, endedMs);
      sizer.took(done.packedRows, response.ms);
      if (done === batch) {
        packer.recycle(response.inputs); // those of a part have sizes of their own
      }
      const { rowStart, rowCount, packedRows } = done;
      countRows(open, rowCount, response.byTrees);
      open.rows.predict(tensorsByName(tensors, response.outputs), { rowStart, rowCount, packedRows });
      progress.scored(rowCount);
    };
    const onRow: BatchOptions["onRow"] = (row, { message, reason }) => {
      open.rows.refuse(row, message, reason);
      progress.scored(1);
    };
    if (engine.paid !== undefined && open.faults.has(open.rowInRun(firstRow(open, batch)))) {
      onRow(batch.rowStart, { message: "" }); // it is set aside already, and an answer would cost money
      return;
    }
    await scoreBatch({ engine, batchLimit, tensors, fixedBatchRows, onDone, onRow }, batch);
  };
}

/** The first row of a batch, numbered as rows of a piece are: with `reuse`, batches number those that are scored. */
function firstRow({ piece, reuse }: OpenSpan, { rowStart }: FeatureBatch): number {
  return reuse === undefined ? rowStart : piece.rowStart + reuse.scoredAt(rowStart - piece.rowStart);
}

interface BatchOptions {
  readonly engine: Engine;
  readonly batchLimit: BatchLimit;
  readonly tensors: readonly string[];
  readonly fixedBatchRows: number | null;
  /** Predictions of the batch, or of a part of it. */
  readonly onDone: (batch: FeatureBatch, response: Extract<EngineResponse, { kind: "done" }>) => void;
  /** The row of the run that the model fails on alone. Throws to end the run. */
  readonly onRow: (row: number, failed: Pick<FailedResponse, "message" | "reason">) => void;
}

type FailedResponse = Extract<EngineResponse, { kind: "failed" }>;

/**
 * Scores a batch, in parts where it must be: one that the model refuses half by half, down to the rows that it refuses
 * alone (about 2·log2(rows) calls for one such row), and one that the device has no memory for half by half.
 * @throws JobError MEMORY when not even one row fits
 * @public so that tests call it
 */
export async function scoreBatch(tools: BatchOptions, batch: FeatureBatch): Promise<void> {
  const { engine, batchLimit, tensors, fixedBatchRows } = tools;
  const fixed = fixedBatchRows !== null;
  if (!fixed && batch.rowCount > 1 && batch.packedRows > batchLimit.rows) {
    await scoreHalves(tools, batch, batch.inputs);
    return;
  }
  const begun = batchLimit.begin(batch.packedRows);
  const response = await engine.run({ inputs: batch.inputs, outputs: tensors });
  switch (response.kind) {
    case "done":
      tools.onDone(batch, response);
      return;
    case "failed":
      if (batch.rowCount === 1) {
        tools.onRow(batch.rowStart, response);
        return;
      }
      await scoreHalves(tools, batch, response.inputs);
      return;
    case "exhausted":
      await batchLimit.exceeded(begun, { fixed, message: response.message });
      await scoreBatch(tools, { ...batch, inputs: response.inputs });
      return;
    default:
      assertNever(response);
  }
}

/** @param inputs the inputs of the batch; valid after its own buffers are transferred */
async function scoreHalves(tools: BatchOptions, batch: FeatureBatch, inputs: readonly NamedTensor[]): Promise<void> {
  const middle = Math.ceil(batch.rowCount / 2);
  const { fixedBatchRows } = tools;
  for (const [from, to] of [
    [0, middle],
    [middle, batch.rowCount],
  ] as const) {
    await scoreBatch(tools, sliceBatch(batch, inputs, { from, to, fixedBatchRows }));
  }
}

/** The tensors of a response, by the names that were asked for. */
function tensorsByName(names: readonly string[], tensors: readonly Tensor[]): ReadonlyMap<string, Tensor> {
  const found = new Map<string, Tensor>();
  for (const [index, name] of names.entries()) {
    const tensor = tensors[index];
    if (tensor !== undefined) {
      found.set(name, tensor);
    }
  }
  return found;
}

/** Predicted rows of one call of a model, as `SpanRows.predict` takes them. */
interface PredictedPart extends Omit<FeatureBatch, "inputs"> {
  readonly part: Predictions;
  /** Whether the call's first row is among the rows that were asked for, as it is once for each call. */
  readonly isBegun: boolean;
  readonly outputs: readonly Tensor[];
}

/** Cuts rows [from, to) of a batch that a worker scored into its calls of the model; `row` is the number of row `from`. */
function* predictedParts(predictions: readonly Predictions[], { from, to, row }: BatchRows): Generator<PredictedPart> {
  let end = 0;
  for (const part of predictions) {
    const start = end;
    end += part.rowCount;
    const taken = { from: Math.max(from, start) - start, to: Math.min(to, end) - start };
    const rowCount = taken.to - taken.from;
    if (rowCount > 0) {
      const isBegun = taken.from === 0;
      yield { part, isBegun, rowStart: row + start + taken.from - from, rowCount, ...rowsOf(part, taken) };
    }
  }
}

/** The tensors of a part, or of some of its rows. Those that are not as long as the batch stay, to be refused. */
function rowsOf(
  { outputs, rowCount, packedRows }: Predictions,
  { from, to }: Pick<BatchRows, "from" | "to">,
): Pick<Predictions, "outputs" | "packedRows"> {
  const isWhole = to - from === rowCount || outputs.some(({ dims }) => dims[0] !== packedRows);
  return isWhole
    ? { outputs, packedRows }
    : { outputs: outputs.map((tensor) => sliceRows(tensor, from, to)), packedRows: to - from };
}

/** Runs a bounded number of tasks at once. The next call after a failure throws the first one. */
interface InFlight {
  /** Waits until fewer than the limit are running, then starts the task. `done`: its end, which never counts as unhandled. */
  start(task: () => Promise<void>): Promise<{ readonly done: Promise<void> }>;
  /** Waits for all; throws the first failure. */
  drained(): Promise<void>;
  /** Waits for all, and throws nothing. */
  settled(): Promise<void>;
}

function createInFlight(limit: number): InFlight {
  const underWay = new Set<Promise<void>>();
  const ended = createCondition();
  let failure: { readonly error: unknown } | undefined;
  const throwIfFailed = (): void => {
    if (failure !== undefined) {
      throw failure.error;
    }
  };
  const settled = async (): Promise<void> => {
    await Promise.allSettled(underWay);
  };
  return {
    async start(task) {
      while (underWay.size >= limit) {
        await ended.wait(); // a race of hundreds of promises would cost more than the tasks
      }
      throwIfFailed();
      const done = task();
      const tracked: Promise<void> = done
        .catch((error: unknown) => {
          failure ??= { error };
        })
        .finally(() => {
          underWay.delete(tracked);
          ended.notify();
        });
      underWay.add(tracked);
      return { done };
    },
    async drained() {
      await settled();
      throwIfFailed();
    },
    settled,
  };
}
