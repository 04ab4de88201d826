import { type Contract, type Lineage, outputTensors, withLineage, withRowNumbers } from "../models/binding/contract.js";
import type { FeaturePlan } from "../checks/profile/features.js";
import { type Reuse, type RowReuse, createReusingPacker } from "./pack/row-reuse.js";
import {
  type Aggregates,
  type SlicePlan,
  type SpanProfile,
  mergeProfiles,
  noRows,
  profileRows,
  profileSlices,
  profileText,
} from "../checks/profile/profile.js";
import type { BatchRows, RowFault } from "./pack/input-target.js";
import { outputRowBytes } from "../models/binding/row-bytes.js";
import {
  type FeatureBatch,
  type Packer,
  type Predictions,
  type ReadBatch,
  createPacker,
  sliceBatch,
  sliceRows,
} from "./pack/packer.js";
import type { Decoder } from "../formats/format.js";
import type { Engine, EngineResponse } from "../models/engine.js";
import type { OutputRows, RowRange } from "../columns/types.js";
import type { Plan, Span } from "../run/plan/plan.js";
import { spansOf } from "../run/plan/spans.js";
import { type RunWriter, commitConcurrency } from "../targets/target.js";
import type { BatchLimit, BatchSizer } from "./batch-size.js";
import type { OpenedJob, Reporter } from "./opened-job.js";
import { featurePlanOf, keyColumns, profiledOutput, slicePlanOf, takeFeatures, unprofiledText } from "./features.js";
import {
  PendingFault,
  type RejectOptions,
  createRejectBudget,
  describeFaults,
  faultError,
  runRejectLimit,
} from "./rejects.js";
import { type DecodedRows, checkAll, readRanges } from "./read.js";
import { rowsRead } from "./pack/select-rows.js";
import { type OpenSpan, type ScoredRows, type SpanTotals, openSpan } from "./span.js";
import { openSliceReader } from "./workers/slice-reader.js";
import { type HashedUnit, countStored } from "./pack/feature-hasher.js";
import type { NamedTensor, Tensor } from "../columns/tensor.js";
import { assertNever } from "../base/errors.js";
import { createCondition } from "../base/promises.js";

/** What scores whole spans of one plan. */
export interface SpanScorer extends AsyncDisposable {
  /** @param ranges whole spans, in order @param rejectedRows rows of the run that were rejected before, which count, too */
  score(ranges: readonly RowRange[], rejectedRows: number): Promise<void>;
}

export interface ScoringOptions {
  readonly plan: Plan;
  readonly writer: SpanTarget;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly sizer: BatchSizer;
  readonly batchLimit: BatchLimit;
  /** The expressions of `checks.sql`; undefined: there are none. */
  readonly aggregates?: Aggregates | undefined;
  /** Hashes rows, and finds those of an earlier run; undefined: the plan has no `reuse`. */
  readonly reuse?: Reuse | undefined;
}

/** Scores rows in the engine's workers if these can read them, else where workers that only decode have read them. */
export function openSpanScorer(opened: OpenedJob, tools: ScoringOptions): SpanScorer {
  const { job, input, attempt, reporter, memory } = opened;
  const { record, log } = reporter;
  const { spec } = job;
  const { source } = input;
  const { plan, writer, decoder, engine, sizer, batchLimit, aggregates, reuse } = tools;
  const { contract, commitRows, runId } = plan;
  const { stages } = record;
  const keys = keyColumns(spec);
  const features = featurePlanOf(plan, keys);
  const left = unprofiledText(plan, keys);
  if (left !== undefined) {
    log.info(`checks: ${left}`);
  }

  const { unitPorts: ports, sessions = 1 } = engine.local ?? {};
  const tensors = outputTensors(contract);
  const model = { contract, tensors, batchRows: () => sizer.rows, features, hashing: reuse?.hashing };
  const warned = new Set<string>();
  const reader = openSliceReader({
    decoder,
    ...input.decodeWorkers,
    memory,
    scoring: ports && { count: sessions, ports, ...model },
    onFailure({ kind, message }) {
      record.addFailedUnit(kind);
      if (kind === "unsupported" || warned.has(kind)) {
        log.debug(`rows are read again in the main thread (${kind}): ${message}`);
      } else {
        const bug = kind === "defect" ? "; this is a bug in infer-batch" : "";
        log.warn(`rows are read again, more slowly, because a worker could not read them${bug}: ${message}`);
      }
      warned.add(kind);
    },
    onGivenUp(reason) {
      log.debug(`the main thread reads all further slices: ${reason}`);
    },
  });

  const spans = spansOf(plan);
  const uniform = plan.input.uniform === true;
  const windowsAhead = ports === undefined ? 1 : sessions;
  const feed = { source, decoder, reader, windowsAhead, spans, projection: contract, uniform, stages };
  return {
    async score(ranges, rejectedRows) {
      const limit = runRejectLimit(spec, { rows: plan.input.rows, already: rejectedRows });
      const pieces = {
        contract,
        engine,
        sizer,
        batchLimit,
        target: writer,
        commits: commitConcurrency,
        spanOf: (row: number) => spans.at(Math.floor(row / commitRows)),
        lineage: () => ({ runId, modelSha256: plan.model.sha256, scoredAtMs: attempt.dateMs() }),
        rejects: { spans, decoder, source, contract, kept: "Committed spans are kept" },
        onReject: spec.on_bad_row === "reject" ? createRejectBudget(limit).spend : undefined,
        pieceBytes: memory.pieceBytes,
        keys,
        features,
        slices: slicePlanOf(plan, keys),
        aggregate: aggregates?.profile,
        reuse,
      };
      await scorePieces(attempt.signal, reporter, pieces, readRanges(feed, ranges));
    },
    [Symbol.asyncDispose]: () => reader[Symbol.asyncDispose](),
  };
}

interface PieceOptions {
  readonly contract: Contract;
  readonly engine: Engine;
  readonly sizer: BatchSizer;
  readonly batchLimit: BatchLimit;
  readonly target: SpanTarget;
  readonly commits: number;
  /** Returns the span that a row belongs to. A piece without rows has a span of its own. */
  readonly spanOf: (row: number) => Span;
  readonly lineage: () => Lineage;
  readonly rejects: RejectOptions;
  /** Called once for each rejected row; throws when there are too many. undefined: the first bad row ends the run. */
  readonly onReject: (() => void) | undefined;
  /** Rows of a span that are held before the target spills them. */
  readonly pieceBytes: number;
  /** Output columns that name a row. Default: none. */
  readonly keys?: ReadonlySet<string> | undefined;
  /** Set where nobody reads profiles of predictions. Default: they are made. */
  readonly isUnprofiled?: boolean | undefined;
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
  signal: AbortSignal,
  reporter: Reporter,
  tools: PieceOptions,
  pieces: AsyncIterable<DecodedRows>,
): Promise<void> {
  const { contract, spanOf, onReject, rejects, target, features, reuse } = tools;
  const { progress, record } = reporter;
  const { stages } = record;
  const pieceBytes = target.spill === undefined ? Number.POSITIVE_INFINITY : tools.pieceBytes;
  const pieceRows = Math.max(1, Math.floor(pieceBytes / outputRowBytes(contract)));
  /** The span, or the piece of a span, that rows are added to. */
  let current: OpenSpan | undefined;

  /** Ends the run at the first bad row, or counts each row that is rejected once. */
  const onFault = (open: OpenSpan, fault: RowFault): void => {
    if (onReject === undefined) {
      throw new PendingFault(fault);
    }
    if (open.setAside(fault)) {
      try {
        onReject();
      } catch (error) {
        throw new PendingFault(fault, error);
      }
    }
  };
  /** The span that a row is the first of, or the piece that begins with it behind others of the span. */
  const openAt = (rowStart: number, before?: SpanTotals): OpenSpan => {
    const span = spanOf(rowStart);
    const piece = { rowStart, rowEnd: Math.min(span.rowEnd, rowStart + pieceRows) };
    return openSpan({ contract, span, piece, before, onFault, features, reuse });
  };
  const packing = {
    contract,
    batchRows: () => tools.sizer.rows,
    onFault: (fault: RowFault) => current?.onFault(fault),
  };
  const reuseOfCurrent = (): RowReuse => {
    if (current?.reuse === undefined) {
      throw new RangeError("rows came for no span");
    }
    return current.reuse;
  };
  const packer =
    reuse === undefined ? createPacker(packing) : createReusingPacker({ ...packing, reuse: reuseOfCurrent });
  const pipeline = createSpanPipeline(reporter, tools, packer);

  /** Scores the rows that the packer still holds. */
  const scoreRest = async (open: OpenSpan): Promise<void> => {
    const rest = packer.flush();
    if (rest !== undefined) {
      await pipeline.score(open, rest);
    }
  };
  /** Packs rows into batches, starts their scoring, and commits the spans that they complete. */
  const take = async ({ rowStart, batch, shards }: DecodedRows): Promise<void> => {
    let sinceMs = stages.nowMs();
    let from = 0;
    do {
      const open = (current ??= openAt(rowStart + from));
      const to = Math.min(rowsRead(batch), open.piece.rowEnd - rowStart);
      const { range, filtered } = open.take(batch, { from, to, row: rowStart + from });
      takeFeatures(features, open, { batch, range, firstRow: rowStart });
      const reused = reusedIn(open);
      // Without predictions: a thread met a bad row, which is found again here and set aside, or no thread has the model.
      if (batch.predictions === undefined) {
        for (const full of packer.push(batch, range)) {
          sinceMs = stages.took("pack", sinceMs);
          await pipeline.score(open, full);
          sinceMs = stages.took("wait", sinceMs);
        }
      } else {
        // The packer takes consecutive rows only, and the rows that it holds come before these.
        await scoreRest(open);
        pipeline.take(open, batch, range);
      }
      progress.scored(filtered + reusedIn(open) - reused);

      from = to;
      const row = rowStart + from;
      const isWhole = row === open.span.rowEnd;
      if (isWhole || row === open.piece.rowEnd || open.rows.bytes + (open.features?.bytes ?? 0) >= pieceBytes) {
        sinceMs = stages.took("pack", sinceMs);
        await scoreRest(open);
        if (isWhole) {
          await checkAll(shards); // before anything made from what was read is committed
          await pipeline.commit(open);
          current = undefined;
        } else {
          current = openAt(row, await pipeline.spill(open));
        }
        sinceMs = stages.took("wait", sinceMs);
      }
    } while (from < rowsRead(batch));
    stages.took("pack", sinceMs);
  };

  try {
    for await (const piece of pieces) {
      signal.throwIfAborted();
      await take(piece);
    }
    if (current !== undefined) {
      throw new Error(`rows of span ${current.span.index} did not come`);
    }
    const sinceMs = stages.nowMs();
    await pipeline.drained();
    stages.took("wait", sinceMs);
  } catch (error) {
    // What is under way ends by itself: threads are never torn down inside the model, nor a part half written.
    await pipeline.settled();
    throw error instanceof PendingFault
      ? await faultError({ ...rejects, nullFeatures: record.nullFeatures }, error)
      : error;
  }
}

function reusedIn({ reuse }: OpenSpan): number {
  return reuse === undefined ? 0 : reuse.rowCount - reuse.scoredCount;
}

/** Runs inference and commits while the decoder continues, each within a bound. The first failure ends it. */
interface SpanPipeline {
  /** Scores a batch into its span, once fewer batches than the bound are under way. */
  score(open: OpenSpan, batch: FeatureBatch): Promise<void>;
  /** Puts rows of a batch that was scored already into their span. */
  take(open: OpenSpan, batch: ReadBatch, rows: BatchRows): void;
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

/** @public so that tests call it */
export function createSpanPipeline(
  { progress, log, record }: Reporter,
  options: PieceOptions,
  packer: Packer,
): SpanPipeline {
  const { contract, engine, target, sizer, batchLimit } = options;
  const { stages } = record;
  const { fixedBatchRows } = contract;
  const tensors = outputTensors(contract);
  const profiled = profiledOutput(contract, options);
  const batches = createInFlight(engine.concurrency);
  const commits = createInFlight(options.commits);

  /** Takes note of how long a call of the model took. */
  const called = (packedRows: number, ms: number): void => {
    const endedMs = stages.nowMs();
    stages.took("infer", endedMs - ms, endedMs);
    sizer.took(packedRows, ms);
  };
  const predict = (
    open: OpenSpan,
    predictions: Pick<Predictions, "outputs" | "byTrees">,
    rows: PredictedRows,
  ): void => {
    open.scored[predictions.byTrees === true ? "byTrees" : "byRuntime"] += rows.rowCount;
    open.rows.predict(tensorsByName(tensors, predictions.outputs), rows);
    progress.scored(rows.rowCount);
  };
  const score = async (open: OpenSpan, batch: FeatureBatch): Promise<void> => {
    const onDone: BatchOptions["onDone"] = (done, response) => {
      called(done.packedRows, response.ms);
      if (done === batch) {
        packer.recycle(response.inputs); // those of a part have sizes of their own
      }
      const { rowStart, rowCount, packedRows } = done;
      predict(open, response, { rowStart, rowCount, packedRows });
    };
    const onRow: BatchOptions["onRow"] = (row, { message, reason }) => {
      open.rows.refuse(row, message, reason);
      progress.scored(1);
    };
    await scoreInto(open, { engine, batchLimit, tensors, fixedBatchRows, onDone, onRow }, batch);
  };

  /** The rows of a piece for the target, and what the pieces of the span so far add up to. */
  const finished = async (
    open: OpenSpan,
  ): Promise<{ rows: () => OutputRows; totals: SpanTotals & { readonly profile: SpanProfile } }> => {
    const { before, scored, faults, features } = open;
    const output = await fittingRows(target, open);
    const own: SpanProfile =
      options.isUnprofiled === true
        ? noRows
        : {
            ...profileRows(output, profiled, features?.finish()),
            ...(options.slices === undefined ? {} : { slices: profileSlices(output, options.slices) }),
            ...(options.aggregate === undefined ? {} : { aggregates: await options.aggregate(output) }),
          };
    const totals = {
      keptRows: before.keptRows + open.keptRows,
      rowCount: before.rowCount + output.rowCount,
      reused: before.reused + open.rows.reused,
      faults,
      scored,
      profile: before.profile === undefined ? own : mergeProfiles(before.profile, own),
    };
    return {
      /** With the columns that come from neither input nor model. */
      rows: () => {
        const named = contract.lineage === true ? withLineage(output, options.lineage()) : output;
        return contract.numbered === true
          ? withRowNumbers(named, () => BigInt64Array.from(rowsOfOutput(open, output), BigInt))
          : named;
      },
      totals,
    };
  };
  const commitSpan = async (open: OpenSpan): Promise<void> => {
    const { span, scored } = open;
    await Promise.all(open.predictions);
    let sinceMs = stages.nowMs();
    const { rows, totals } = await finished(open);
    const rejects = await describeFaults(options.rejects, [...open.faults.values()]);
    const filtered = span.rowEnd - span.rowStart - totals.keptRows;
    const output = {
      rows: rows(),
      rejects,
      filtered,
      batchSize: sizer.rows,
      provider: providerOf(engine, scored),
      profile: profileText(totals.profile),
      onEncoded() {
        sinceMs = stages.took("encode", sinceMs);
      },
    };
    await engine.paid?.keep(); // what an answer cost is counted from what is kept
    const outcome = await target.commit(span, output);
    stages.took("commit", sinceMs);
    if (outcome === "committed") {
      record.addSpan({ ...totals, byTrees: scored.byTrees, rejects, filtered });
    }
    log.debug(`span ${span.index} ${outcome}`);
  };

  return {
    async score(open, batch) {
      const { done } = await batches.start(() => score(open, batch));
      open.predictions.push(done);
    },
    take(open, { predictions = [], hashed }, range) {
      const { from, to, row } = hashed === undefined ? range : takeHashed(open, hashed, range);
      let start = 0;
      for (const call of predictions) {
        // Rows [first, last) of this call of the model are among those that were asked for.
        const [first, last] = [Math.max(from - start, 0), Math.min(to - start, call.rowCount)];
        if (first < last) {
          if (first === 0) {
            called(call.packedRows, call.ms); // once for each call
          }
          predict(open, ...rowsOfCall(call, { first, last, rowStart: row + start + first - from }));
        }
        start += call.rowCount;
      }
    },
    async spill(open) {
      await Promise.all(open.predictions);
      const { rows, totals } = await finished(open);
      await target.spill?.(open.span, rows());
      return totals;
    },
    async commit(open) {
      await commits.start(() => commitSpan(open));
    },
    drained: () => commits.drained(),
    async settled() {
      await Promise.all([batches.settled(), commits.settled()]);
    },
  };
}

/** As a span's label names it; undefined: the engine's provider. */
function providerOf({ provider }: Engine, { byTrees, byRuntime }: ScoredRows): string | undefined {
  return byTrees === 0
    ? undefined
    : byRuntime === 0
      ? `${provider}, compiled trees`
      : `${provider}, partly compiled trees`;
}

type PredictedRows = Parameters<OpenSpan["rows"]["predict"]>[1];

/** Tensors that are not as long as the batch stay, to be refused. */
function rowsOfCall(
  call: Predictions,
  { first, last, rowStart }: { readonly first: number; readonly last: number; readonly rowStart: number },
): [Pick<Predictions, "outputs" | "byTrees">, PredictedRows] {
  const { outputs, packedRows } = call;
  const rowCount = last - first;
  return rowCount === call.rowCount || outputs.some(({ dims }) => dims[0] !== packedRows)
    ? [call, { rowStart, rowCount, packedRows }]
    : [
        { byTrees: call.byTrees, outputs: outputs.map((tensor) => sliceRows(tensor, first, last)) },
        { rowStart, rowCount, packedRows: rowCount },
      ];
}

/** Scored as far as they take no stored prediction. Returns which rows of those that were scored these are. */
function takeHashed({ reuse }: OpenSpan, hashed: HashedUnit, { from, to }: BatchRows): BatchRows {
  if (reuse === undefined) {
    throw new RangeError("hashes of rows came for a span that takes none");
  }
  const before = reuse.scoredCount;
  reuse.takeHashed(hashed, from, to);
  const first = from - (hashed.places === undefined ? 0 : countStored(hashed.places.subarray(0, from)));
  return { from: first, to: first + reuse.scoredCount - before, row: reuse.rowStart + before };
}

/** The number in the run of each row of a span's output. */
export function rowsOfOutput({ rows, rowInRun }: OpenSpan, { rowCount }: OutputRows): number[] {
  return rows.rowsAt(Array.from({ length: rowCount }, (_, index) => index)).map((row) => rowInRun(row));
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

/** The first row of a batch, numbered as rows of a piece are: with `reuse`, batches number those that are scored. */
function firstRow({ piece, reuse }: OpenSpan, { rowStart }: FeatureBatch): number {
  return reuse === undefined ? rowStart : piece.rowStart + reuse.scoredAt(rowStart - piece.rowStart);
}

export interface BatchOptions {
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

/** Scores rows of a span. A row that is set aside is not asked for where its answer would be paid. */
export async function scoreInto(open: OpenSpan, tools: BatchOptions, batch: FeatureBatch): Promise<void> {
  if (tools.engine.paid !== undefined && open.faults.has(open.rowInRun(firstRow(open, batch)))) {
    tools.onRow(batch.rowStart, { message: "" });
    return;
  }
  await scoreBatch(tools, batch);
}

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

export function tensorsByName(names: readonly string[], tensors: readonly Tensor[]): ReadonlyMap<string, Tensor> {
  const found = new Map<string, Tensor>();
  for (const [index, name] of names.entries()) {
    const tensor = tensors[index];
    if (tensor !== undefined) {
      found.set(name, tensor);
    }
  }
  return found;
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
