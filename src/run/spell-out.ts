import type { JobContext } from "../scoring/context.js";
import { JobError, reworded } from "../util/errors.js";

/**
 * Writes `--new-run` in the hint of an error as the command line to type. Who makes the error, such as a target, does not
 * know the spec.
 */
export function spellOut<T>({ command, spec }: Pick<JobContext, "command" | "spec">, error: T): T | JobError {
  if (!(error instanceof JobError) || error.hint === undefined || error.hint.includes("infer-batch run ")) {
    return error;
  }
  const hint = error.hint.replaceAll(/(\brun )?--new-run/g, `${command(spec.params)} --new-run`);
  return reworded(error, { hint });
}
