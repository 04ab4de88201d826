import type { Plan } from "../../plan/plan.js";
import type { JobContext } from "../../scoring/context.js";
import { JobError } from "../../util/errors.js";

/**
 * Makes the error for an erasure that lacks spans: they are copies, without the rows that were erased, so that it cannot
 * be scored. The next erasure replaces it; so does a new run.
 */
export function unfinishedErasure({ command }: Pick<JobContext, "command">, plan: Plan): JobError {
  const { runId, params, erasure } = plan;
  return new JobError(
    "NOT_ERASED",
    `resuming run ${runId}: ${erasure?.by ?? "someone"} began to erase rows of ${erasure?.of ?? "it"}, and has not finished`,
    {
      hint: `wait until infer-batch erase has finished, or run the same infer-batch erase again, which replaces this run; readers see the run before it. To score all rows instead: ${command(params)} --new-run`,
    },
  );
}

/** Refuses to score spans of the erasure that another process has planned as this attempt's run. @throws JobError PLAN_CHANGED */
export function refusePlannedErasure({ runId, erasure }: Plan): void {
  if (erasure !== undefined) {
    throw new JobError(
      "PLAN_CHANGED",
      `planning run ${runId}: ${erasure.by} has planned it, to erase rows of ${erasure.of}`,
      { hint: "run the same command again when infer-batch erase has ended" },
    );
  }
}
