import type { Model } from "../models/port.js";
import { reuseShards } from "../plan/compare.js";
import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import { supersededBy } from "../publish/lifecycle.js";
import { count } from "../report/report.js";
import type { JobContext } from "../scoring/context.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { Listing } from "../storage/port.js";
import { refusePlannedErasure } from "./erasing/refuse-scoring.js";
import { checkGolden } from "./golden/golden.js";
import { requirePinned } from "./golden/golden-file.js";
import { beginLoading, type LoadingEngine } from "./loading.js";
import { type PlanningInput, planRun, planSample } from "./planning/planning.js";

/** A run that was planned, by this attempt or by another one. */
export interface CreatedRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  /** Digests of shards by URI, as far as planning computed them. */
  readonly digests: ReadonlyMap<string, string>;
}

/** A held run, or an unfinished erasure, that a new one takes the place of. */
export interface HeldRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
}

/** The held run, which a person has approved: no run takes its place, and this attempt publishes it next. */
export interface ApprovedRun {
  readonly approved: StoredPlan;
}

/**
 * Plans a run and stores the plan, unless another attempt was first.
 * @param tools `held`: the run that is superseded with that, and not before: it can be approved until then
 */
export async function createRun(
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
export async function reload(
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
