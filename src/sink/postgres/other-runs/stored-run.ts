import type { RunId } from "../../../plan/plan.js";
import type { ReviewedPlan } from "../../port.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { readDecision, readVerdict } from "../control/decisions.js";

/** Reads a run by its id, in a transaction on control tables of some layout. */
export function storedRun(
  control: Control,
  runId: RunId,
): (session: Session, layout: number) => Promise<ReviewedPlan | undefined> {
  return async (session, layout) => {
    const stored = await control.readPlan(session, runId);
    const isReviewed = stored !== undefined && layout > 1; // layout 1 has no verdicts
    return (
      stored && {
        ...stored,
        verdict: isReviewed ? await readVerdict(session, control, runId) : undefined,
        decision: isReviewed ? await readDecision(session, control, runId) : undefined,
      }
    );
  };
}
