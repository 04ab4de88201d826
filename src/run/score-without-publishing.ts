import type { RowRange, SpanOutput } from "../columns/types.js";
import type { Engine } from "../models/engine.js";
import type { Decoder } from "../formats/format.js";
import type { Plan, Span } from "./plan/plan.js";
import { createAttemptRecord } from "../report/attempt-record.js";
import { silentProgress } from "../report/progress.js";
import { type BatchSizer, fixedSize, openBatchLimit, sizeWithin } from "../flow/batch-size.js";
import type { OpenedJob } from "../flow/opened-job.js";
import { type SpanScorer, openSpanScorer } from "../flow/score.js";
import type { NamedTensor } from "../columns/tensor.js";
import { rowsOfSpans } from "./plan/spans.js";

const batchRows = 256;

interface UnpublishedRun {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
  /** Says how many rows a batch has; default: as many as the spec says. */
  readonly sizer?: BatchSizer | undefined;
  /** Whether bad rows count as the spec says; default: each is rejected. */
  readonly countsRejects?: boolean | undefined;
}

type TakeSpan = (span: Span, output: SpanOutput) => void;

/** Opens what scores spans as a run does, but publishes nothing and adds nothing to the attempt's record. */
export async function openUnpublished(
  opened: OpenedJob,
  { plan, engine, decoder, sizer, countsRejects = false }: UnpublishedRun,
  take: TakeSpan,
): Promise<SpanScorer> {
  const { job, models, attempt, reporter } = opened;
  const { contract, model } = plan;
  const { batch_size: size } = job.spec.engine;
  const given =
    sizer ?? fixedSize(contract.fixedBatchRows ?? Math.min(plan.commitRows, size === "auto" ? batchRows : size));
  const batchLimit = await openBatchLimit(models.batchLimits, reporter.log, {
    engine,
    contract,
    modelSha256: model.sha256,
  });
  const { info } = reporter.record;
  const record = createAttemptRecord({ info, nowMs: attempt.nowMs, dateMs: attempt.dateMs }); // not of the run
  const quiet: OpenedJob = {
    ...opened,
    job: countsRejects ? job : { ...job, spec: { ...job.spec, on_bad_row: "reject", max_rejects: "100%" } },
    reporter: { ...reporter, progress: silentProgress, record },
  };
  const writer = {
    commit: (span: Span, output: SpanOutput) => {
      take(span, output);
      return Promise.resolve("adopted" as const);
    },
  };
  const within = contract.fixedBatchRows === null ? sizeWithin(batchLimit, given) : given;
  return openSpanScorer(quiet, { plan, writer, decoder, engine, sizer: within, batchLimit });
}

/** Scores rows as a run does, and publishes nothing. @param ranges whole spans, in order */
export async function scoreWithoutPublishing(
  opened: OpenedJob,
  run: UnpublishedRun & { readonly ranges: readonly RowRange[]; readonly rejectedRows?: number | undefined },
  take: TakeSpan,
): Promise<void> {
  await using scorer = await openUnpublished(opened, { ...run, countsRejects: run.rejectedRows !== undefined }, take);
  await scorer.score(run.ranges, run.rejectedRows ?? 0);
}

/** The rows of a sample are read in so many places. */
const places = 20;

/** Rows spread over a table, as the engine takes them. */
export interface RowSample {
  /** The inputs of each row that can be scored. */
  readonly rows: readonly (readonly NamedTensor[])[];
  readonly read: number;
  /** The same for each place of the table, in the order of `rows`. */
  readonly places: readonly SampledPlace[];
}

/** Neighbouring rows of a sample: how many were read, and how many of them can be scored. */
export interface SampledPlace {
  readonly rows: number;
  readonly read: number;
}

interface SampleOptions {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
  /** Neighbouring rows of the run that the sample is taken from. */
  readonly ranges: readonly RowRange[];
  readonly count: number;
}

/** Reads rows that are spread over ranges of a run. Nothing is asked. */
export async function sampleRows(
  opened: OpenedJob,
  { plan, engine, decoder, ranges, count }: SampleOptions,
): Promise<RowSample> {
  const size = Math.ceil(count / places);
  const blocks = { ...plan, commitRows: size };
  const rows: (readonly NamedTensor[])[] = [];
  const collecting: Engine = {
    ...engine,
    concurrency: 1, // rows come in their order
    run({ inputs }) {
      rows.push(inputs);
      return Promise.resolve({ kind: "failed", message: "", inputs });
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
  const sampled: SampledPlace[] = [];
  for (const block of blocksIn(ranges, size)) {
    const range = rowsOfSpans(blocks, { from: block, to: block + 1 });
    const before = rows.length;
    let read = 0;
    await scoreWithoutPublishing(
      opened,
      { plan: blocks, engine: collecting, decoder, ranges: [range] },
      ({ rowStart, rowEnd }) => {
        read += rowEnd - rowStart;
      },
    );
    sampled.push({ rows: rows.length - before, read });
  }
  return { rows, read: sampled.reduce((sum, place) => sum + place.read, 0), places: sampled };
}

/** Blocks of rows in the ranges, evenly spread, as numbers of spans of `size` rows; all of them where there are few. */
function blocksIn(ranges: SampleOptions["ranges"], size: number): number[] {
  const all = ranges.reduce((sum, { rowStart, rowEnd }) => sum + rowEnd - rowStart, 0);
  const found = new Set<number>();
  if (all <= places * size) {
    for (const { rowStart, rowEnd } of ranges) {
      for (let block = Math.floor(rowStart / size); block * size < rowEnd; block += 1) {
        found.add(block);
      }
    }
    return [...found];
  }
  let before = 0;
  let place = 0;
  for (const { rowStart, rowEnd } of ranges) {
    const length = rowEnd - rowStart;
    for (let at = Math.floor((all * place) / places); place < places && at < before + length; ) {
      found.add(Math.floor((rowStart + at - before) / size));
      place += 1;
      at = Math.floor((all * place) / places);
    }
    before += length;
  }
  return [...found];
}
