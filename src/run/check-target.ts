import type { Plan } from "../plan/plan.js";
import type { JobContext } from "../scoring/context.js";
import { JobError } from "../util/errors.js";
import { type RunState, runState } from "./state.js";

/** The findings of a dry run at the target. */
export interface TargetCheck {
  /** The state of the run; undefined: the target could not be reached. */
  readonly state: RunState | undefined;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Checks the target as a run does before it scores: the target is reachable and belongs to this job, and a run that is
 * not planned yet could begin. Changes nothing.
 * @throws JobError that a run would end with, unless a retry may succeed
 */
export async function checkTarget(context: JobContext, plan: Plan): Promise<TargetCheck> {
  try {
    const state = await runState(context);
    if (state.error !== undefined) {
      throw state.error;
    }
    return { state, untried: state.status === "not_planned" ? ((await context.sink.rehearse?.(plan)) ?? []) : [] };
  } catch (error) {
    if (error instanceof JobError && error.exitCode === 75) {
      return { state: undefined, untried: [`the target: ${error.message}`] };
    }
    throw error;
  }
}
