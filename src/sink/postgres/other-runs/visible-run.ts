import { splitRunId } from "../../../plan/identity.js";
import type { Plan, RunId } from "../../../plan/plan.js";
import { sameSeries } from "../../../plan/series.js";
import type { ReadersView, VisibleRun } from "../../../publish/readers-view.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { plannedTarget } from "../target.js";

/** The number of latest publications that are read. A table may have runs of other series. */
const publicationLimit = 200;

interface PublishedRow {
  readonly run_id: RunId;
  readonly job: string | null;
  readonly params: Plan["params"] | null;
}

/**
 * Finds whose rows readers find in the table of a plan: those of the run that was published last, and not rolled back.
 * Unless publications replace the whole table, it is the last run of the plan's series, and the rows of earlier ones are
 * in the table, too.
 */
export async function visibleRun(
  session: Session,
  control: Control,
  { plan, target }: { readonly plan: Plan; readonly target: string },
): Promise<ReadersView> {
  const { table } = control;
  const { rows } = await session.query<PublishedRow>({
    text: `SELECT f.run_id, r.job, r.params FROM ${table("finishes")} f LEFT JOIN ${table("runs")} r USING (run_id)
      WHERE f.target = $1
        AND NOT EXISTS (SELECT FROM ${table("swaps")} s WHERE s.run_id = f.run_id AND s.action = 'rollback')
      ORDER BY f.publication DESC LIMIT ${publicationLimit}`,
    values: [target],
  });
  if (plannedTarget(plan).mode === "replace") {
    return { run: await asVisible(session, control, rows[0]) };
  }
  const found = rows.find(({ job, params }) => job === plan.job && params !== null && sameSeries(params, plan.params));
  const { base } = splitRunId(plan.runId);
  const own = await asVisible(
    session,
    control,
    rows.find((row) => splitRunId(row.run_id).base === base),
  );
  return { run: await asVisible(session, control, found), kept: { own: own?.isEmpty === true ? undefined : own } };
}

async function asVisible(
  session: Session,
  { table }: Control,
  row: PublishedRow | undefined,
): Promise<VisibleRun | undefined> {
  if (row === undefined) {
    return undefined;
  }
  const { run_id: runId, params } = row;
  const { rows } = await session.query<{ some: boolean }>({
    text: `SELECT EXISTS (SELECT FROM ${table("spans")} WHERE run_id = $1 AND rows > 0) AS some`,
    values: [runId],
  });
  return { runId, params, isEmpty: rows[0]?.some !== true };
}
