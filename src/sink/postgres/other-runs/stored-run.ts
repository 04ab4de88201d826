import type { RunId } from "../../../plan/plan.js";
import type { ReviewedPlan } from "../../port.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { readDecision, readVerdict } from "../control/decisions.js";

/** Reads a run by its id, in a transaction. */
export function storedRun(control: Control, runId: RunId): (session: Session) => Promise<ReviewedPlan | undefined> {
  return async (session) => {
    const stored = await control.readPlan(session, runId);
    return (
      stored && {
        ...stored,
        verdict: await readVerdict(session, control, runId),
        decision: await readDecision(session, control, runId),
      }
    );
  };
}
