import { assertNever, firstError, JobError, orError } from "../base/errors.js";
import { count } from "../base/shown-numbers.js";
import { type BatchSizer, measureEngine, treesText } from "../flow/batch-size.js";
import type { Attempt, Log, OpenedJob } from "../flow/opened-job.js";
import { pendingRanges } from "../flow/read.js";
import { openSpanScorer, type ScoringOptions } from "../flow/score.js";
import type { Decoder } from "../formats/format.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { Engine, ServerTraffic } from "../models/engine.js";
import type { Model } from "../models/places/place.js";
import type { EngineInfo } from "../report/attempt-record.js";
import type { RunReport, ServerReport, SpendingReport } from "../report/report.js";
import type { Listing } from "../sources/source.js";
import type { RunSink, Sink, StoredPlan } from "../targets/target.js";
import {
  alreadyComplete,
  attemptFacts,
  isWhole,
  recordBegun,
  recordingFailure,
  recordLateness,
  runFacts,
} from "./attempt.js";
import { aggregatesOf, checkGolden, pinGolden, requireCheckedColumns, requirePinned } from "./checks.js";
import {
  approveErasure,
  checkRejects,
  conclude,
  isRefusal,
  publishApproved,
  refusePlannedErasure,
  reportDecided,
  unfinishedErasure,
  unlessDiscarded,
} from "./conclude.js";
import { digestsIfThere, digestsOf, modelOfPlan, openPinnedModel, plannedModel } from "./find-model.js";
import { listInput, listPlanned, mayNotBeReady, readShards, verifyingInput, warnOfUnmatched } from "./input.js";
import { runStep, type RunStep, supersededBy } from "./lifecycle/lifecycle.js";
import { countSpans } from "./lifecycle/span-record.js";
import { beginLoading, both, type LoadingEngine } from "./model.js";
import { askAhead, beginPaying, spendingReport } from "./paid.js";
import { compareTargets, reuseShards } from "./plan/compare.js";
import { versionText } from "./plan/lake-tables.js";
import type { Changes, Plan, RunId } from "./plan/plan.js";
import { shareOf, spanCount, type SpanRange, spansOf, spansToSteal } from "./plan/spans.js";
import { planRun } from "./planning.js";
import { checkPins, checkSameSpec, hasOnlyFailed, latestRun, pendingRows } from "./resume.js";
import { openReuse } from "./reuse.js";
import { abandon, claimRange, runJob, startAfter } from "./run.js";
import { scoreWithSecond } from "./second-job.js";

/* What an attempt does with a run that is not over: it plans, scores, judges and publishes. */

/** What an attempt that resumes a run needs to know. */
export interface Resumable {
  /** undefined: no row is left to score, so that it is not needed. */
  readonly model: Model | undefined;
  readonly shardsUnplanned: number;
}

/**
 * Checks that spec, model, tokenizers, input, golden rows of an unfinished run are those of its plan.
 * @throws JobError PLAN_CHANGED, MODEL_CHANGED, INPUT_CHANGED (66), those of loading the model, and SPEC_INVALID for limits
 * that may have changed
 */
export async function checkResumable(opened: OpenedJob, run: RunSink, listing: Listing): Promise<Resumable> {
  const { job, sink, input, models, attempt, reporter } = opened;
  const { plan } = run;
  const share = attempt.steal ? { from: 0, to: spanCount(plan) } : shareOf(spanCount(plan), attempt.worker);
  // Answers of a language model are counted, and compared, before the run is finished.
  const isIdle = plan.request.prompt === undefined && pendingRows(run, share) === 0;
  checkSameSpec(job, sink, run); // before the model is loaded, so that a change is reported at once
  requireCheckedColumns(job, plan.contract);
  const planned = plannedModel(job.spec, plan);
  const model = isIdle ? undefined : (await openPinnedModel(job, models, planned)).model;
  const digests = model === undefined ? await digestsIfThere(job, models, planned) : digestsOf(model);
  const shardsUnplanned = checkPins(job, sink, reporter.log, run, { listed: listing.shards, ...digests });
  requirePinned(plan, isIdle ? undefined : await pinGolden(job, input, attempt.signal));
  return { model, shardsUnplanned };
}

type Begun =
  | { readonly report: RunReport }
  /** Another attempt has planned that these rows are read. */
  | { readonly range: Pick<Changes, "from" | "to"> }
  /** A person has approved the held run whose place this one was to take. */
  | "approved";

/** Plans a run of the files that are listed, and carries it out. @param held as `startRun` of run.ts takes it */
export async function planAndScore(opened: OpenedJob, runId: RunId, listing: Listing, held?: RunSink): Promise<Begun> {
  const { job, sink, input, models, attempt, reporter } = opened;
  const { log, record } = reporter;
  warnOfUnmatched(log, listing);
  const resolved = await openPinnedModel(job, models);
  await using decoder = await input.openDecoder(listing.folders);
  const listed = listing.shards;
  const shards = mayNotBeReady(job.spec, listed) ? await readShards(opened, decoder, listed) : undefined;
  await using loading = beginLoading(models, { listing, model: resolved.model });
  const { table, changes } = listing;
  const planning = { runId, shards, listed, table, changes, resolved, decoder, engine: loading.engine };
  const { plan } = await planRun(opened, planning);
  // Before the plan is stored: a run that was never planned may be repeated with another model or file.
  await checkGolden(opened, { plan, engine: await loading.engine });
  await (input.chain?.to === null ? sink.makePlace(plan) : undefined);
  const range = await claimRange(input.chain, attempt, plan);
  if (range !== undefined) {
    return { range };
  }
  const stored = await storePlan(sink, attempt, plan, held);
  if (stored.plan.runId === held?.plan.runId) {
    return "approved";
  }

  // Another attempt may have stored its plan first; that plan counts.
  refusePlannedErasure(stored.plan);
  requirePinned(stored.plan, plan.checks?.golden);
  const shardCount = count(plan.input.shards.length, "shard");
  const spans = `${count(spanCount(plan), "span")} of up to ${count(plan.commitRows, "row")}`;
  const of = table === undefined ? "" : ` of table ${table.uri}, ${versionText(table)}`;
  log.info(`planned run ${plan.runId}: ${count(plan.input.rows, "row")} of ${shardCount}${of}, in ${spans}`);
  const run = await sink.open({ ...stored, plan: reuseShards(stored.plan, plan.input.shards) });
  record.setRun(runFacts(run));
  const report = await recordingFailure(sink, attempt, run, async () => {
    checkSameSpec(job, sink, run);
    const model = await modelOfPlan(job, models, run.plan, resolved.model);
    await using reloading =
      model === resolved.model ? undefined : await reload(opened, run.plan, { listing, model, before: loading });
    const counted = await listPlanned(job, input, run.plan, listing);
    const shardsUnplanned = checkPins(job, sink, log, run, { listed: counted.shards, ...digestsOf(model) });
    // The run that this command was to open is there: it is not to open another one after it.
    const step = runStep(latestRun(run), false);
    if (step.kind === "compare with plan") {
      return await alreadyComplete(job, sink, reporter, run); // the other attempt has completed it
    }
    if (step.kind !== "score") {
      return await takeStep(opened, run, step);
    }
    const engine = await (reloading ?? loading).engine;
    return await scoreAndFinish(opened, run, { engine, decoder, shardsUnplanned, digests: digestsIn(plan) });
  });
  return { report };
}

async function reload(
  opened: OpenedJob,
  plan: Plan,
  tools: { readonly listing: Listing; readonly model: Model; readonly before: LoadingEngine },
): Promise<LoadingEngine> {
  const { models } = opened;
  await tools.before[Symbol.asyncDispose](); // a process can have one session on a GPU at most
  const loading = beginLoading(models, tools);
  try {
    await checkGolden(opened, { plan, engine: await loading.engine });
    return loading;
  } catch (error) {
    await loading[Symbol.asyncDispose]();
    throw error;
  }
}

/** Scores what is left of a run; or opens the next run if its plan no longer holds, and that was asked for. */
export async function resumeScoring(opened: OpenedJob, run: RunSink): Promise<RunReport> {
  const { job, sink, input, models, attempt, reporter } = opened;
  const { plan } = run;
  let listing: Listing;
  let resumable: Resumable;
  try {
    listing = await listInput(job, input, plan);
    resumable = await checkResumable(opened, run, listing);
  } catch (thrown) {
    const error = firstError(thrown);
    const isChange = error instanceof JobError && error.exitCode === 66;
    if (isChange && (attempt.newRun || (await hasOnlyFailed(job.spec, sink, attempt, run)))) {
      return await abandon(opened, plan.runId, error);
    }
    throw error;
  }

  reporter.log.info(`resuming run ${plan.runId}: ${run.spans.size} of ${count(spanCount(plan), "span")} committed`);
  const { model, shardsUnplanned } = resumable;
  if (model === undefined) {
    return await finishIdleRun(opened, run, shardsUnplanned);
  }
  await (run.spans.size === 0 ? recordBegun(sink, attempt, plan.runId) : undefined);
  await using loading = beginLoading(models, { listing, model });
  await using decoder = await input.openDecoder(listing.folders);
  const engine = await loading.engine;
  await checkGolden(opened, { plan, engine });
  return await scoreAndFinish(opened, run, { decoder, engine, shardsUnplanned, digests: new Map() });
}

export async function takeStep(
  opened: OpenedJob,
  run: RunSink,
  step: Exclude<RunStep, { kind: "score" | "compare with plan" }>,
): Promise<RunReport> {
  const { job } = opened;
  switch (step.kind) {
    case "refuse":
      throw unfinishedErasure(job, run.plan);
    case "report":
      return await reportDecided(opened, run, step.state);
    case "open next":
      return await startAfter(opened, run, step.why, step.inItsPlace ? run : undefined);
    case "publish":
      return await publish(opened, run, step);
    default:
      return assertNever(step);
  }
}

/**
 * Publishes an approved run, or an erasure whose rows are all there. With `--new-run`, the next run also replaces a run
 * whose rows the target refuses, or whose target the spec has changed: from then on, no attempt can publish that run.
 */
async function publish(
  opened: OpenedJob,
  run: RunSink,
  { approve, opensNext }: Extract<RunStep, { kind: "publish" }>,
): Promise<RunReport> {
  const { sink, attempt } = opened;
  const { runId, target } = run.plan;
  if (approve) {
    await approveErasure(sink, run);
  }
  const differences = compareTargets(target, sink.planTarget).lines;
  if (attempt.newRun && differences.length > 0) {
    return await abandon(opened, runId, differences.join("; "));
  }
  const publishing = (): Promise<RunReport> => publishApproved(opened, run);
  const report = await (attempt.newRun ? orError(publishing, isRefusal) : publishing());
  if (report instanceof JobError) {
    return await abandon(opened, runId, report);
  }
  return opensNext ? await startAfter(opened, run, "was approved") : report;
}

interface ScoringParts {
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly shardsUnplanned: number;
  /** Digests by URI that this attempt computed while it planned; empty without `input.verify: full`. */
  readonly digests: ReadonlyMap<string, string>;
}

/** Stops at the next commit if a person discards the run. */
function scoreAndFinish(opened: OpenedJob, run: RunSink, parts: ScoringParts): Promise<RunReport> {
  const { job, sink, models, attempt, reporter, queries } = opened;
  const { decoder, engine, shardsUnplanned, digests } = parts;
  const { plan } = run;
  return unlessDiscarded(opened, run, shardsUnplanned, async () => {
    const verifying =
      job.spec.input.verify === "full"
        ? { ...opened, input: verifyingInput(opened.input, attempt.signal, reporter.log, { plan, decoder, digests }) }
        : opened;
    const share = shareOf(spanCount(plan), attempt.worker);
    recordLateness(sink, attempt, reporter, plan.runId);
    takeUpRejects(job.spec, reporter.log, run);
    const { batch_size: batchSize } = job.spec.engine;
    const [writer, measured] = await both(
      run.begin(attemptFacts(job.spec, attempt, engine.provider)),
      measureEngine(models.batchLimits, reporter.log, plan, { engine, rows: pendingRows(run, share), batchSize }),
    );
    attempt.signal.throwIfAborted();
    await using paying = await beginPaying(sink, attempt, reporter.log, { engine, run });
    reporter.record.startScoring(engineFacts(engine, measured.sizer));
    await askAhead(verifying, { run, engine, decoder, share });
    await using aggregates = await aggregatesOf(job, queries, plan);
    await scoreShares(verifying, run, { writer, decoder, engine, ...measured, aggregates, share });
    await paying?.settle();
    await scoreWithSecond(opened, run, runJob);
    return await conclude(opened, run, shardsUnplanned);
  });
}

/** Needs neither model nor shards, which may be gone. */
function finishIdleRun(opened: OpenedJob, run: RunSink, shardsUnplanned: number): Promise<RunReport> {
  const { job, attempt, reporter } = opened;
  return unlessDiscarded(opened, run, shardsUnplanned, async () => {
    takeUpRejects(job.spec, reporter.log, run);
    // Nothing will be committed, so that no part will name a provider.
    await run.begin(attemptFacts(job.spec, attempt, "none"));
    reporter.record.startScoring();
    await (isWhole(run) ? undefined : run.refresh());
    await scoreWithSecond(opened, run, runJob);
    return await conclude(opened, run, shardsUnplanned);
  });
}

function takeUpRejects(spec: JobSpec, log: Log, run: RunSink): void {
  checkRejects(spec, run);
  const { rejected } = countSpans(run.spans);
  if (spec.on_bad_row === "fail" && rejected > 0) {
    const rows = count(rejected, "row");
    log.warn(`${rows} stay rejected: an earlier attempt with on_bad_row: reject committed them`);
  }
}

async function scoreShares(
  opened: OpenedJob,
  run: RunSink,
  { share, ...tools }: Omit<ScoringOptions, "plan" | "reuse"> & { readonly share: SpanRange },
): Promise<void> {
  const { attempt, reporter } = opened;
  const { progress, log } = reporter;
  const { worker, steal, signal } = attempt;
  const { plan } = run;
  const spans = spanCount(plan);
  const reuse = await openReuse(opened, { run, share });
  await using scorer = openSpanScorer(opened, { plan, reuse, ...tools });
  const score = async (range: SpanRange): Promise<void> => {
    await scorer.score(pendingRanges(spansOf(plan), run.spans, range), countSpans(run.spans).rejected);
    const missing = pendingRows(run, range);
    if (missing > 0) {
      const came = `all rows of spans ${range.from} to ${range.to - 1} came`;
      throw new Error(`${came}, and ${missing} of them are not committed`);
    }
  };

  progress.start(pendingRows(run, share));
  try {
    await score(share);
    while (worker.count > 1) {
      await run.refresh();
      const next = steal ? spansToSteal(spans, run.spans, worker) : undefined;
      if (next === undefined) {
        return;
      }
      signal.throwIfAborted();
      log.info(`taking over spans ${next.from} to ${next.to - 1}`);
      await score(next);
    }
  } finally {
    progress.stop();
  }
}

function engineFacts({ provider, concurrency, local, traffic, paid }: Engine, sizer: BatchSizer): EngineInfo {
  const { missing = [], sessions = concurrency } = local ?? {};
  const trees = (): string | null => treesText(local?.trees() ?? { kind: "none" });
  const server = traffic === undefined ? undefined : (): ServerReport => serverReport(traffic);
  const spending = paid === undefined ? undefined : (): SpendingReport => spendingReport(paid.spending);
  return { provider, missing, sessions, trees, batchRows: () => sizer.rows, server, spending };
}

function serverReport({ requests, retries, inFlight: mostInFlight, servers, ...traffic }: ServerTraffic): ServerReport {
  const urls = servers.map((server) => ({
    url: server.url,
    requests: server.requests,
    failures: server.failures,
    mostInFlight: server.inFlight,
    latencyMs: latencyOf(server),
  }));
  return { requests, retries, mostInFlight, latencyMs: latencyOf(traffic), urls };
}

/**
 * Stores a plan. If it takes the place of a held run, that is decided with it, and the first decision counts: the held
 * run can be approved until then. Returns the plan of that run if it was.
 */
async function storePlan(
  sink: Sink,
  { actingUser, dateMs }: Attempt,
  plan: Plan,
  held: StoredPlan | undefined,
): Promise<StoredPlan> {
  if (held === undefined) {
    return await sink.create(plan);
  }
  const decision = supersededBy(plan.runId, { by: actingUser(), at: new Date(dateMs()).toISOString() });
  return await sink.create(plan, { runId: held.plan.runId, decision });
}

function digestsIn({ input }: Plan): ReadonlyMap<string, string> {
  return new Map(input.shards.flatMap(({ uri, sha256 }) => (sha256 === undefined ? [] : [[uri, sha256]])));
}

function latencyOf({ latencyMs }: Pick<ServerTraffic, "latencyMs">): ServerReport["latencyMs"] {
  return { p50: latencyMs(0.5), p95: latencyMs(0.95), p99: latencyMs(0.99) };
}
