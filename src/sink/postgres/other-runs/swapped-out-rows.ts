import type { Plan } from "../../../plan/plan.js";
import { JobError } from "../../../util/errors.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { swapSince } from "../control/swaps.js";
import { refuseStopped } from "../locks.js";
import { type Mode, writesTarget } from "../modes/mode.js";
import { showTable, type TableName } from "../names.js";

interface RunOfTable {
  readonly control: Control;
  readonly mode: Mode;
  readonly name: TableName;
  readonly plan: Plan;
}

/** Says what has taken the rows of an unfinished run out of the target, as a clause; undefined: they are there. */
export async function whyGone(
  session: Session,
  { control, mode, name, plan: { runId } }: RunOfTable,
): Promise<string | undefined> {
  const found = writesTarget(mode) ? await swapSince(session, control, { runId, target: name }) : undefined;
  return (
    found &&
    (found.action === "replace"
      ? `run ${found.runId} has replaced all rows since`
      : `the rollback of run ${found.runId} has put back the rows from before`)
  );
}

/**
 * Refuses an unfinished run whose rows another run, or its rollback, has taken out of the target: otherwise its
 * committed spans would count as present. Staged runs are exempt: their rows are in staging tables.
 * @throws JobError OUTPUT_DAMAGED; PLAN_CHANGED when a later run was opened
 */
export async function refuseSwappedOut(session: Session, { control, mode, name, plan }: RunOfTable): Promise<void> {
  const { runId } = plan;
  const why = await whyGone(session, { control, mode, name, plan });
  if (why === undefined || (await control.isFinished(session, runId))) {
    return; // another attempt may have finished the run before the swap
  }
  await refuseStopped(session, control, plan);
  const newRun = mode.kind === "append" ? "--new-run --allow-duplicates" : "--new-run";
  const isHere = `UPDATE ${control.table("spans")} SET committed_at = clock_timestamp() WHERE run_id = '${runId}'`;
  throw new JobError(
    "OUTPUT_DAMAGED",
    `checking table ${showTable(name)}: run ${runId} has put rows into it, and they are gone: ${why}`,
    {
      hint: `restore them, or start over with ${newRun}. If the rows have been restored, run: ${isHere}`,
      damage: { runId },
    },
  );
}
