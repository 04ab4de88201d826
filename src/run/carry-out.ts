import type { Contract } from "../batch/contract.js";
import { blankInputs } from "../batch/packer.js";
import type { Decoder } from "../decode/port.js";
import type { Engine } from "../engine/port.js";
import { JobError } from "../errors.js";
import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import type { RunReport } from "../report/report.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { JobContext } from "./job.js";
import { createRejectBudget } from "./rejects.js";
import { scoreSpans, type ScoringTools } from "./score.js";
import { shareOf, type SpanRange, spansToSteal } from "./share.js";
import type { Scored } from "./span-pipeline.js";
import { verifyingSource } from "./verify.js";

/** Rows of a batch where neither spec nor model says: large enough for small models, small enough for the cache. */
const defaultBatchRows = 4096;

/** A run and what it is carried out with. */
export interface Standing {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly shardsUnplanned: number;
  /** The plan that this attempt made, whether or not it is the one that stands. */
  readonly fresh: Plan | undefined;
}

/** Scores this worker's share of what is not committed, and finishes the run when nothing is left of any share. */
export async function carryOut(context: JobContext, standing: Standing): Promise<RunReport> {
  const { spec, worker, nowMs, signal } = context;
  const { run, engine } = standing;
  const { plan } = standing.stored;
  const asked = spec.engine.batch_size === "auto" ? defaultBatchRows : spec.engine.batch_size;
  const batchRows = plan.contract.fixedBatchRows ?? Math.min(asked, plan.commitRows);
  const share = shareOf(spanCount(plan), worker);
  await run.begin({
    worker: worker.index,
    workers: worker.count,
    program: context.program,
    provider: engine.provider,
    batchSize: batchRows,
    onBadRow: spec.on_bad_row,
  });
  if (pendingRows(plan, run.committed, share) > 0) {
    signal.throwIfAborted();
    await warmUp(engine, plan.contract, plan.contract.fixedBatchRows ?? Math.min(batchRows, warmUpRows));
    signal.throwIfAborted();
  }
  const startedMs = nowMs();
  const scored = await tellingFailure(run, async () => {
    const done = await scoreShares(context, { ...standing, batchRows, share });
    signal.throwIfAborted();
    await finishWhenWhole(context, plan, run);
    return done;
  });
  const committed = countCommitted(run);
  return {
    runId: plan.runId,
    status: committed === spanCount(plan) ? "complete" : "partial",
    rowsPlanned: plan.input.rows,
    rowsScored: scored.rows,
    rowsRejected: scored.rejected,
    rowsFiltered: scored.filtered,
    spansPlanned: spanCount(plan),
    spansCommitted: committed,
    spansResumed: committed - scored.spansCommitted,
    shardsUnplanned: standing.shardsUnplanned,
    seconds: (nowMs() - startedMs) / 1000,
    batchSize: batchRows,
    provider: engine.provider,
    output: context.sink.target,
  };
}

async function finishWhenWhole({ spec, log }: JobContext, plan: Plan, run: RunSink): Promise<void> {
  if (countCommitted(run) < spanCount(plan)) {
    return;
  }
  if (spec.on_bad_row === "reject") {
    // Of all workers together: each saw its own and those that were there before it.
    createRejectBudget(spec.max_rejects, plan.input.rows, run.rejectedRows);
  }
  await run.finish();
  log.debug(`finished run ${plan.runId}`);
}

/** Those who look at the target should see why an attempt ended there. */
async function tellingFailure<T>(run: RunSink, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError) {
      await run.failed(error);
    }
    throw error;
  }
}

/** The own share, then, with `--steal`, what others leave. */
async function scoreShares(
  context: JobContext,
  { stored, run, decoder, engine, fresh, batchRows, share }: Standing & { batchRows: number; share: SpanRange },
): Promise<Scored> {
  const { worker, progress, signal, log } = context;
  const { plan } = stored;
  const source = verifyingSource(context, { plan, decoder, fresh });
  const tools: ScoringTools = { plan, run, decoder, engine, batchRows };
  progress.start(pendingRows(plan, run.committed, share));
  try {
    const scored = await scoreSpans({ ...context, source }, tools, share);
    if (worker.count === 1) {
      return scored;
    }
    await run.refresh();
    const total = { ...scored };
    for (let next = stolen(context, run); next !== undefined; next = stolen(context, run)) {
      signal.throwIfAborted();
      log.info(`taking over spans ${next.from} to ${next.to - 1}`);
      const more = await scoreSpans({ ...context, source }, tools, next);
      total.rows += more.rows;
      total.rejected += more.rejected;
      total.filtered += more.filtered;
      total.spansCommitted += more.spansCommitted;
      await run.refresh();
    }
    return total;
  } finally {
    progress.stop();
  }
}

function stolen({ steal, worker }: JobContext, { committed }: RunSink): SpanRange | undefined {
  return steal ? spansToSteal(committed, worker) : undefined;
}

/** Enough to lay out memory and page code in, and soon done with heavy models. */
const warmUpRows = 256;

/** The first call of a model costs more than the others: memory is laid out, code paged in. */
async function warmUp(engine: Engine, contract: Contract, batchRows: number): Promise<void> {
  const outputs = [...new Set(contract.outputs.map(({ tensor }) => tensor))];
  const calls = Array.from({ length: engine.concurrency }, () =>
    engine.run({ inputs: blankInputs(contract, batchRows), outputs }),
  );
  await Promise.allSettled(calls); // a model may refuse zeros; that says nothing about its rows
}

export function countCommitted(run: RunSink): number {
  return run.committed.reduce((sum, flag) => sum + flag, 0);
}

function pendingRows(plan: Plan, committed: Uint8Array, { from, to }: SpanRange): number {
  let rows = 0;
  for (let index = from; index < to; index += 1) {
    if (committed[index] === 0) {
      rows += Math.min(plan.commitRows, plan.input.rows - index * plan.commitRows);
    }
  }
  return rows;
}
