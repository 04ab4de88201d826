import type { RunId } from "../../plan/plan.js";
import { type Damage, JobError } from "../../util/errors.js";

/** The error for damage to a run that a new run can replace. `hint`: another way to repair it. */
export function damagedRun(message: string, { hint, ...damage }: { readonly hint: string } & Damage): JobError {
  return new JobError("OUTPUT_DAMAGED", message, { hint: `${hint}, or start over with --new-run`, damage });
}

/**
 * What to do where control rows of a run are missing: only a look at the table tells whether its rows are there.
 * `notThere`: SQL that lets the run score them again.
 */
export function lookFirst(runId: RunId, target: string, notThere: string): string {
  return `rows of run ${runId} may be in ${target} all the same, so look for them there first. If they are, restore the control tables from a backup; or delete these rows, and start over with --new-run --allow-duplicates. If they are not: ${notThere}; then run the same command again`;
}
