import type { Decoder } from "../decode/port.js";
import type { Engine } from "../engine/port.js";
import { JobError } from "../errors.js";
import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import { count, type RunReport } from "../report/report.js";
import type { AttemptFacts, RunSink, StoredPlan } from "../sink/port.js";
import type { BatchSizer } from "./batch-size.js";
import type { JobContext } from "./job.js";
import { createRejectBudget } from "./rejects.js";
import { scoreSpans, type ScoringTools } from "./score.js";
import { shareOf, type SpanRange, spansToSteal } from "./share.js";
import type { Scored } from "./span-pipeline.js";
import { verifyingSource } from "./verify.js";
import { warmUp } from "./warm-up.js";

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
  const { worker, nowMs, signal } = context;
  const { run, engine } = standing;
  const { plan } = standing.stored;
  const share = shareOf(spanCount(plan), worker);
  takeUpRejects(context, plan, run);
  await run.begin(attemptFacts(context, engine.provider));
  signal.throwIfAborted();
  const sizer = await warmUp(context, { plan, engine, rows: pendingRows(plan, run.committed, share) });
  signal.throwIfAborted();
  const startedMs = nowMs();
  return await tellingFailure(run, async () => {
    const scored = await scoreShares(context, { ...standing, sizer, share });
    return await conclude(context, standing, {
      scored,
      startedMs,
      sessions: engine.sessions,
      batchSize: sizer.rows,
      provider: engine.provider,
    });
  });
}

/** A run of which this attempt has nothing to score. */
export type IdleStanding = Pick<Standing, "stored" | "run" | "shardsUnplanned">;

/** Whether all of this worker's share is committed, and there is nothing that it should take over from others. */
export function isIdle(
  { worker, steal }: JobContext,
  { stored: { plan }, run }: Omit<IdleStanding, "shardsUnplanned">,
): boolean {
  const share = shareOf(spanCount(plan), worker);
  return pendingRows(plan, run.committed, steal ? { from: 0, to: spanCount(plan) } : share) === 0;
}

/** Finishes the run when nothing is left of any share. Needs neither model nor shards: they may be gone by now. */
export async function carryOutIdle(context: JobContext, standing: IdleStanding): Promise<RunReport> {
  const { stored, run } = standing;
  takeUpRejects(context, stored.plan, run);
  // Nothing will be committed, so that no part will name a provider.
  await run.begin(attemptFacts(context, "none"));
  const startedMs = context.nowMs();
  return await tellingFailure(run, async () => {
    if (countCommitted(run) < spanCount(stored.plan)) {
      await run.refresh();
    }
    const scored = { rows: 0, rejected: 0, filtered: 0, spansCommitted: 0, engineMs: 0 };
    return await conclude(context, standing, { scored, startedMs, sessions: 0, batchSize: null, provider: null });
  });
}

interface Done {
  readonly scored: Scored;
  readonly startedMs: number;
  readonly sessions: number;
  readonly batchSize: number | null;
  readonly provider: string | null;
}

async function conclude(
  context: JobContext,
  { stored: { plan }, run, shardsUnplanned }: IdleStanding,
  { scored, startedMs, sessions, batchSize, provider }: Done,
): Promise<RunReport> {
  context.signal.throwIfAborted();
  const committed = countCommitted(run);
  const complete = committed === spanCount(plan);
  if (complete) {
    // Of all workers together: each saw its own and those that were there before it.
    checkRejects(context, plan, run);
    await run.finish();
    context.log.debug(`finished run ${plan.runId}`);
  }
  const tookMs = context.nowMs() - startedMs;
  return {
    runId: plan.runId,
    status: complete ? "complete" : "partial",
    rowsPlanned: plan.input.rows,
    rowsScored: scored.rows,
    rowsRejected: scored.rejected,
    rowsFiltered: scored.filtered,
    spansPlanned: spanCount(plan),
    spansCommitted: committed,
    spansResumed: committed - scored.spansCommitted,
    shardsUnplanned,
    seconds: tookMs / 1000,
    batchSize,
    provider,
    engineBusy: sessions === 0 ? null : scored.engineMs / (sessions * tookMs),
    output: context.sink.target,
  };
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

/**
 * Rows that were set aside count whatever this attempt does with bad rows: another attempt may have set them aside.
 * @throws JobError TOO_MANY_REJECTS
 */
function checkRejects({ spec }: JobContext, plan: Plan, run: RunSink): void {
  createRejectBudget(spec.max_rejects, plan.input.rows, run.rejectedRows);
}

/** Rows that earlier attempts set aside: too many of them are told before anything is scored. */
function takeUpRejects(context: JobContext, plan: Plan, run: RunSink): void {
  checkRejects(context, plan, run);
  if (context.spec.on_bad_row === "fail" && run.rejectedRows > 0) {
    context.log.warn(
      `${count(run.rejectedRows, "row")} stay set aside, as an earlier attempt with on_bad_row: reject committed them`,
    );
  }
}

function attemptFacts({ spec, worker, program }: JobContext, provider: string): AttemptFacts {
  return {
    worker: worker.index,
    workers: worker.count,
    program,
    provider,
    onBadRow: spec.on_bad_row,
  };
}

/** The own share, then, with `--steal`, what others leave. */
async function scoreShares(
  context: JobContext,
  { stored, run, decoder, engine, fresh, sizer, share }: Standing & { sizer: BatchSizer; share: SpanRange },
): Promise<Scored> {
  const { worker, progress, signal, log } = context;
  const { plan } = stored;
  const source = verifyingSource(context, { plan, decoder, fresh });
  const tools: ScoringTools = { plan, run, decoder, engine, sizer };
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
      total.engineMs += more.engineMs;
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
