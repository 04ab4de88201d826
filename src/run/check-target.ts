import { runIdOf } from "../plan/identity.js";
import type { Plan } from "../plan/plan.js";
import type { JobContext } from "../scoring/context.js";
import { runStep } from "../publish/lifecycle.js";
import type { StoredPlan } from "../sink/port.js";
import { unfinishedErasure } from "./erasing/refuse-scoring.js";
import { assertNever, JobError } from "../util/errors.js";
import { checkPublished, checkResumable, latestRun, type PlannedRun } from "./check-planned.js";
import { checkRejects } from "./conclude.js";
import { decidedError, refusePruned } from "./held-or-discarded.js";
import { listInput } from "./planning/input.js";
import { hasOnlyFailed, refuseElsewhere } from "./resume.js";
import { spellOut } from "./spell-out.js";
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
 * @param plan the plan to rehearse; undefined: nothing would be written
 * @param isNew whether it is the plan of a new run, also where the target has a run before it
 * @throws JobError the error that `run` would end with. Not thrown: transient errors, and errors of a held run, which
 * `checkStoredRun` returns
 */
export async function checkTarget(context: JobContext, plan: Plan | undefined, isNew = false): Promise<TargetCheck> {
  return await orUntried("the target", async () => {
    const state = await runState(context);
    const { status } = state;
    if (state.error !== undefined && status !== "held") {
      throw state.error;
    }
    const isPlanned = !isNew && (status === "unfinished" || status === "approved");
    const isRehearsed = plan !== undefined && (isNew || isPlanned || status === "not_planned");
    return { state, untried: isRehearsed ? await context.sink.rehearse(plan, isPlanned) : [] };
  });
}

/** What a dry run finds of the run that the target has. */
export interface StoredRunCheck {
  /**
   * What `run` does with that run. plan: it plans a run, because there is none that goes on. resume: it scores the rows
   * that are left. finish: no row is left, and it publishes them. end: the run is complete, or `run` refuses it.
   */
  readonly next: "plan" | "resume" | "finish" | "end";
  /** The plan of that run; undefined: there is none, or it is not known. */
  readonly stored?: StoredPlan | undefined;
  /** The error that `run` ends with because of that run; undefined: it ends with none. */
  readonly refusal?: JobError | undefined;
  /** Whether the target answered. */
  readonly isReached: boolean;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Compares the run that the target has with spec, input and model, as `run` does before it plans or scores, and looks at
 * what was decided on it. Changes nothing.
 * @throws JobError that `run` ends with before it knows which run the target has, unless a retry may succeed
 */
export async function checkStoredRun(context: JobContext): Promise<StoredRunCheck> {
  const { spec, sink, sha256 } = context;
  const none = { next: "plan", isReached: true, untried: [] } as const;
  const found = await orUntried("the target", async () => ({
    stored: await sink.find(runIdOf(spec.name, spec.params, sha256)),
  }));
  if ("untried" in found) {
    return { ...none, isReached: false, ...found };
  }
  const { stored } = found;
  if (stored === undefined) {
    return none;
  }
  const offered = await orUntried("the run that the target has", () => nextOrRefusal(context, stored));
  return { ...none, stored, ...offered };
}

type NextOrRefusal = Pick<StoredRunCheck, "next" | "refusal">;

/** @throws JobError that a retry may avoid */
async function nextOrRefusal(context: JobContext, stored: StoredPlan): Promise<NextOrRefusal> {
  try {
    return { next: await nextOf(context, stored) };
  } catch (error) {
    if (error instanceof JobError && error.exitCode !== 75) {
      return { next: "end", refusal: spellOut(context, error) };
    }
    throw error;
  }
}

/** What `run` does with a run that the target has. @throws JobError that it ends with because of that run */
async function nextOf(context: JobContext, stored: StoredPlan): Promise<StoredRunCheck["next"]> {
  if (stored.pruned !== undefined) {
    refusePruned(context, stored.pruned);
  }
  const run = await context.sink.open(stored);
  const { plan } = stored;
  refuseElsewhere(context, plan, run);
  const step = runStep(latestRun({ stored, run }), false);
  switch (step.kind) {
    case "refuse":
      throw unfinishedErasure(context, plan);
    case "report":
      throw await decidedError(context, { plan, run, state: step.state });
    case "compare with plan":
      await checkPublished(context, { stored, run, listing: await listInput(context) });
      return "end";
    case "score":
      return await nextOfUnfinished(context, { stored, run, listing: await listInput(context) });
    case "publish":
      return "finish";
    case "open next":
      return "plan";
    default:
      return assertNever(step);
  }
}

/** What `run` does with an unfinished run. @throws JobError if it cannot go on, and `run` would not begin another one in its place */
async function nextOfUnfinished(context: JobContext, planned: PlannedRun): Promise<StoredRunCheck["next"]> {
  const { stored, run } = planned;
  try {
    const { model } = await checkResumable(context, planned);
    checkRejects(context, stored.plan, run);
    return model === undefined ? "finish" : "resume";
  } catch (error) {
    const isChange = error instanceof JobError && error.exitCode === 66;
    if (isChange && (await hasOnlyFailed(context, stored.plan, run))) {
      return "plan";
    }
    throw error;
  }
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
