import { type Agreement, matchColumns, type MatchedColumns } from "../checks/agreement.js";
import type { OutputRows, SpanOutput } from "../columnar/types.js";
import type { Engine } from "../engine/port.js";
import type { Decoder } from "../formats/port.js";
import { runIdOf } from "../plan/identity.js";
import type { Plan, Span } from "../plan/plan.js";
import { spanCount, type Spans, spansOf } from "../plan/spans.js";
import type { JobContext, RowJoiner } from "../scoring/context.js";
import { openSliceReader, type SliceReader } from "../scoring/workers/slice-reader.js";
import { wholeInput } from "./input.js";
import { planRun } from "./planning.js";
import { readShards, type SeenShards } from "./read-shards.js";
import { predictedColumns } from "./second-job.js";
import type { Contract } from "../binding/contract.js";
import { createAttemptRecord } from "../report/attempt-record.js";
import { silentProgress } from "../report/progress/progress.js";
import { type BatchSizer, fixedSize, openBatchLimit, sizeWithin, timeRow } from "../scoring/batch-size.js";
import { type DecodedRows, readRanges, rowsRead } from "../scoring/read.js";
import { scorePieces } from "../scoring/score.js";
import type { FoundModel, ModelFile } from "../models/port.js";
import { JobError, reworded } from "../util/errors.js";

/** The comparison of two models on the same rows. A is `one`. */
export interface Comparison extends Agreement {
  /** The number of rows of the input, and of its first rows, which were read. */
  readonly input: number;
  readonly read: number;
  readonly one: ModelSpeed;
  readonly other: ModelSpeed;
  readonly apart: MatchedColumns["apart"];
  /** Where a row of the run is. */
  readonly placeOf: (row: number) => { readonly shard: string; readonly row: number } | undefined;
}

export interface ModelSpeed {
  /** The model as messages name it. */
  readonly name: string;
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly provider: string;
  readonly batchRows: number;
  /**
   * The speed of all sessions together, from the median time of a batch inside the model; undefined: no batch was
   * scored.
   */
  readonly rowsPerSecond: number | undefined;
}

interface CompareOptions {
  readonly one: ComparedModel;
  readonly other: ComparedModel;
  /** The limit of rows to score, from the beginning of the input. */
  readonly limit: number;
  /** The largest difference of two numbers that count as equal. */
  readonly tolerance: number;
}

/** The number of rows that one model scores before the other model's turn. */
const turnRows = 16_384;
/** The time inside each model to measure. A small input is scored several times, until this time is reached. */
const measuredMs = 300;
const mostRounds = 20;
/** The time after which no further round begins. */
const repeatedMs = 2000;

interface Tools {
  readonly decoder: Decoder;
  readonly reader: SliceReader;
  readonly shards: SeenShards;
  readonly listed: Parameters<typeof planRun>[1]["listed"];
  readonly limit: number;
}

interface OpenModel {
  readonly engine: Engine;
  readonly plan: Plan;
  readonly scorer: SpanScorer;
}

/**
 * Scores the first rows of the job's input with two models, in turns, and compares the predictions. Models on a GPU are
 * scored one after the other, because both may not fit into its memory, and a process can have only one session on WebGPU.
 */
export async function compareModels(job: JobContext, joiner: RowJoiner, options: CompareOptions): Promise<Comparison> {
  const context = comparingContext(job);
  const { limit, tolerance, one, other } = options;
  const listing = await wholeInput(context);
  await using decoder = await context.openDecoder(listing.folders);
  const shards = await readShards(context, decoder, listing.shards);
  await using reader = openSliceReader({ decoder, ...context.decodeWorkers, memory: context.memory });
  const tools: Tools = { decoder, reader, shards, listed: listing.shards, limit };
  const open = async (model: ComparedModel, engine: Engine): Promise<OpenModel> =>
    await openModel(context, tools, { model, engine });
  const add = async (side: "a" | "b", rows: ScoredSpan): Promise<void> => {
    await joiner.add(side, numberedRows(rows));
  };
  const { providers } = context.spec.engine;
  const scored: { readonly speed: ModelSpeed; readonly plan: Plan }[] = [];
  if (providers !== "auto" && providers[0] === "cpu") {
    await using first = await context.openEngine(one.model, { inputBytes: Number.POSITIVE_INFINITY });
    await using second = await context.openEngine(other.model, { inputBytes: Number.POSITIVE_INFINITY });
    const models = [await open(one, first), await open(other, second)] as const;
    await scoreTurns(context, { a: models[0].scorer, b: models[1].scorer }, models[0].plan, add);
    scored.push({ speed: speedOf(one, models[0]), plan: models[0].plan });
    scored.push({ speed: speedOf(other, models[1]), plan: models[1].plan });
  } else {
    for (const [side, model] of [["a", one] as const, ["b", other] as const]) {
      await using engine = await context.openEngine(model.model, { inputBytes: Number.POSITIVE_INFINITY });
      const opened = await open(model, engine);
      await scoreTurns(context, { [side]: opened.scorer }, opened.plan, add);
      scored.push({ speed: speedOf(model, opened), plan: opened.plan });
    }
  }
  const [ofOne, ofOther] = scored;
  if (ofOne === undefined || ofOther === undefined) {
    throw new Error("both models are scored");
  }
  const { compared, apart } = matchColumns(
    predictedColumns(ofOne.plan.contract),
    predictedColumns(ofOther.plan.contract),
  );
  const shown = ofOne.plan.contract.passthrough.map(({ column }) => column);
  const about = { input: shards.rows, read: Math.min(limit, shards.rows), placeOf: placesIn(ofOne.plan), apart };
  return {
    ...about,
    one: ofOne.speed,
    other: ofOther.speed,
    ...(await joiner.compare({ key: [rowNumber], isNumbered: true, columns: compared, shown, tolerance })),
  };
}

/** The column of the rows' numbers, by which they are joined. */
const rowNumber = "_row";

function numberedRows({ rowNumbers, rowCount, columns }: ScoredSpan): OutputRows {
  const data = BigInt64Array.from(rowNumbers, BigInt);
  const numbers = { kind: "fixed", elementsPerValue: 1, data, valid: undefined } as const;
  return { rowCount, columns: [{ name: rowNumber, type: "int64", column: numbers }, ...columns] };
}

function placesIn({ input: { shards } }: Plan): Comparison["placeOf"] {
  return (row) => {
    let first = 0;
    for (const shard of shards) {
      if (row < first + shard.rows) {
        return { shard: shard.uri, row: row - first };
      }
      first += shard.rows;
    }
    return undefined;
  };
}

/**
 * Returns the context for a comparison: rows that cannot be scored are left out, there are no checks, and a span is a
 * turn.
 */
function comparingContext(job: JobContext): JobContext {
  const { checks: _checks, reuse: _reuse, challenger: _challenger, ...spec } = job.spec;
  return {
    ...job,
    spec: {
      ...spec,
      on_bad_row: "reject",
      max_rejects: "100%",
      commit_rows: turnRows,
      output: { ...spec.output, lineage: false },
    },
  };
}

async function openModel(
  context: JobContext,
  { decoder, reader, shards, listed, limit }: Tools,
  { model, engine }: { readonly model: ComparedModel; readonly engine: Engine },
): Promise<OpenModel> {
  await engine.local?.opened();
  const runId = runIdOf(context.spec.name, context.spec.params, context.sha256);
  const loaded = Promise.resolve(engine);
  const input = { runId, listed, decoder, resolved: model, engine: loaded, shards };
  const { plan: whole } = await bindingCompared(model, () => planRun(context, input));
  const plan = { ...whole, input: { ...whole.input, rows: Math.min(whole.input.rows, limit) } };
  return { engine, plan, scorer: await openScorer(context, { plan, engine, decoder, reader }) };
}

type Scorers = Readonly<Partial<Record<"a" | "b", SpanScorer>>>;

/** Scores all spans with the models in turns. Each model first scores a span that is not measured. */
async function scoreTurns(
  { signal, nowMs }: JobContext,
  models: Scorers,
  plan: Plan,
  add: (side: "a" | "b", rows: ScoredSpan) => Promise<void>,
): Promise<void> {
  const spans = spanCount(plan);
  const scorers = Object.entries(models) as ["a" | "b", SpanScorer][];
  for (const [, scorer] of spans === 0 ? [] : scorers) {
    await scorer.score(0);
    scorer.restart();
  }
  const startedMs = nowMs();
  const isMeasured = (): boolean =>
    nowMs() - startedMs >= repeatedMs || scorers.every(([, scorer]) => scorer.time.ms >= measuredMs);
  for (let round = 0; round < mostRounds && (round === 0 || !isMeasured()); round += 1) {
    for (let index = 0; index < spans; index += 1) {
      // The models take turns at being first, so that neither always has the warmer cache.
      for (const [side, scorer] of (round + index) % 2 === 0 ? scorers : scorers.toReversed()) {
        signal.throwIfAborted();
        const rows = await scorer.score(index);
        if (round === 0) {
          await add(side, rows);
        }
      }
    }
  }
}

function speedOf({ model }: ComparedModel, { engine, scorer }: OpenModel): ModelSpeed {
  const { msPerRow = 0 } = scorer.time;
  const sessions = engine.local?.sessions ?? 1;
  return {
    name: model.name,
    sha256: model.sha256,
    sizeBytes: model.sizeBytes,
    provider: engine.provider,
    batchRows: scorer.batchRows,
    rowsPerSecond: msPerRow === 0 ? undefined : Math.round((sessions * 1000) / msPerRow),
  };
}

/** The rows of a span that a model scored. */
interface ScoredSpan extends OutputRows {
  /** The number of each row in the run. */
  readonly rowNumbers: Float64Array;
  readonly rejected: number;
}

/** Scores spans with one model, and measures how long the model takes. */
interface SpanScorer {
  readonly contract: Contract;
  readonly spans: Spans;
  /** The number of rows of a batch. */
  readonly batchRows: number;
  score(index: number): Promise<ScoredSpan>;
  /** Restarts the measurement of the model's time. */
  restart(): void;
  /** The model's time since the last restart. */
  readonly time: ModelTime;
}

interface ModelTime {
  /** The total time of all batches in all sessions. */
  readonly ms: number;
  /** The time per row of the median batch, which a few delayed batches do not change. */
  readonly msPerRow: number | undefined;
}

interface ScorerParts {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
  readonly reader: SliceReader;
}

/** The number of rows of a batch if the spec has no batch size. */
const defaultBatchRows = { cpu: 1024, others: 4096 };

/** Opens a scorer, whose sessions compile the model's trees first, as in a run of many rows. */
async function openScorer(context: JobContext, parts: ScorerParts): Promise<SpanScorer> {
  const { plan, engine } = parts;
  const { contract, model } = plan;
  const { batch_size: given } = context.spec.engine;
  const standard = engine.provider === "cpu" ? defaultBatchRows.cpu : defaultBatchRows.others;
  const batchRows = contract.fixedBatchRows ?? Math.min(plan.commitRows, given === "auto" ? standard : given);
  const batchLimit = await openBatchLimit(context, { engine, contract, modelSha256: model.sha256 });
  const timer = timingSize(batchRows);
  const sizer = contract.fixedBatchRows === null ? sizeWithin(batchLimit, timer.sizer) : timer.sizer;
  await timeRow(engine, contract); // asks each session for the outputs
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1);
  const spans = spansOf(plan);
  return {
    contract,
    spans,
    batchRows,
    score: (index) => scoreSpan(context, { ...parts, spans, sizer, batchLimit }, spans.at(index)),
    restart: timer.restart,
    get time() {
      return timer.time;
    },
  };
}

interface Timer {
  readonly sizer: BatchSizer;
  readonly restart: () => void;
  readonly time: ModelTime;
}

function timingSize(rows: number): Timer {
  let ms = 0;
  let perRow: number[] = [];
  return {
    sizer: {
      ...fixedSize(rows),
      took(batchRows, batchMs) {
        ms += batchMs;
        perRow.push(batchMs / batchRows);
      },
    },
    restart() {
      ms = 0;
      perRow = [];
    },
    get time() {
      return { ms, msPerRow: perRow.toSorted((one, other) => one - other)[Math.floor(perRow.length / 2)] };
    },
  };
}

type SpanParts = ScorerParts & {
  readonly spans: Spans;
  readonly sizer: BatchSizer;
  readonly batchLimit: Awaited<ReturnType<typeof openBatchLimit>>;
};

/** Scores a span on the path of all rows, and commits nothing. Rows that cannot be scored are left out. */
async function scoreSpan(context: JobContext, parts: SpanParts, span: Span): Promise<ScoredSpan> {
  const { plan, engine, decoder, reader, spans, sizer, batchLimit } = parts;
  const { contract } = plan;
  const { source, record, nowMs, dateMs } = context;
  const kept = new Uint8Array(span.rowEnd - span.rowStart);
  let output: SpanOutput | undefined;
  const uniform = plan.input.uniform === true;
  const feed = { source, decoder, reader, windowsAhead: 1, spans, projection: contract, uniform };
  await scorePieces(
    {
      ...context,
      progress: silentProgress,
      record: createAttemptRecord({ info: record.info, nowMs, dateMs }), // not of a run
    },
    {
      contract,
      engine,
      sizer,
      batchLimit,
      target: {
        commit: (_span, scored) => {
          output = scored;
          return Promise.resolve("adopted" as const);
        },
      },
      commits: 1,
      spanOf: () => span,
      lineage: () => ({ runId: plan.runId, modelSha256: plan.model.sha256, scoredAtMs: dateMs() }),
      rejects: { spans, decoder, source, contract, kept: "Nothing was written" },
      onReject: () => undefined,
      pieceBytes: Number.POSITIVE_INFINITY,
    },
    markKept(readRanges(feed, [span]), { span, kept }),
  );
  if (output === undefined) {
    throw new Error(`span ${span.index} was not scored`);
  }
  return numberRows(output, { plan, span, kept });
}

interface KeptRows {
  readonly span: Span;
  /** A mask of the span's rows: 1 for each row that passes `input.where`. */
  readonly kept: Uint8Array;
}

async function* markKept(pieces: AsyncIterable<DecodedRows>, { span, kept }: KeptRows): AsyncGenerator<DecodedRows> {
  for await (const piece of pieces) {
    const { batch, rowStart } = piece;
    const from = rowStart - span.rowStart;
    if (batch.selection === undefined) {
      kept.fill(1, from, from + rowsRead(batch));
    } else {
      for (const index of batch.selection.indices) {
        kept[from + index] = 1;
      }
    }
    yield piece;
  }
}

function numberRows(
  { rows, rejects }: SpanOutput,
  { plan, span, kept }: KeptRows & { readonly plan: Plan },
): ScoredSpan {
  let start = 0;
  const starts = new Map<string, number>();
  for (const shard of plan.input.shards) {
    starts.set(shard.uri, start);
    start += shard.rows;
  }
  for (const { shard, row } of rejects) {
    kept[(starts.get(shard) ?? 0) + row - span.rowStart] = 0;
  }
  const rowNumbers = new Float64Array(rows.rowCount);
  let count = 0;
  for (let index = 0; index < kept.length; index += 1) {
    if (kept[index] === 1) {
      rowNumbers[count] = span.rowStart + index;
      count += 1;
    }
  }
  if (count !== rows.rowCount) {
    throw new Error(`span ${span.index} has ${rows.rowCount} rows in place of ${count}`);
  }
  return { ...rows, rowNumbers, rejected: rejects.length };
}

/** A model on this machine. */
export interface ComparedModel extends FoundModel {
  readonly model: ModelFile;
  /** Whether an option names it: else it is the model of the spec. */
  readonly isGiven: boolean;
}

/**
 * Binds a model as the spec says. The bindings are those of the spec's own model, and must not be changed for one that an
 * option names.
 * @throws JobError CONTRACT with a hint that says where a model has bindings of its own
 */
async function bindingCompared<T>({ isGiven }: ComparedModel, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isGiven && error instanceof JobError && error.code === "CONTRACT") {
      throw reworded(error, {
        hint: "compare binds each model by model.inputs and model.outputs of the spec; for a model with other inputs or outputs: name it under challenger, with inputs and outputs of its own, and each run compares the two",
      });
    }
    throw error;
  }
}
