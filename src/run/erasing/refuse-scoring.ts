import type { Plan } from "../../plan/plan.js";
import type { JobContext } from "../../scoring/context.js";
import type { RunSink } from "../../sink/port.js";
import { JobError } from "../../util/errors.js";

/**
 * Refuses to score rows of an erasure: its spans are copies, without the rows that were erased. The next erasure replaces
 * one that lacks spans or is superseded; so does a new run. @throws JobError NOT_ERASED
 */
export function refuseUnfinishedErasure({ command }: Pick<JobContext, "command">, plan: Plan, run: RunSink): void {
  const { runId, params, erasure } = plan;
  if (erasure !== undefined && needsAnotherRun(run)) {
    throw new JobError(
      "NOT_ERASED",
      `resuming run ${runId}: ${erasure.by} began to erase rows of ${erasure.of}, and has not finished`,
      {
        hint: `wait until infer-batch erase has finished, or run the same infer-batch erase again, which replaces this run; readers see the run before it. To score all rows instead: ${command(params)} --new-run`,
      },
    );
  }
}

/** Whether only another run can take the place of an unfinished erasure. */
export function needsAnotherRun({ state, committed }: Pick<RunSink, "state" | "committed">): boolean {
  return state.kind === "superseded" || (state.kind === "unfinished" && committed.includes(0));
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
