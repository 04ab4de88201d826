import { JobError } from "../../util/errors.js";
import type { Plan } from "../../plan/plan.js";
import type { StoredPlan } from "../port.js";
import type { Session } from "./connections.js";
import { type CommittedSpan, readSpans } from "./control/spans.js";
import type { Control } from "./control/control.js";
import { damagedRun } from "./damage.js";
import { otherFiles } from "./control/emptied-table.js";
import { refuseOvertaken } from "./locks.js";
import type { Mode } from "./modes/mode.js";
import { showTable, type TableName } from "./names.js";
import { lastSwap } from "./modes/swap.js";
import { findTable, type FoundTable } from "./table.js";
import { plannedTarget } from "./target.js";

interface LookTools {
  readonly control: Control;
  readonly mode: Mode;
  readonly name: TableName;
  readonly warn: (message: string) => void;
}

/** What is committed of a run. `files`: see `otherFiles`. @throws JobError OUTPUT_DAMAGED when it cannot be, or its rows are gone */
export async function lookAtRun(
  session: Session,
  tools: LookTools,
  stored: StoredPlan,
): Promise<{ finished: boolean; spans: readonly CommittedSpan[]; files: string | undefined }> {
  const { control, mode } = tools;
  const { plan } = stored;
  const spans = await readSpans(session, control, stored);
  let finished = await control.isFinished(session, plan.runId);
  let name = mode.rowsAt(plan, { finished });
  let found = await findTable(session, name);
  if (found === undefined && !finished) {
    // Another attempt may have finished the run between two statements, and moved the rows.
    finished = await control.isFinished(session, plan.runId);
    name = mode.rowsAt(plan, { finished });
    found = await findTable(session, name);
  }
  const target = plannedTarget(plan);
  // A spec that names another target by now is told so when it is compared with the plan.
  if (target.table === showTable(tools.name) && target.mode === mode.kind) {
    await refuseLost(session, tools, stored, { name, found, finished, spans });
    if (finished && mode.kind === "replace") {
      await tellRollback(session, tools, stored);
    }
    if (!finished && spans.length > 0) {
      await lookAtOwn(session, tools, plan);
      const files =
        mode.dueRows === undefined ? undefined : await otherFiles(session, { name: tools.name, control, plan });
      return { finished, spans, files };
    }
  }
  return { finished, spans, files: undefined };
}

/** @throws JobError OUTPUT_DAMAGED, unless another attempt finished the run meanwhile, or a later run came */
async function lookAtOwn(session: Session, { control, mode }: LookTools, plan: Plan): Promise<void> {
  try {
    await mode.lookAtOwn?.(session, plan);
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error; // the transaction is aborted, and answers nothing more
    }
    await refuseOvertaken(session, control, plan.runId);
    if (!(await control.isFinished(session, plan.runId))) {
      throw error;
    }
  }
}

/**
 * Rows that are counted as committed went into a table: making it anew, or taking another one for it, would lose them
 * silently. What becomes of them once the run is finished is for their readers to say.
 */
async function refuseLost(
  session: Session,
  { control }: LookTools,
  { plan: { runId } }: StoredPlan,
  {
    name,
    found,
    finished,
    spans,
  }: {
    readonly name: TableName;
    readonly found: FoundTable | undefined;
    readonly finished: boolean;
    readonly spans: readonly CommittedSpan[];
  },
): Promise<void> {
  const lost = spans.find(({ table }) => found === undefined || (!finished && table !== found.oid));
  if (lost === undefined) {
    return;
  }
  await refuseOvertaken(session, control, runId); // which has taken it away
  const doing = `looking at table ${showTable(name)}: run ${runId} has rows in it, and it is gone`;
  if (found === undefined) {
    throw damagedRun(doing, { hint: "restore it", runId });
  }
  const moved = `UPDATE ${control.table("spans")} SET table_oid = ${found.oid} WHERE run_id = '${runId}'`;
  throw new JobError("OUTPUT_DAMAGED", `${doing}: this is another one of that name`, {
    hint: `restore it, or start over with --new-run. If its rows are here, as after a restore: ${moved}`,
    damage: { runId },
  });
}

/** A finished run stays finished when its rows were taken back; who runs it again should know. */
async function tellRollback(session: Session, tools: LookTools, { plan: { runId } }: StoredPlan): Promise<void> {
  const last = await lastSwap(session, tools.control, tools.name);
  if (last?.action === "rollback" && last.runId === runId) {
    tools.warn(`run ${runId} was rolled back: its rows are not in ${showTable(tools.name)}; --new-run scores it again`);
  }
}
