import { splitRunId } from "../../../plan/identity.js";
import type { RunId } from "../../../plan/plan.js";
import { splitTable } from "../../../spec/postgres-spec.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { runConditions } from "../control/run-conditions.js";
import { findTable } from "../table.js";

/**
 * Refuses a new run in place of one whose rows are for another table, which may be another job's of the same name: that job
 * could not finish its run, and would add its rows again. Admitted if its table is gone, which may have been renamed; if the
 * run is published, discarded or superseded; and if it has neither committed spans nor an approval.
 * @throws JobError PLAN_CHANGED
 */
export async function refuseTakingOver(
  session: Session,
  { table }: Control,
  { runId, target }: { readonly runId: RunId; readonly target: string },
): Promise<void> {
  const { base, number } = splitRunId(runId);
  const { isUnfinished, isDecided } = runConditions(table);
  const { rows } = await session.query<{ run_id: RunId; target: string; job: string; approved: boolean }>({
    text: `SELECT run_id, target, job, approved FROM (
        SELECT r.*, ${isDecided("approved")} AS approved FROM ${table("runs")} r WHERE base = $1 AND number < $2
        ORDER BY number DESC LIMIT 1) r
      WHERE target <> $3 AND ${isUnfinished} AND NOT ${isDecided("discarded")} AND NOT ${isDecided("superseded")}
        AND (approved OR EXISTS (SELECT 1 FROM ${table("spans")} s WHERE s.run_id = r.run_id))`,
    values: [base, number, target],
  });
  const [other] = rows;
  if (other === undefined) {
    return;
  }
  const found = await findTable(session, splitTable(other.target));
  if (found === undefined || !["r", "p"].includes(found.kind)) {
    return; // a view may have the name of a table that was renamed; no run can publish into it
  }
  const state = other.approved ? "is approved" : "has committed spans";
  throw new JobError(
    "PLAN_CHANGED",
    `opening run ${runId}: run ${other.run_id} for ${other.target} ${state} and is not published`,
    {
      hint: `if another job is called ${other.job}, too, give this job another name; else name ${other.target} in output.postgres.table again, and finish or discard that run, or run --new-run there; or drop that table if it is no longer needed`,
    },
  );
}
