import { JobError } from "../../../util/errors.js";
import type { Target } from "../common/committed-parts.js";

/**
 * Checks for a later run after something was published; where there is one, takes back what this attempt published. In
 * S3 nothing prevents an object from being created too late, as a removed folder does on a disk.
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
