import { JobError } from "../../../util/errors.js";
import type { Target } from "../common/committed-parts.js";

/**
 * After something was published: whoever finds that a later run has come takes back what is its own. Nothing holds an
 * object back from being created late, as a folder that is gone does on a disk.
 */
export async function retractIfSuperseded(check: Target["check"], takeBack: () => Promise<unknown>): Promise<void> {
  try {
    await check();
  } catch (error) {
    if (error instanceof JobError && error.exitCode === 66) {
      await takeBack();
    }
    throw error;
  }
}
