import { versionText } from "./plan/lake-tables.js";
import { count } from "../base/shown-numbers.js";
import type { Engine, ServerTraffic } from "../models/engine.js";
import type { Decoder } from "../formats/format.js";
import type { Model } from "../models/places/place.js";
import { compareTargets, reuseShards } from "./plan/compare.js";
import { nextRunId, splitRunId } from "./plan/identity.js";
import type { Changes, Plan, RunId } from "./plan/plan.js";
import { shareOf, spanCount, type SpanRange, spansOf, spansToSteal } from "./plan/spans.js";
import { runStep, type RunStep, supersededBy } from "./lifecycle/lifecycle.js";
import { rowsOf } from "./lifecycle/span-record.js";
import type { EngineInfo } from "../report/attempt-record.js";
import { type RunReport, type ServerReport, type SpendingReport } from "../report/report.js";
import { type BatchSizer, measureEngine, treesText } from "../flow/batch-size.js";
import type { JobContext } from "../flow/context.js";
import { pendingRanges } from "../flow/read.js";
import { openSpanScorer, type ScoringOptions } from "../flow/score.js";
import type { RunSink, StoredPlan } from "../targets/target.js";
import type { Listing } from "../sources/source.js";
import { assertNever, type Damage, firstError, JobError, messageOf } from "../base/errors.js";
import { attemptFacts, isWhole, recordBegun, recordingFailure, recordLateness, runFacts } from "./attempt.js";
import { aggregatesOf } from "./checked-output.js";
import {
  alreadyComplete,
  checkRejects,
  conclude,
  nothingNew,
  orRefusal,
  publishApproved,
  refusePruned,
  reportDecided,
  unlessDiscarded,
} from "./conclude.js";
import { approveErasure, refusePlannedErasure, unfinishedErasure } from "./erasure.js";
import { checkGolden, requirePinned } from "./golden.js";
import { spellOut, unfinishedLines, unfinishedRuns } from "./hints.js";
import { listInput, listPlanned, listPublished, warnOfUnmatched, withInput } from "./input.js";
import { beginLoading, both, digestsOf, type LoadingEngine, modelOfPlan, openPinnedModel } from "./model.js";
import { askAhead, beginPaying, spendingReport } from "./paid.js";
import { planRun } from "./planning.js";
import { mayNotBeReady, readShards, verifyingSource } from "./read-shards.js";
import {
  checkPins,
  checkPublished,
  checkResumable,
  checkSpec,
  hasOnlyFailed,
  latestRun,
  pendingRows,
  refuseElsewhere,
  type Resumable,
} from "./resume.js";
import { openReuse } from "./reuse.js";
import { scoreWithSecond } from "./second-job.js";

/**
 * Carries out a run: plans it or resumes it, scores the spans that are not committed, and finishes it. The same call
 * again finds the run complete.
 * @throws JobError
 */
export async function runJob(context: JobContext): Promise<RunReport> {
  const { sink, base } = context;
  try {
    const stored = await sink.find(base);
    if (stored?.pruned !== undefined) {
      refusePruned(context, stored.pruned);
      context.log.info(`planning a new run after ${stored.plan.runId}, which was pruned`);
      return await startRun(context, nextRunId(stored.pruned.tombstone));
    }
    return stored === undefined ? await startRun(context, base) : await takeUp(context, stored);
  } catch (thrown) {
    const error = firstError(thrown);
    const damage = damageOf(context, error);
    if (damage === undefined) {
      throw spellOut(context, error);
    }
    return await abandon(context, damage.runId as RunId, error);
  }
}

/**
 * The damage that `--new-run` replaces; undefined if this attempt has committed spans, whose counts the report would
 * mix with the new run's.
 */
function damageOf({ newRun, record }: JobContext, error: unknown): Damage | undefined {
  return newRun && error instanceof JobError && record.counts.spansCommitted === 0 ? error.damage : undefined;
}

async function abandon(context: JobContext, runId: RunId, why: unknown): Promise<RunReport> {
  context.record.setReview(undefined); // the next run has none yet
  context.log.warn(`planning a new run in place of ${runId}: ${messageOf(why)}`);
  return await startRun(context, nextRunId(runId));
}

/** Starts the run after a run. @param state what became of that one: "was discarded" @param held that run, whose place it takes */
function startAfter(
  context: JobContext,
  { plan: { runId } }: RunSink,
  state: string,
  held?: RunSink,
): Promise<RunReport> {
  context.log.info(`planning a new run after ${runId}, which ${state}`);
  return startRun(context, nextRunId(runId), held);
}

/**
 * Plans a run as soon as its input is ready, and carries it out.
 * @param held the held run, or the unfinished erasure, that it takes the place of. If a person has approved it meanwhile,
 * no run takes its place, and this attempt publishes it.
 */
async function startRun(context: JobContext, runId: RunId, held?: RunSink): Promise<RunReport> {
  const { sink, log, record } = context;
  recordLateness(context, runId);
  const others = await unfinishedRuns(context);
  const notBegun = others.filter((other) => context.runsOfCommand?.has(splitRunId(other.runId).base) !== true);
  for (const line of unfinishedLines(context, notBegun)) {
    log.warn(line);
  }

  let first: Pick<Changes, "from" | "to"> | undefined;
  const ended = await withInput<RunReport | undefined>(context, async (listing) => {
    if (context.chain !== undefined && listing.shards.length === 0) {
      return nothingNew(context);
    }
    warnOfUnmatched(context, listing);
    const resolved = await openPinnedModel(context);
    await using decoder = await context.openDecoder(listing.folders);
    const listed = listing.shards;
    const shards = mayNotBeReady(context, listed) ? await readShards(context, decoder, listed) : undefined;
    await using loading = beginLoading(context, { listing, model: resolved.model });
    const { table, changes } = listing;
    const input = { runId, shards, listed, table, changes, resolved, decoder, engine: loading.engine };
    const { plan } = await planRun(context, input);
    // Before the plan is stored: a run that was never planned may be repeated with another model or file.
    await checkGolden(context, { plan, engine: await loading.engine });
    first = await claimRange(context, plan);
    if (first !== undefined) {
      return undefined;
    }
    const stored = await storePlan(context, plan, held);
    requireRange(stored, plan);
    if (stored.plan.runId === held?.plan.runId) {
      return undefined;
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
    return await recordingFailure(context, run, async () => {
      checkSpec(context, run);
      const model = await modelOfPlan(context, run.plan, resolved.model);
      await using reloading =
        model === resolved.model ? undefined : await reload(context, run.plan, { listing, model, before: loading });
      const counted = await listPlanned(context, run.plan, listing);
      const shardsUnplanned = checkPins(context, run, { listed: counted.shards, ...digestsOf(model) });
      // The run that this command was to open is there: it is not to open another one after it.
      const step = runStep(latestRun(run), false);
      if (step.kind === "compare with plan") {
        return await alreadyComplete(context, run); // the other attempt has completed it
      }
      if (step.kind !== "score") {
        return await takeStep(context, run, step);
      }
      const engine = await (reloading ?? loading).engine;
      return await scoreAndFinish(context, run, { engine, decoder, shardsUnplanned, digests: digestsIn(plan) });
    });
  });
  if (ended === undefined && first !== undefined && context.chain !== undefined) {
    context.log.info("another attempt has planned which rows this run reads: planning those");
    return await startRun({ ...context, chain: { ...context.chain, ...first } }, runId, held);
  }
  return ended ?? (await takeUp(context, held as StoredPlan));
}

/** Stores what a run of a chain reads. Returns what another attempt has stored, if it was first, and reads other rows. */
async function claimRange(
  { chain, dateMs, writer }: JobContext,
  { input: { changes } }: Plan,
): Promise<Pick<Changes, "from" | "to"> | undefined> {
  if (chain === undefined || changes === undefined) {
    return undefined;
  }
  const stored = await chain.claim(changes.to, { at: new Date(dateMs()).toISOString(), writer });
  return stored.from === changes.from && stored.to === changes.to ? undefined : stored;
}

/** Refuses a plan whose rows are not those that were planned last. @throws JobError OUTPUT_DAMAGED */
function requireRange({ plan: { runId, input } }: StoredPlan, { input: { changes } }: Plan): void {
  const [first, second] = [input.changes, changes];
  if (first?.from !== second?.from || first?.to !== second?.to) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `planning run ${runId}: its plan reads other rows than the notes of the chain say`,
      {
        hint: "notes of the chain were removed from its output: restore them, or name another output and another job",
      },
    );
  }
}

/**
 * Stores a plan. If it takes the place of a held run, that is decided with it, and the first decision counts: the held
 * run can be approved until then. Returns the plan of that run if it was.
 */
async function storePlan(
  { sink, actingUser, dateMs }: JobContext,
  plan: Plan,
  held: StoredPlan | undefined,
): Promise<StoredPlan> {
  if (held === undefined) {
    return await sink.create(plan);
  }
  const decision = supersededBy(plan.runId, { by: actingUser(), at: new Date(dateMs()).toISOString() });
  return await sink.create(plan, { runId: held.plan.runId, decision });
}

/** Digests of shards by URI, as far as planning computed them. */
function digestsIn({ input }: Plan): ReadonlyMap<string, string> {
  return new Map(input.shards.flatMap(({ uri, sha256 }) => (sha256 === undefined ? [] : [[uri, sha256]])));
}

/** Loads the model of the stored plan in place of the one that this attempt has planned with, and checks it. */
async function reload(
  context: JobContext,
  plan: Plan,
  tools: { readonly listing: Listing; readonly model: Model; readonly before: LoadingEngine },
): Promise<LoadingEngine> {
  await tools.before[Symbol.asyncDispose](); // a process can have one session on a GPU at most
  const loading = beginLoading(context, tools);
  try {
    await checkGolden(context, { plan, engine: await loading.engine });
    return loading;
  } catch (error) {
    await loading[Symbol.asyncDispose]();
    throw error;
  }
}

async function takeUp(context: JobContext, stored: StoredPlan): Promise<RunReport> {
  const { newRun } = context;
  context.record.setRun(runFacts(stored));
  const run = await context.sink.open(stored);
  recordLateness(context, run.plan.runId);
  return await recordingFailure(context, run, async () => {
    if (!newRun) {
      refuseElsewhere(context, run);
    }
    const step = runStep(latestRun(run), newRun);
    if (step.kind !== "score" && step.kind !== "compare with plan") {
      return await takeStep(context, run, step);
    }
    if (step.kind === "score") {
      const scoring = resumeScoring(context, run);
      const report = await (newRun ? orChangedInput(scoring) : scoring);
      return report instanceof JobError ? await abandon(context, run.plan.runId, report) : report;
    }
    await checkPublished(context, run, await listPublished(context, run.plan));
    return await alreadyComplete(context, run);
  });
}

/** Returns the error if rows cannot be read as they were planned. @throws other errors of `scoring` */
async function orChangedInput<T>(scoring: Promise<T>): Promise<T | JobError> {
  return await scoring.catch((thrown: unknown) => {
    const error = firstError(thrown);
    if (error instanceof JobError && error.code === "INPUT_CHANGED") {
      return error;
    }
    throw thrown;
  });
}

/** Scores what is left of a run; or opens the next run if its plan no longer holds, and that was asked for. */
async function resumeScoring(context: JobContext, run: RunSink): Promise<RunReport> {
  const { log, newRun } = context;
  const { plan } = run;
  let listing: Listing;
  let resumable: Resumable;
  try {
    listing = await listInput(context, plan);
    resumable = await checkResumable(context, run, listing);
  } catch (thrown) {
    const error = firstError(thrown);
    const isChange = error instanceof JobError && error.exitCode === 66;
    if (isChange && (newRun || (await hasOnlyFailed(context, run)))) {
      return await abandon(context, plan.runId, error);
    }
    throw error;
  }

  log.info(`resuming run ${plan.runId}: ${run.spans.size} of ${count(spanCount(plan), "span")} committed`);
  const { model, shardsUnplanned } = resumable;
  if (model === undefined) {
    return await finishIdleRun(context, run, shardsUnplanned);
  }
  await (run.spans.size === 0 ? recordBegun(context, plan.runId) : undefined);
  await using loading = beginLoading(context, { listing, model });
  await using decoder = await context.openDecoder(listing.folders);
  const engine = await loading.engine;
  await checkGolden(context, { plan, engine });
  return await scoreAndFinish(context, run, { decoder, engine, shardsUnplanned, digests: new Map() });
}

async function takeStep(
  context: JobContext,
  run: RunSink,
  step: Exclude<RunStep, { kind: "score" | "compare with plan" }>,
): Promise<RunReport> {
  switch (step.kind) {
    case "refuse":
      throw unfinishedErasure(context, run.plan);
    case "report":
      return await reportDecided(context, run, step.state);
    case "open next":
      return await startAfter(context, run, step.why, step.inItsPlace ? run : undefined);
    case "publish":
      return await publish(context, run, step);
    default:
      return assertNever(step);
  }
}

/**
 * Publishes an approved run, or an erasure whose rows are all there. With `--new-run`, the next run also replaces a run
 * whose rows the target refuses, or whose target the spec has changed: from then on, no attempt can publish that run.
 */
async function publish(
  context: JobContext,
  run: RunSink,
  { approve, opensNext }: Extract<RunStep, { kind: "publish" }>,
): Promise<RunReport> {
  const { runId, target } = run.plan;
  if (approve) {
    await approveErasure(context, run);
  }
  const differences = compareTargets(target, context.sink.planTarget).lines;
  if (context.newRun && differences.length > 0) {
    return await abandon(context, runId, differences.join("; "));
  }
  const publishing = publishApproved(context, run);
  const report = await (context.newRun ? orRefusal(publishing) : publishing);
  if (report instanceof JobError) {
    return await abandon(context, runId, report);
  }
  return opensNext ? await startAfter(context, run, "was approved") : report;
}

interface ScoringParts {
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
function scoreAndFinish(context: JobContext, run: RunSink, parts: ScoringParts): Promise<RunReport> {
  const { worker, signal, record } = context;
  const { decoder, engine, shardsUnplanned, digests } = parts;
  const { plan } = run;
  return unlessDiscarded(context, run, shardsUnplanned, async () => {
    const source = verifyingSource(context, { plan, decoder, digests });
    const share = shareOf(spanCount(plan), worker);
    recordLateness(context, plan.runId);
    takeUpRejects(context, run);
    const [writer, measured] = await both(
      run.begin(attemptFacts(context, engine.provider)),
      measureEngine(context, plan, { engine, rows: pendingRows(run, share) }),
    );
    signal.throwIfAborted();
    await using paying = await beginPaying(context, { engine, run });
    record.startScoring(engineFacts(engine, measured.sizer));
    await askAhead(context, { run, engine, decoder, source, share });
    await using aggregates = await aggregatesOf(context, plan);
    await scoreShares({ ...context, source }, run, { writer, decoder, engine, ...measured, aggregates, share });
    await paying?.settle();
    await scoreWithSecond(context, run, runJob);
    return await conclude(context, run, { writer, shardsUnplanned });
  });
}

/** Finishes the run if all spans are committed. Needs neither model nor shards, which may be gone. */
function finishIdleRun(context: JobContext, run: RunSink, shardsUnplanned: number): Promise<RunReport> {
  return unlessDiscarded(context, run, shardsUnplanned, async () => {
    takeUpRejects(context, run);
    // Nothing will be committed, so that no part will name a provider.
    const writer = await run.begin(attemptFacts(context, "none"));
    context.record.startScoring();
    await (isWhole(run) ? undefined : run.refresh());
    await scoreWithSecond(context, run, runJob);
    return await conclude(context, run, { writer, shardsUnplanned });
  });
}

/** Checks the rejected rows of earlier attempts before anything is scored. */
function takeUpRejects(context: JobContext, run: RunSink): void {
  checkRejects(context, run);
  const { rejected } = rowsOf(run.spans);
  if (context.spec.on_bad_row === "fail" && rejected > 0) {
    const rows = count(rejected, "row");
    context.log.warn(`${rows} stay rejected: an earlier attempt with on_bad_row: reject committed them`);
  }
}

/** Scores this worker's share, then, with `--steal`, spans that other workers have not committed. */
async function scoreShares(
  context: JobContext,
  run: RunSink,
  { share, ...tools }: Omit<ScoringOptions, "plan" | "reuse"> & { readonly share: SpanRange },
): Promise<void> {
  const { worker, steal, progress, signal, log } = context;
  const { plan } = run;
  const spans = spanCount(plan);
  const reuse = await openReuse(context, { run, share });
  await using scorer = openSpanScorer(context, { plan, reuse, ...tools });
  const score = async (range: SpanRange): Promise<void> => {
    await scorer.score(pendingRanges(spansOf(plan), run.spans, range), rowsOf(run.spans).rejected);
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

function latencyOf({ latencyMs }: Pick<ServerTraffic, "latencyMs">): ServerReport["latencyMs"] {
  return { p50: latencyMs(0.5), p95: latencyMs(0.95), p99: latencyMs(0.99) };
}
