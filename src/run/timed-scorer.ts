import type { Contract } from "../binding/contract.js";
import type { OutputRows, SpanOutput } from "../columnar/types.js";
import type { Engine } from "../engine/port.js";
import type { Decoder } from "../formats/port.js";
import type { Plan, Span } from "../plan/plan.js";
import { type Spans, spansOf } from "../plan/spans.js";
import { createAttemptRecord } from "../report/attempt-record.js";
import { silentProgress } from "../report/progress/progress.js";
import { openBatchLimit, sizeWithin } from "../scoring/batch-limit.js";
import { type BatchSizer, fixedSize } from "../scoring/batch-size.js";
import type { JobContext } from "../scoring/context.js";
import { type DecodedRows, readRanges, rowsRead } from "../scoring/read-ranges.js";
import { scorePieces } from "../scoring/score.js";
import { timeRow } from "../scoring/warm-up.js";
import type { SliceReader } from "../scoring/workers/slice-reader.js";

/** The rows of a span that a model scored. */
export interface ScoredSpan extends OutputRows {
  /** The number of each row in the run. */
  readonly rowNumbers: Float64Array;
  readonly rejected: number;
}

/** Scores spans with one model, and measures how long the model takes. */
export interface SpanScorer {
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

export interface ModelTime {
  /** The total time of all batches in all sessions. */
  readonly ms: number;
  /** The time per row of the median batch, which a few delayed batches do not change. */
  readonly msPerRow: number | undefined;
}

export interface ScorerParts {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
  readonly reader: SliceReader;
}

/** The number of rows of a batch if the spec has no batch size. */
const defaultBatchRows = { cpu: 1024, others: 4096 };

/** Opens a scorer, whose sessions compile the model's trees first, as in a run of many rows. */
export async function openScorer(context: JobContext, parts: ScorerParts): Promise<SpanScorer> {
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
