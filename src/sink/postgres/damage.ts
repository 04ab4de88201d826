import { type Damage, JobError } from "../../util/errors.js";

/** Something of a run is gone or was changed that a new run can do without. `hint`: what else can be done. */
export function damagedRun(message: string, { hint, ...damage }: { readonly hint: string } & Damage): JobError {
  return new JobError("OUTPUT_DAMAGED", message, { hint: `${hint}, or start over with --new-run`, damage });
}
