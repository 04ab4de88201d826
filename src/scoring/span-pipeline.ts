import type { RowFault, BatchRows } from "../packing/input-target.js";
import { type FeatureBatch, type Packer } from "../packing/packer.js";
import { countStored, type HashedUnit } from "../packing/feature-hasher.js";
import type { Predictions, ScoredBatch } from "../packing/scored-batch.js";
import {
  mergeProfiles,
  type ProfiledOutput,
  profileRows,
  profileText,
  type SpanProfile,
} from "../checks/profile/profile.js";
import { profileSlices, type SlicePlan } from "../checks/profile/slices.js";
import type { Aggregates } from "../checks/aggregates.js";
import type { OutputRows, RejectedRow } from "../columnar/types.js";
import type { Engine } from "../engine/port.js";
import type { RunWriter } from "../sink/port.js";
import type { BatchSizer } from "./batch-size.js";
import type { BatchLimit } from "./batch-limit.js";
import { createInFlight } from "./in-flight.js";
import type { ScoringContext } from "./context.js";
import type { OpenSpan, SpanTotals, ScoredRows } from "./open-span.js";
import { predictedParts } from "./predicted-parts.js";
import { type BatchOptions, scoreBatch, tensorsByName } from "./score-batch.js";

/** Runs inference and commits while the decoder continues, each within a bound. The first failure ends it. */
export interface SpanPipeline {
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

export interface SpanPipelineOptions {
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
