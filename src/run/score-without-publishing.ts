import type { RowRange, SpanOutput } from "../columnar/types.js";
import type { Engine } from "../engine/port.js";
import type { Decoder } from "../formats/port.js";
import type { Plan, Span } from "../plan/plan.js";
import { createAttemptRecord } from "../report/attempt-record.js";
import { silentProgress } from "../report/progress/progress.js";
import { openBatchLimit, sizeWithin } from "../scoring/batch-limit.js";
import { fixedSize } from "../scoring/batch-size.js";
import type { JobContext } from "../scoring/context.js";
import type { Reuse } from "../packing/row-reuse.js";
import { openRunReader } from "../scoring/run-reader.js";
import { scoreSpans } from "../scoring/score.js";

/** The number of rows of a batch if the spec has no batch size. */
const batchRows = 256;

interface UnpublishedScoringOptions {
  /** A plan that is not stored. */
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
  /** Whole spans, in order. */
  readonly ranges: readonly RowRange[];
  /** Rows that take a stored prediction; default: none. */
  readonly reuse?: Reuse | undefined;
  /** Bad rows count as the spec says, together with those that the run has rejected. Default: each is rejected. */
  readonly rejectedRows?: number | undefined;
}

/**
 * Scores spans as a run does, but publishes nothing and adds nothing to the attempt's record. Rows that cannot be
 * scored are rejected.
 * @param take called with each span, in any order
 */
export async function scoreWithoutPublishing(
  context: JobContext,
  { plan, engine, decoder, ranges, reuse, rejectedRows }: UnpublishedScoringOptions,
  take: (span: Span, output: SpanOutput) => void,
): Promise<void> {
  const { contract, model } = plan;
  const { batch_size: size } = context.spec.engine;
  const fixed = fixedSize(contract.fixedBatchRows ?? Math.min(plan.commitRows, size === "auto" ? batchRows : size));
  const batchLimit = await openBatchLimit(context, { engine, contract, modelSha256: model.sha256 });
  const sizer = contract.fixedBatchRows === null ? sizeWithin(batchLimit, fixed) : fixed;
  const { info } = context.record;
  const quiet: JobContext = {
    ...context,
    spec: rejectedRows === undefined ? { ...context.spec, on_bad_row: "reject", max_rejects: "100%" } : context.spec,
    progress: silentProgress,
    record: createAttemptRecord({ info, nowMs: context.nowMs, dateMs: context.dateMs }), // not of the run
  };
  await using reader = openRunReader(quiet, { plan, decoder, engine, sizer });
  const writer = {
    commit: (span: Span, output: SpanOutput) => {
      take(span, output);
      return Promise.resolve("adopted" as const);
    },
  };
  await scoreSpans(
    quiet,
    { plan, rejectedRows: rejectedRows ?? 0, writer, decoder, reader, engine, sizer, batchLimit, reuse },
    ranges,
  );
}
