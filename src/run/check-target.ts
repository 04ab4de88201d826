import { runIdOf } from "../plan/identity.js";
import type { Plan } from "../plan/plan.js";
import type { JobContext } from "../scoring/context.js";
import type { StoredPlan } from "../sink/port.js";
import { JobError } from "../util/errors.js";
import { checkPublished, checkResumable, type PlannedRun } from "./check-planned.js";
import { checkRejects } from "./conclude.js";
import { decidedError, refusePruned } from "./held-or-discarded.js";
import { listInput } from "./planning/input.js";
import { hasOnlyFailed, refuseErasing } from "./resume.js";
import { type RunState, runState } from "./state.js";

/** The findings of a dry run at the target. */
export interface TargetCheck {
  /** The state of the run; undefined: the target could not be reached. */
  readonly state?: RunState;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Checks the target as a run does before it scores: the target is reachable and belongs to this job, and a run that is
 * not planned yet could begin. Changes nothing.
 * @throws JobError that a run would end with, unless a retry may succeed
 */
export async function checkTarget(context: JobContext, plan: Plan): Promise<TargetCheck> {
  return await orUntried("the target", async () => {
    const state = await runState(context);
    if (state.error !== undefined) {
      throw state.error;
    }
    const { status } = state;
    const isOpen = status === "not_planned" || status === "unfinished";
    const isPlanned = status === "unfinished";
    return { state, untried: isOpen ? ((await context.sink.rehearse?.(plan, { isPlanned })) ?? []) : [] };
  });
}

/** What a dry run finds of the run that the target has. */
export interface StandingCheck {
  /** The error that `run` ends with because of that run; undefined: it ends with none. */
  readonly refusal?: JobError | undefined;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Compares the run that the target has with spec, input and model, as `run` does before it scores, and looks at what was
 * decided on it. Changes nothing.
 */
export async function checkStanding(context: JobContext): Promise<StandingCheck> {
  const { spec, sink, sha256, onlyRejects } = context;
  return await orUntried("the run that the target has", async () => {
    // The rejects of a published run are a run of their own.
    const stored = onlyRejects === true ? undefined : await sink.find(runIdOf(spec.name, spec.params, sha256));
    return { refusal: stored && (await refusalBy(context, stored)), untried: [] };
  });
}

/** The error that `run` ends with because of a run; undefined: none. @throws JobError that a retry may avoid */
async function refusalBy(context: JobContext, stored: StoredPlan): Promise<JobError | undefined> {
  try {
    if (stored.pruned !== undefined) {
      refusePruned(context, stored.pruned);
      return undefined;
    }
    const run = await context.sink.open(stored);
    const { plan } = stored;
    const { state } = run;
    refuseErasing(plan, run);
    if (state.kind === "held" || state.kind === "discarded") {
      return decidedError(context, plan, state);
    }
    if (state.kind === "published" || state.kind === "unfinished") {
      await requireUnchanged(context, { stored, run, listing: await listInput(context) });
    }
  } catch (error) {
    if (error instanceof JobError && error.exitCode !== 75) {
      return error;
    }
    throw error;
  }
  return undefined;
}

/** @throws JobError if the run cannot go on, and `run` would not begin another one in its place */
async function requireUnchanged(context: JobContext, planned: PlannedRun): Promise<void> {
  const { stored, run } = planned;
  if (run.state.kind === "published") {
    await checkPublished(context, planned);
    return;
  }
  try {
    await checkResumable(context, planned);
  } catch (error) {
    const isChange = error instanceof JobError && error.exitCode === 66;
    if (isChange && (await hasOnlyFailed(context, stored.plan, run))) {
      return;
    }
    throw error;
  }
  checkRejects(context, stored.plan, run);
}

/** Returns a line that says what was not carried out, if `work` fails and a retry may succeed. */
async function orUntried<T>(
  what: string,
  work: () => Promise<T>,
): Promise<T | { readonly untried: readonly string[] }> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && error.exitCode === 75) {
      return { untried: [`${what}: ${error.message}`] };
    }
    throw error;
  }
}
