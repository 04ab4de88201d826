import type { Plan } from "../../plan/plan.js";
import type { RunSink } from "../../sink/port.js";
import { JobError } from "../../util/errors.js";

/**
 * Refuses to score rows of an erasure: its spans are copies, without the rows that were erased. One that lacks spans, or
 * that another erasure supersedes, is replaced by the next erasure. @throws JobError NOT_ERASED
 */
export function refuseErasing({ runId, erasure }: Plan, { state, committed }: RunSink): void {
  const isOver = state.kind === "superseded" || committed.includes(0);
  if (erasure !== undefined && state.kind !== "published" && isOver) {
    throw new JobError(
      "NOT_ERASED",
      `resuming run ${runId}: ${erasure.by} began to erase rows of ${erasure.of}, and has not finished`,
      {
        hint: "wait until it has, or run the same infer-batch erase again, which replaces this run; readers see the run before it",
      },
    );
  }
}

/** Refuses to score spans of the erasure that another process has planned as this attempt's run. @throws JobError PLAN_CHANGED */
export function refuseErasure({ runId, erasure }: Plan): void {
  if (erasure !== undefined) {
    throw new JobError(
      "PLAN_CHANGED",
      `planning run ${runId}: ${erasure.by} has planned it, to erase rows of ${erasure.of}`,
      { hint: "run the same command again when infer-batch erase has ended" },
    );
  }
}
