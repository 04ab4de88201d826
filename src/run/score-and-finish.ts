import type { Decoder } from "../formats/port.js";
import type { Engine, ServerTraffic } from "../engine/port.js";
import type { Plan } from "../plan/plan.js";
import { shareOf, spanCount, type SpanRange, spansOf, spansToSteal } from "../plan/spans.js";
import type { EngineInfo } from "../report/attempt-record.js";
import { count, type RunReport, type ServerReport, type SpendingReport } from "../report/report.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { Source } from "../storage/port.js";
import { type BatchSizer, measureEngine, treesText } from "../scoring/batch-size.js";
import type { JobContext } from "../scoring/context.js";
import { aggregatesOf } from "./checked-output.js";
import { attemptFacts, countCommitted, recordLateness } from "./attempt.js";
import { scoreWithSecond } from "./second-job.js";
import { checkRejects, conclude, unlessDiscarded } from "./conclude.js";
import { both } from "./model.js";
import { askAhead, beginPaying, spendingReport } from "./paid.js";
import { openReuse } from "./reuse.js";
import { openSpanScorer, type ScoringOptions } from "../scoring/score.js";
import { pendingRanges } from "../scoring/read.js";
import { verifyingSource } from "./read-shards.js";
import { rowsOf } from "../publish/span-record.js";

/** A run, with the decoder and the engine that carry it out. */
interface RunParts {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly shardsUnplanned: number;
  /** Digests by URI that this attempt computed while it planned; empty without `input.verify: full`. */
  readonly digests: ReadonlyMap<string, string>;
}

/**
 * Scores the uncommitted spans of this worker's share, and finishes the run if all spans are committed then. Stops at the
 * next commit if a person discards the run.
 */
export async function scoreAndFinish(context: JobContext, parts: RunParts): Promise<RunReport> {
  return await unlessDiscarded(context, parts, () => scoreShare(context, parts));
}

async function scoreShare(context: JobContext, parts: RunParts): Promise<RunReport> {
  const { worker, signal, record } = context;
  const { run, engine, decoder, digests } = parts;
  const { plan } = parts.stored;
  const source = verifyingSource(context, { plan, decoder, digests });
  const share = shareOf(spanCount(plan), worker);
  recordLateness(context, plan.runId);
  takeUpRejects(context, plan, run);
  const pending = pendingRows(plan, run.spans, share);
  const [writer, { batchLimit, sizer }] = await both(
    run.begin(attemptFacts(context, engine.provider)),
    measureEngine(context, plan, { engine, rows: pending }),
  );
  signal.throwIfAborted();
  await using paying = await beginPaying(context, { engine, run, runId: plan.runId });
  record.startScoring(engineFacts(engine, sizer));
  await askAhead(context, { plan, run, engine, decoder, source, share });
  await using aggregates = await aggregatesOf(context, plan);
  await scoreShares(context, { ...parts, writer, sizer, batchLimit, aggregates, share, source });
  await paying?.settle();
  await scoreWithSecond(context, parts);
  return await conclude(context, { ...parts, writer });
}

function engineFacts({ provider, concurrency, local, traffic, paid }: Engine, sizer: BatchSizer): EngineInfo {
  const { missing = [], sessions = concurrency } = local ?? {};
  const trees = (): string | null => treesText(local?.trees() ?? { kind: "none" });
  const server = traffic === undefined ? undefined : (): ServerReport => serverReport(traffic);
  const spending = paid === undefined ? undefined : (): SpendingReport => spendingReport(paid.spending);
  return { provider, missing, sessions, trees, batchRows: () => sizer.rows, server, spending };
}

function serverReport({ requests, retries, inFlight: mostInFlight, servers, ...traffic }: ServerTraffic): ServerReport {
  const urls = servers.map((one) => ({
    url: one.url,
    requests: one.requests,
    failures: one.failures,
    mostInFlight: one.inFlight,
    latencyMs: latencyOf(one),
  }));
  return { requests, retries, mostInFlight, latencyMs: latencyOf(traffic), urls };
}

function latencyOf({ latencyMs }: Pick<ServerTraffic, "latencyMs">): ServerReport["latencyMs"] {
  return { p50: latencyMs(0.5), p95: latencyMs(0.95), p99: latencyMs(0.99) };
}

/** A run without spans for this attempt to score. */
export type IdleRun = Pick<RunParts, "stored" | "run" | "shardsUnplanned">;

/** Whether this worker's share is committed and, with `--steal`, the shares of others are too. */
export function isIdle(
  { worker, steal }: JobContext,
  { stored: { plan }, run }: Omit<IdleRun, "shardsUnplanned">,
): boolean {
  const share = shareOf(spanCount(plan), worker);
  return pendingRows(plan, run.spans, steal ? { from: 0, to: spanCount(plan) } : share) === 0;
}

/** Finishes the run if all spans are committed. Needs neither model nor shards, which may be gone. */
export async function finishIdleRun(context: JobContext, parts: IdleRun): Promise<RunReport> {
  return await unlessDiscarded(context, parts, () => finishCommitted(context, parts));
}

async function finishCommitted(context: JobContext, parts: IdleRun): Promise<RunReport> {
  const { stored, run } = parts;
  takeUpRejects(context, stored.plan, run);
  // Nothing will be committed, so that no part will name a provider.
  const writer = await run.begin(attemptFacts(context, "none"));
  context.record.startScoring();
  if (countCommitted(run) < spanCount(stored.plan)) {
    await run.refresh();
  }
  await scoreWithSecond(context, parts);
  return await conclude(context, { ...parts, writer });
}

/** Checks the rejected rows of earlier attempts before anything is scored. */
function takeUpRejects(context: JobContext, plan: Plan, run: RunSink): void {
  checkRejects(context, plan, run);
  const { rejected } = rowsOf(run.spans);
  if (context.spec.on_bad_row === "fail" && rejected > 0) {
    context.log.warn(
      `${count(rejected, "row")} stay rejected: an earlier attempt with on_bad_row: reject committed them`,
    );
  }
}

type ScoringParts = Pick<ScoringOptions, "writer" | "sizer" | "batchLimit" | "aggregates">;

/** Scores this worker's share, then, with `--steal`, spans that other workers have not committed. */
async function scoreShares(
  context: JobContext,
  {
    stored,
    share,
    source,
    ...scoring
  }: RunParts & ScoringParts & { readonly share: SpanRange; readonly source: Source },
): Promise<void> {
  const { plan } = stored;
  const { worker, progress, signal, log } = context;
  const { run } = scoring;
  const reuse = await openReuse(context, { plan, run, share });
  await using scorer = openSpanScorer({ ...context, source }, { plan, reuse, ...scoring });
  const score = async (range: SpanRange): Promise<void> => {
    await scorer.score(pendingRanges(spansOf(plan), run.spans, range), rowsOf(run.spans).rejected);
    requireCommitted(plan, run, range);
  };
  progress.start(pendingRows(plan, run.spans, share));
  try {
    await score(share);
    if (worker.count === 1) {
      return;
    }
    await run.refresh();
    for (let next = stolen(context, plan, run); next !== undefined; next = stolen(context, plan, run)) {
      signal.throwIfAborted();
      log.info(`taking over spans ${next.from} to ${next.to - 1}`);
      await score(next);
      await run.refresh();
    }
  } finally {
    progress.stop();
  }
}

function stolen({ steal, worker }: JobContext, plan: Plan, { spans }: RunSink): SpanRange | undefined {
  return steal ? spansToSteal(spanCount(plan), spans, worker) : undefined;
}

/** Throws if a span of a share that was scored is not committed: that would be a bug. */
function requireCommitted(plan: Plan, run: RunSink, share: SpanRange): void {
  const missing = pendingRows(plan, run.spans, share);
  if (missing > 0) {
    throw new Error(
      `all rows of spans ${share.from} to ${share.to - 1} came, and ${missing} of them are not committed`,
    );
  }
}

function pendingRows(plan: Plan, committed: RunSink["spans"], { from, to }: SpanRange): number {
  let rows = 0;
  for (let index = from; index < to; index += 1) {
    if (!committed.has(index)) {
      rows += Math.min(plan.commitRows, plan.input.rows - index * plan.commitRows);
    }
  }
  return rows;
}
