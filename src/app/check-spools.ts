import type { Plan } from "../plan/plan.js";
import { checkSpool, type SpoolOptions, spoolRoot } from "../util/spool.js";
import type { JobSpec } from "../spec/job-spec.js";
import { isObjectUri } from "../spec/object-uri.js";
import { JobError } from "../util/errors.js";

/**
 * Checks, for a dry run, the folders for temporary files that a run needs. Makes nothing. Returns the checks that would
 * have failed and that may not matter, a line each.
 * @param folder the folder of the spec
 * @throws JobError PERMISSION, USAGE, DISK
 */
export async function checkSpools(spec: JobSpec, plan: Plan, folder: string): Promise<readonly string[]> {
  const { input, output, checks } = spec;
  const inFiles = output.parquet !== undefined;
  const check = (use: SpoolOptions["use"], given?: string): Promise<void> =>
    checkSpool({ root: spoolRoot(folder, given), use });
  if (plan.input.shards.some(({ uri }) => isObjectUri(uri))) {
    await check("in", input.spool.path);
  }
  if (output.parquet !== undefined && isObjectUri(output.parquet.path)) {
    await check("out", output.parquet.spool?.path);
  }
  if (inFiles && checks?.unique !== undefined) {
    await check("keys");
  }
  // Rows go to a database through a file only if a span does not fit into its share of the memory.
  return inFiles ? [] : await lineOf("whether each span fits into memory", () => check("rows"));
}

/** The line for a check whose failure does not end a run by itself; none if it does not fail. */
async function lineOf(what: string, work: () => Promise<void>): Promise<readonly string[]> {
  try {
    await work();
    return [];
  } catch (error) {
    if (error instanceof JobError) {
      return [`${what}: ${error.message}`];
    }
    throw error;
  }
}
