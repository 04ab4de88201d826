import { JobError } from "../../base/errors.js";
import { sameSeries } from "../../run/plan/identity.js";
import type { Plan } from "../../run/plan/plan.js";
import type { Session } from "./connections.js";
import { type Control, plannedTarget } from "./control.js";
import { showTable, type TableName } from "./table.js";

/**
 * Stops a run when the table holds rows of a newer run of the same job, with other params: yesterday's rows would
 * replace today's. The run for the later date is the newer one; where either has no date, the one planned later. Called
 * in the transaction that publishes, when that holds the locks that the newer run's transaction needs for the same rows.
 * So either the newer run is seen here, or it publishes after this one.
 * @throws JobError OUTPUT_NEWER
 */
export type RefuseNewer = (session: Session, plan: Plan) => Promise<void>;

interface NewerRun {
  readonly run_id: string;
  /** Whether it is newer by its logical date; else by when it was planned. */
  readonly by_date: boolean;
  readonly params: Readonly<Record<string, string>>;
}

/** @param allowOlder publish anyway, with a warning */
export function newerRunCheck(
  control: Control,
  name: TableName,
  allowOlder: boolean,
  warn: (message: string) => void,
): RefuseNewer {
  /** Newer runs that do not concern this one: their params are read once. */
  const passed = new Set<string>();
  return async (session, plan) => {
    for (const { run_id: newer, by_date: byDate } of await newerRuns(session, control, plan, passed)) {
      const found = `writing to ${showTable(name)}: run ${newer} ${byDate ? "is for a later date than" : "was planned after"} ${plan.runId}, and has published to this table`;
      if (!allowOlder) {
        throw new JobError("OUTPUT_NEWER", found, { hint: hintFor(plan) });
      }
      passed.add(newer);
      const replaced = replacesAll(plan) ? "the whole table" : "rows with the same keys";
      warn(`${found}; this older run may replace ${replaced}, as --allow-older says`);
    }
  };
}

/**
 * Finds the runs whose rows this run's would replace: those for a later date, or, where either run has no date or the
 * dates are equal, those planned later, that have published rows in the same table, without `passed`. Adds those that do not concern it to `passed`.
 */
async function newerRuns(
  session: Session,
  control: Control,
  plan: Plan,
  passed: Set<string>,
): Promise<readonly NewerRun[]> {
  const runs = control.table("runs");
  const { rows } = await session.query<NewerRun>({
    text: `SELECT n.run_id, n.params, coalesce(n.logical_date > r.logical_date, false) AS by_date FROM ${runs} r
      JOIN ${runs} n ON n.job = r.job AND n.target = r.target AND n.base <> r.base
        AND CASE WHEN n.logical_date <> r.logical_date THEN n.logical_date > r.logical_date
          ELSE (n.planned_at, n.run_id) > (r.planned_at, r.run_id) END
      WHERE r.run_id = $1 AND n.run_id <> ALL ($2::text[]) AND ${hasRowsSql(control)}
      ORDER BY n.planned_at DESC`,
    values: [plan.runId, [...passed]],
  });
  return rows.filter(({ run_id: newer, params }) => {
    const isOfSeries = replacesAll(plan) || sameSeries(plan.params, params);
    if (!isOfSeries) {
      passed.add(newer);
    }
    return isOfSeries;
  });
}

/** In mode upsert, rows of several series can be in one table. */
function replacesAll(plan: Plan): boolean {
  return plannedTarget(plan).mode === "replace";
}

/** Whether the newer rows have the same keys, or are any, is not known. */
function hintFor(plan: Plan): string {
  const stay = plan.staged || replacesAll(plan) ? "" : ", and so do the rows that this run has committed";
  const when = replacesAll(plan)
    ? "to replace the whole table with the rows of this older run"
    : "if rows of this older run may replace those with the same keys, or no key is in both runs";
  return `the newer rows stay${stay}; ${when}: run the same command with --allow-older`;
}

/** SQL for whether run `n` has published rows. A table that was rolled back no longer holds the run's rows. */
function hasRowsSql(control: Control): string {
  const [spans, finishes, swaps] = (["spans", "finishes", "swaps"] as const).map((name) => control.table(name));
  return `(n.mode = 'replace' OR EXISTS (SELECT FROM ${spans} s WHERE s.run_id = n.run_id AND s.rows > 0))
      AND (n.mode <> 'replace' AND NOT n.staged OR EXISTS (SELECT FROM ${finishes} f WHERE f.run_id = n.run_id))
      AND NOT EXISTS (SELECT FROM ${swaps} s WHERE s.run_id = n.run_id AND s.action = 'rollback')`;
}
