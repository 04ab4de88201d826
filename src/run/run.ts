import { type Damage, JobError, assertNever, firstError, messageOf } from "../util/errors.js";
import { nextRunId, runIdOf, splitRunId } from "../plan/identity.js";
import type { Plan, RunId } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import { type RunReport, count } from "../report/report.js";
import { type RunStep, runStep, supersededBy } from "../publish/lifecycle.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import { countCommitted, recordBegun, recordLateness, recordingFailure, runFacts } from "./attempt.js";
import { type IdleRun, finishIdleRun, scoreAndFinish } from "./score-and-finish.js";
import { alreadyComplete, orRefusal, publishApproved, refusePruned, reportDecided } from "./conclude.js";
import {
  type PlannedRun,
  type Resumable,
  checkPins,
  checkPublished,
  checkResumable,
  checkSpec,
  hasOnlyFailed,
  latestRun,
  refuseElsewhere,
} from "./resume.js";
import { approveErasure, refusePlannedErasure, unfinishedErasure } from "./erasure.js";
import { checkGolden, requirePinned } from "./golden.js";
import { listInput, warnOfUnmatched, withInput } from "./input.js";
import type { JobContext } from "../scoring/context.js";
import {
  type LoadedForRun,
  type LoadingEngine,
  beginLoading,
  digestsOf,
  modelOfPlan,
  openPinnedModel,
} from "./model.js";
import { mayNotBeReady, readShards } from "./read-shards.js";
import { spellOut, unfinishedLines, unfinishedRuns } from "./hints.js";
import { compareTargets, reuseShards } from "../plan/compare.js";
import type { Model } from "../models/port.js";
import type { Listing } from "../storage/port.js";
import { type PlanningInput, planRun, planSample } from "./planning.js";

/**
 * Carries out a run: plans it or resumes it, scores the spans that are not committed, and finishes it. The same call
 * again finds the run complete.
 * @throws JobError
 */
export async function runJob(job: JobContext): Promise<RunReport> {
  const context: JobContext = { ...job, runOther: runJob };
  const { spec, sink, sha256 } = context;
  try {
    const base = runIdOf(spec.name, spec.params, sha256);
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

/** Starts the run after `runId`. @param state what became of that run: "was discarded" @param held that run, whose place it takes */
function startAfter(context: JobContext, runId: RunId, state: string, held?: HeldRun): Promise<RunReport> {
  context.log.info(`planning a new run after ${runId}, which ${state}`);
  return startRun(context, nextRunId(runId), held);
}

type OpenedRun = Pick<IdleRun, "stored" | "run">;

/**
 * Plans a run as soon as its input is ready, and carries it out.
 * @param held the held run, or the unfinished erasure, that it takes the place of
 */
async function startRun(context: JobContext, runId: RunId, held?: HeldRun): Promise<RunReport> {
  recordLateness(context, runId);
  const others = await unfinishedRuns(context);
  const notBegun = others.filter((other) => context.runsOfCommand?.has(splitRunId(other.runId).base) !== true);
  for (const line of unfinishedLines(context, notBegun)) {
    context.log.warn(line);
  }
  const ended = await withInput<RunReport | ApprovedRun>(context, async (listing) => {
    warnOfUnmatched(context, listing);
    const resolved = await openPinnedModel(context);
    await using decoder = await context.openDecoder(listing.folders);
    const shards = mayNotBeReady(context, listing.shards)
      ? await readShards(context, decoder, listing.shards)
      : undefined;
    await using loading = beginLoading(context, { listing, model: resolved.model });
    const tools = { listing, resolved, decoder, engine: loading.engine };
    const created = await createRun(context, { runId, shards, held, ...tools });
    if ("approved" in created) {
      return created;
    }
    context.record.setRun(runFacts(created.stored));
    return await recordingFailure(context, created, async () => {
      // Another attempt may have stored its plan first; that plan counts.
      const { plan } = created.stored;
      checkSpec(context, plan, created.run);
      const model = await modelOfPlan(context, plan, resolved.model);
      await using reloading =
        model === resolved.model ? undefined : await reload(context, { plan, listing, model, before: loading });
      const shardsUnplanned = checkPins(context, plan, created.run, { listed: listing.shards, ...digestsOf(model) });
      // The run that this command was to open is there: it is not to open another one after it.
      const step = runStep(latestRun(created), false);
      if (step.kind === "compare with plan") {
        return await alreadyComplete(context, created); // the other attempt has completed it
      }
      if (step.kind !== "score") {
        return await takeStep(context, created, step);
      }
      const engine = await (reloading ?? loading).engine;
      return await scoreAndFinish(context, { ...created, engine, decoder, shardsUnplanned });
    });
  });
  return "approved" in ended ? await takeUp(context, ended.approved) : ended;
}

/** Opens a planned run, and resumes it. */
async function takeUp(context: JobContext, stored: StoredPlan): Promise<RunReport> {
  context.record.setRun(runFacts(stored));
  const run = await context.sink.open(stored);
  recordLateness(context, stored.plan.runId);
  return await recordingFailure(context, { stored, run }, () => resume(context, { stored, run }));
}

/** Goes on with a run that is planned. */
async function resume(context: JobContext, { stored, run }: OpenedRun): Promise<RunReport> {
  const { newRun } = context;
  if (!newRun) {
    refuseElsewhere(context, stored.plan, run);
  }
  const step = runStep(latestRun({ stored, run }), newRun);
  if (step.kind !== "score" && step.kind !== "compare with plan") {
    return await takeStep(context, { stored, run }, step);
  }
  const planned = { stored, run, listing: await listInput(context) };
  if (step.kind === "score") {
    return await resumeScoring(context, planned);
  }
  await checkPublished(context, planned);
  return await alreadyComplete(context, { stored, run });
}

/** Scores what is left of a run; or opens the next run if its plan no longer holds, and that was asked for. */
async function resumeScoring(context: JobContext, planned: PlannedRun): Promise<RunReport> {
  const { log, newRun } = context;
  const { stored, run, listing } = planned;
  const { plan } = stored;
  let found: Resumable;
  try {
    found = await checkResumable(context, planned);
  } catch (thrown) {
    const error = firstError(thrown);
    const isChange = error instanceof JobError && error.exitCode === 66;
    if (isChange && (newRun || (await hasOnlyFailed(context, plan, run)))) {
      return await abandon(context, plan.runId, error);
    }
    throw error;
  }
  log.info(`resuming run ${plan.runId}: ${countCommitted(run)} of ${count(spanCount(plan), "span")} committed`);
  const { model, shardsUnplanned } = found;
  return model === undefined
    ? await finishIdleRun(context, { stored, run, shardsUnplanned })
    : await scoreRest(context, { stored, run, listing, model, shardsUnplanned });
}

async function scoreRest(context: JobContext, rest: IdleRun & LoadedForRun): Promise<RunReport> {
  const { stored, run, listing, model, shardsUnplanned } = rest;
  const { plan } = stored;
  await (countCommitted(run) === 0 ? recordBegun(context, plan.runId) : undefined);
  await using loading = beginLoading(context, { listing, model });
  await using decoder = await context.openDecoder(listing.folders);
  const engine = await loading.engine;
  await checkGolden(context, { plan, engine });
  return await scoreAndFinish(context, { stored, run, decoder, engine, shardsUnplanned, digests: new Map() });
}

/** Carries out a step for which no row is scored. */
async function takeStep(
  context: JobContext,
  { stored, run }: OpenedRun,
  step: Exclude<RunStep, { kind: "score" | "compare with plan" }>,
): Promise<RunReport> {
  const { plan } = stored;
  switch (step.kind) {
    case "refuse":
      throw unfinishedErasure(context, plan);
    case "report":
      return await reportDecided(context, { stored, run, state: step.state });
    case "open next":
      return await startAfter(context, plan.runId, step.why, step.inItsPlace ? { stored, run } : undefined);
    case "publish":
      return await publish(context, { stored, run }, step);
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
  { stored, run }: OpenedRun,
  { approve, opensNext }: Extract<RunStep, { kind: "publish" }>,
): Promise<RunReport> {
  const { runId, target } = stored.plan;
  if (approve) {
    await approveErasure(context, { plan: stored.plan, run });
  }
  const differences = compareTargets(target, context.sink.planTarget).lines;
  if (context.newRun && differences.length > 0) {
    return await abandon(context, runId, differences.join("; "));
  }
  const publishing = publishApproved(context, { stored, run });
  const report = await (context.newRun ? orRefusal(publishing) : publishing);
  if (report instanceof JobError) {
    return await abandon(context, runId, report);
  }
  return opensNext ? await startAfter(context, runId, "was approved") : report;
}

/** A run that was planned, by this attempt or by another one. */
interface CreatedRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  /** Digests of shards by URI, as far as planning computed them. */
  readonly digests: ReadonlyMap<string, string>;
}

/** A held run, or an unfinished erasure, that a new one takes the place of. */
interface HeldRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
}

/** The held run, which a person has approved: no run takes its place, and this attempt publishes it next. */
interface ApprovedRun {
  readonly approved: StoredPlan;
}

/**
 * Plans a run and stores the plan, unless another attempt was first.
 * @param tools `held`: the run that is superseded with that, and not before: it can be approved until then
 */
async function createRun(
  context: JobContext,
  tools: Omit<PlanningInput, "listed"> & { readonly listing: Listing; readonly held?: HeldRun | undefined },
): Promise<CreatedRun | ApprovedRun> {
  const { sink, log } = context;
  const { plan: made } = await planRun(context, { ...tools, listed: tools.listing.shards });
  const engine = await tools.engine;
  // Before the plan is stored: a run that was never planned may be repeated with another model or file.
  await checkGolden(context, { plan: made, engine });
  const { decoder } = tools;
  const plan = await planSample(context, { plan: made, decoder });
  const planned = await storePlan(context, plan, tools.held);
  if ("approved" in planned) {
    return planned;
  }
  refusePlannedErasure(planned.plan);
  requirePinned(planned.plan, plan.checks?.golden);
  const stored = { ...planned, plan: reuseShards(planned.plan, plan.input.shards) };
  const { input, commitRows } = plan;
  const shards = count(input.shards.length, "shard");
  const spans = count(spanCount(plan), "span");
  log.info(
    `planned run ${plan.runId}: ${count(input.rows, "row")} of ${shards}, in ${spans} of up to ${count(commitRows, "row")}`,
  );
  return { stored, run: await sink.open(stored), digests: digestsIn(plan) };
}

/** Stores a plan. If it takes the place of a held run, that is decided first, and the first decision counts. */
async function storePlan(
  { sink, actingUser, dateMs }: JobContext,
  plan: Plan,
  held: HeldRun | undefined,
): Promise<StoredPlan | ApprovedRun> {
  if (held === undefined) {
    return await sink.create(plan);
  }
  const { stored } = held;
  const decision = supersededBy(plan.runId, { by: actingUser(), at: new Date(dateMs()).toISOString() });
  const next = await sink.create(plan, { runId: stored.plan.runId, decision });
  return next.plan.runId === stored.plan.runId ? { approved: stored } : next;
}

function digestsIn({ input }: Plan): ReadonlyMap<string, string> {
  return new Map(input.shards.flatMap(({ uri, sha256 }) => (sha256 === undefined ? [] : [[uri, sha256]])));
}

/** Loads the model of the stored plan in place of the one that this attempt has planned with, and checks it. */
async function reload(
  context: JobContext,
  tools: {
    readonly plan: Plan;
    readonly listing: Listing;
    readonly model: Model;
    readonly before: LoadingEngine;
  },
): Promise<LoadingEngine> {
  const { plan, listing, model, before } = tools;
  await before[Symbol.asyncDispose](); // a process can have one session on a GPU at most
  const loading = beginLoading(context, { listing, model });
  try {
    await checkGolden(context, { plan, engine: await loading.engine });
    return loading;
  } catch (error) {
    await loading[Symbol.asyncDispose]();
    throw error;
  }
}
