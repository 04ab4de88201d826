import type { RunId } from "../../plan/plan.js";
import { type Damage, JobError } from "../../util/errors.js";

/** The error for damage to a run that a new run can replace. `hint`: another way to repair it. */
export function damagedRun(message: string, { hint, ...damage }: { readonly hint: string } & Damage): JobError {
  return new JobError("OUTPUT_DAMAGED", message, { hint: `${hint}, or start over with --new-run`, damage });
}

/**
 * The error for a run that appends and whose control rows of some spans are missing: only a look at the table tells
 * whether their rows are there. `notThere`: SQL that lets the run score them again.
 */
export function spansMissing(
  message: string,
  { runId, target, notThere }: { readonly runId: RunId; readonly target: string; readonly notThere: string },
): JobError {
  return new JobError("OUTPUT_DAMAGED", message, {
    hint: `rows of these spans may be in ${target} all the same: look for them there first. If they are, restore the control tables from a backup; or delete all rows of run ${runId} and start over with --new-run, which wants --allow-duplicates if rows of other runs stay. Only if none of them is there: ${notThere}; then run the same command again`,
    damage: { runId },
  });
}
