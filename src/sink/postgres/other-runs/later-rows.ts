import type { RunId } from "../../../plan/plan.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { runConditions } from "../control/run-conditions.js";
import { showTable, type TableName } from "../names.js";

interface LaterRun {
  readonly run_id: RunId;
  readonly published: boolean;
}

/** The number of runs that a message names. */
const namedLimit = 5;

/**
 * Refuses to roll back a replacement if other runs have put rows into the table since, because a rollback would remove
 * those rows, too. The caller holds a lock that writers of the table wait for. @throws JobError OUTPUT_NEWER
 */
export async function refuseLaterRows(
  session: Session,
  control: Control,
  { replacedBy, target, before }: LaterRowsOptions,
): Promise<void> {
  const runs = await laterRuns(session, control, { replacedBy, target });
  if (runs.length === 0) {
    return;
  }
  const shown = runs
    .slice(0, namedLimit)
    .map(({ run_id: runId, published }) => `${runId}${published ? "" : " (not finished)"}`);
  const more = runs.length > namedLimit ? ` and ${runs.length - namedLimit} more` : "";
  const have = runs.length === 1 ? `run ${shown.join("")} has` : `runs ${shown.join(", ")}${more} have`;
  throw new JobError(
    "OUTPUT_NEWER",
    `rolling back ${showTable(target)}: ${have} put rows into it since run ${replacedBy} replaced it, and a rollback would take them out`,
    {
      hint: `nothing was changed; the rows from before run ${replacedBy} are in ${showTable(before)}: copy the rows that readers need from there`,
    },
  );
}

interface LaterRowsOptions {
  /** The run whose replacement is to be undone. */
  readonly replacedBy: string;
  readonly target: TableName;
  /** The table that keeps what was replaced. */
  readonly before: TableName;
}

/**
 * Finds the runs that have put rows into the target since its replacement. Abandoned runs are excluded: a
 * later run has superseded them.
 */
async function laterRuns(
  session: Session,
  { table }: Control,
  { replacedBy, target }: Omit<LaterRowsOptions, "before">,
): Promise<readonly LaterRun[]> {
  const { isUnfinished } = runConditions(table);
  const spans = `FROM ${table("spans")} s WHERE s.run_id = r.run_id AND s.rows > 0`;
  const hasSpans = `EXISTS (SELECT ${spans} AND s.committed_at >
    (SELECT max(at) FROM ${table("swaps")} WHERE target = $1 AND run_id = $2 AND action = 'replace'))`;
  // Spans of staged runs are put there together.
  const isPublished = `EXISTS (SELECT ${spans}) AND EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id
    AND f.publication > (SELECT coalesce(max(publication), 0) FROM ${table("finishes")} WHERE run_id = $2))`;
  const { rows } = await session.query<LaterRun>({
    text: `SELECT run_id, NOT (${isUnfinished}) AS published FROM ${table("runs")} r
      WHERE r.target = $1 AND r.run_id <> $2 AND r.mode <> 'replace'
        AND CASE WHEN r.staged THEN ${isPublished} ELSE ${hasSpans} END
        AND NOT (${isUnfinished} AND EXISTS (SELECT FROM ${table("runs")} l WHERE l.base = r.base AND l.number > r.number))
      ORDER BY planned_at`,
    values: [showTable(target), replacedBy],
  });
  return rows;
}
