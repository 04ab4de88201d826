import type { RunId } from "../../../plan/plan.js";
import type { TableErasure } from "../../../publish/erasure.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import type { PastRun } from "../control/other-runs.js";
import { runConditions } from "../control/run-conditions.js";
import type { RunTools } from "../run-tools.js";

interface OpenRun {
  readonly run_id: RunId;
  readonly job: string;
  readonly mode: string;
  readonly params: Record<string, string>;
  readonly held: boolean;
  /** Whether it is the kept predictions of a challenger. */
  readonly kept: boolean;
}

/**
 * Refuses to erase while a run for the target is unfinished or held. Returns the kept predictions that are unfinished, and
 * that no attempt continues. @throws JobError NOT_ERASED
 */
export async function refuseOpenRuns(
  session: Session,
  { control: { table } }: RunTools,
  target: string,
  { job, command, isKeptOver }: TableErasure,
): Promise<readonly PastRun[]> {
  const { isUnfinished, isDecided, isHeld } = runConditions(table);
  const { rows } = await session.query<OpenRun>({
    text: `SELECT run_id, job, mode, params, ${isHeld} AS held, plan ~ '"kept": *true' AS kept FROM ${table("runs")} r
      WHERE target = $1 AND ${isUnfinished} AND NOT ${isDecided("discarded")}
      AND NOT EXISTS (SELECT 1 FROM ${table("runs")} l WHERE l.base = r.base AND l.number > r.number) ORDER BY planned_at`,
    values: [target],
  });
  const isOver = (run: OpenRun): boolean => run.kept && run.job === job && isKeptOver?.(run.params) === true;
  const open = rows.find((run) => !isOver(run));
  if (open !== undefined) {
    const { run_id: runId, held, params } = open;
    const older = open.mode === "append" ? "" : " (with --allow-older, if a newer run has published to the table)";
    const line = held ? command(params, { verb: "approve", runId }) : command(params);
    const how =
      open.job === job
        ? `${line}${older}`
        : `it belongs to job ${open.job}: use the spec of that job, or give this job its name`;
    throw new JobError(
      "NOT_ERASED",
      `erasing rows of ${target}: run ${runId} is ${held ? "held by its checks" : "not finished"}, so nothing was erased`,
      {
        hint: `${held ? "approve or discard it" : "finish it"}: ${how}\n    then run the same infer-batch erase again`,
      },
    );
  }
  return rows.map(({ run_id: runId, mode }) => ({ runId, target, mode }));
}
