import type { Plan, RunId } from "../../../plan/plan.js";
import { JobError } from "../../../util/errors.js";
import type { ReviewedPlan } from "../../port.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { readDecision, readVerdict } from "../control/decisions.js";
import { plannedTarget } from "../target.js";

/** The rows of a run stay in the table if another run scores only its rejects. @throws JobError USAGE where they cannot */
export function requireKeptRows(plan: Plan): "in_table" {
  const refused = whyNot(plan);
  if (refused !== undefined) {
    throw new JobError("USAGE", `planning run ${plan.runId}: ${refused.found}`, {
      hint: `score all rows with --new-run${refused.instead}`,
    });
  }
  return "in_table";
}

function whyNot(plan: Plan): { readonly found: string; readonly instead: string } | undefined {
  const { mode } = plannedTarget(plan);
  if (mode === "replace") {
    return {
      found: "output.postgres.mode is replace: a new table takes the place of the one that has the rows to keep",
      instead: "; with mode upsert, or with Parquet files, --only-rejects keeps the other rows",
    };
  }
  const alone = "a run of the rejects alone adds its rows to the table";
  if (plan.checks !== null) {
    return { found: `${alone}, and checks would compare them with whole runs`, instead: ", or remove `checks`" };
  }
  return mode === "append" && plan.contract.reuse !== undefined
    ? { found: `${alone} under its own run_id, and a later run would reuse only those`, instead: " --reuse" }
    : undefined;
}

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
