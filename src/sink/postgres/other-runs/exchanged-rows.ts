import type { Plan } from "../../../plan/plan.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { exchangeSince } from "../control/exchanges.js";
import { refuseStopped } from "../locks.js";
import type { Mode } from "../modes/mode.js";
import { showTable, type TableName } from "../names.js";

/**
 * Refuses an unfinished run whose rows another run, or its rollback, has taken out of the target: its committed spans
 * would count as there. Staged runs have their rows elsewhere.
 * @throws JobError OUTPUT_DAMAGED; PLAN_CHANGED when a later run was opened
 */
export async function refuseExchanged(
  session: Session,
  { control, mode, name, plan }: { control: Control; mode: Mode; name: TableName; plan: Plan },
): Promise<void> {
  const { runId } = plan;
  const found = mode.writtenRows && (await exchangeSince(session, control, { runId, target: name }));
  if (found === undefined || (await control.isFinished(session, runId))) {
    return; // another attempt may have finished the run before the exchange
  }
  await refuseStopped(session, control, plan);
  const why =
    found.action === "replace"
      ? `run ${found.runId} has replaced all rows since`
      : `the rollback of run ${found.runId} has put back the rows from before`;
  const isHere = `UPDATE ${control.table("spans")} SET committed_at = clock_timestamp() WHERE run_id = '${runId}'`;
  throw new JobError(
    "OUTPUT_DAMAGED",
    `checking table ${showTable(name)}: run ${runId} has put rows into it, and they are gone: ${why}`,
    {
      hint: `restore them, or start over with --new-run. If its rows are here, as after a restore: ${isHere}`,
      damage: { runId },
    },
  );
}
