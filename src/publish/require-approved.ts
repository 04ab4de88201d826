import type { RunId } from "../plan/plan.js";
import { JobError } from "../util/errors.js";
import type { Decision } from "./decision.js";

/**
 * Refuses to publish a staged run unless it is approved.
 * @throws JobError HELD without a decision, DISCARDED, PLAN_CHANGED for a superseded run
 */
export function requireApproved(decision: Decision | undefined, runId: RunId): void {
  switch (decision?.kind) {
    case "approved":
      return;
    case undefined:
      throw new JobError("HELD", `publishing run ${runId}: it is not approved`, {
        hint: "approve it, or discard it",
      });
    case "discarded":
      throw new JobError("DISCARDED", `publishing run ${runId}: ${decision.by} discarded it at ${decision.at}`, {
        hint: "a run with --new-run takes its place",
      });
    case "superseded":
      throw new JobError("PLAN_CHANGED", `publishing run ${runId}: run ${decision.successor ?? ""} takes its place`, {
        hint: "run the same command again: it continues that run",
      });
  }
}
