import type { Model } from "../models/port.js";
import type { LatestRun } from "../publish/lifecycle.js";
import type { JobContext } from "../scoring/context.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import type { Listing } from "../storage/port.js";
import { pinGolden, requirePinned } from "./golden/golden-file.js";
import { requireColumns } from "./judging/require-columns.js";
import { digestsIfThere, digestsOf, openPinnedModel, plannedModel } from "./model.js";
import { checkPins, checkSpec } from "./resume.js";
import { isIdle } from "./score-and-finish.js";
import { spanCount } from "../plan/spans.js";

/** A run that is planned, with its input as it is now. */
export interface PlannedRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  readonly listing: Listing;
}

/** What is known of a run that decides what becomes of it. */
export function latestRun({ stored, run }: Omit<PlannedRun, "listing">): LatestRun {
  return {
    state: run.state,
    isErasure: stored.plan.erasure !== undefined,
    isWhole: run.spans.size === spanCount(stored.plan),
  };
}

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
export async function checkResumable(context: JobContext, { stored, run, listing }: PlannedRun): Promise<Resumable> {
  const { plan } = stored;
  // Answers of a language model are counted, and compared, before the run is finished.
  const idle = plan.request.prompt === undefined && isIdle(context, { stored, run });
  checkSpec(context, plan, run); // before the model is loaded, so that a change is reported at once
  requireColumns(context, plan.contract);
  const planned = plannedModel(context, plan);
  const model = idle ? undefined : (await openPinnedModel(context, planned)).model;
  const digests = model === undefined ? await digestsIfThere(context, planned) : digestsOf(model);
  const shardsUnplanned = checkPins(context, plan, run, { listed: listing.shards, ...digests });
  requirePinned(plan, idle ? undefined : await pinGolden(context));
  return { model, shardsUnplanned };
}

/**
 * Checks that spec, model, tokenizers and input of a published run are those of its plan.
 * @throws JobError PLAN_CHANGED, MODEL_CHANGED, INPUT_CHANGED (66)
 */
export async function checkPublished(
  context: JobContext,
  { stored: { plan }, run, listing }: PlannedRun,
): Promise<void> {
  checkSpec(context, plan, run);
  checkPins(context, plan, run, { listed: listing.shards, ...(await digestsIfThere(context)) });
}
