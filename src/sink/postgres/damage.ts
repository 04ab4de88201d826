import { type Damage, JobError } from "../../util/errors.js";

/** The error for damage to a run that a new run can replace. `hint`: another way to repair it. */
export function damagedRun(message: string, { hint, ...damage }: { readonly hint: string } & Damage): JobError {
  return new JobError("OUTPUT_DAMAGED", message, { hint: `${hint}, or start over with --new-run`, damage });
}
