import type { JobContext } from "../../scoring/context.js";
import { JobError } from "../../util/errors.js";

/** What could not be done, in place of its result. */
export interface Failure {
  /** The message of the error. */
  readonly failed: string;
}

/** Does what a dry run can do without: returns the message of the JobError that `work` ends with, unless a signal ended it. */
export async function orFailure<T>(
  { signal }: Pick<JobContext, "signal">,
  work: () => Promise<T>,
): Promise<T | Failure> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && !signal.aborted) {
      return { failed: error.message };
    }
    throw error;
  }
}
