import type { Plan, RunId } from "../../../plan/plan.js";
import { sameSeries } from "../../../plan/series.js";
import type { VisibleRun } from "../../../publish/readers-view.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { plannedTarget } from "../target.js";

/** The number of latest publications that are read. A table may have runs of other series. */
const publicationLimit = 200;

/**
 * Finds the run whose rows readers find in the table of a plan: the one that was published last, and not rolled back.
 * Unless publications replace the whole table, it is the last one of the plan's series.
 */
export async function visibleRun(
  session: Session,
  { table }: Control,
  { plan, target }: { readonly plan: Plan; readonly target: string },
): Promise<VisibleRun | undefined> {
  const { rows } = await session.query<{ run_id: RunId; job: string | null; params: Plan["params"] | null }>({
    text: `SELECT f.run_id, r.job, r.params FROM ${table("finishes")} f LEFT JOIN ${table("runs")} r USING (run_id)
      WHERE f.target = $1
        AND NOT EXISTS (SELECT FROM ${table("swaps")} s WHERE s.run_id = f.run_id AND s.action = 'rollback')
      ORDER BY f.publication DESC LIMIT ${publicationLimit}`,
    values: [target],
  });
  const isReplaced = plannedTarget(plan).mode === "replace";
  const found = rows.find(
    ({ job, params }) => isReplaced || (job === plan.job && params !== null && sameSeries(params, plan.params)),
  );
  return found === undefined ? undefined : { runId: found.run_id, params: found.params };
}
