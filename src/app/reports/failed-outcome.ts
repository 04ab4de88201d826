import type { FailedOutcome } from "../../report/outcome.js";
import { exitCodeOf, JobError, messageOf } from "../../util/errors.js";
import { finalError } from "../machine-errors.js";

/** Returns the outcome of an attempt that ended with the error `thrown`. */
export function failedBy(thrown: unknown): FailedOutcome {
  const error = finalError(thrown);
  const known = error instanceof JobError ? error : undefined;
  return {
    kind: "failed",
    code: known?.code ?? "BUG",
    message: messageOf(error),
    hint: known?.hint,
    exitCode: exitCodeOf(error),
  };
}
