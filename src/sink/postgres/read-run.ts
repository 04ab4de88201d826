import { JobError } from "../../util/errors.js";
import type { Plan } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import type { Opening, StoredPlan } from "../port.js";
import type { Session } from "./connections.js";
import { changedFiles, type CommittedSpan, readSpans, refuseSpansGone } from "./control/spans.js";
import { type Control, damagedRun } from "./control/control.js";
import type { RunState } from "../../publish/lifecycle.js";
import { readState } from "../ledger.js";
import { readDocument } from "./control/documents.js";
import { isRolledBack, refuseSwappedOut, swapSince } from "./control/swaps.js";
import { refuseStopped } from "./locks.js";
import { type TargetTools, writesTarget } from "./modes/mode.js";
import { showTable, type TableName } from "./names.js";
import { findTable, type FoundTable } from "./table.js";
import { plannedTarget } from "./target.js";

/** What is stored of a run. */
interface ReadRun {
  readonly state: RunState;
  readonly spans: readonly CommittedSpan[];
  /** The digest of the table's files, where they are others than those that took the spans: see `changedFiles`. */
  readonly files: string | undefined;
}

/** Reads what is committed of a run, and checks that its rows are there. @throws JobError OUTPUT_DAMAGED */
export async function readRun(
  session: Session,
  tools: TargetTools,
  stored: StoredPlan,
  { toDiscard }: Opening = { toDiscard: false },
): Promise<ReadRun> {
  const { control } = tools;
  const { plan } = stored;
  const mode = tools.modeOf(plan);
  let spans = await readSpans(session, control, stored);
  let finished = await control.isFinished(session, plan.runId);
  if (finished && spans.length < spanCount(plan)) {
    spans = await readSpans(session, control, stored); // another attempt may have finished it between both statements
  }
  let name = mode.rowsAt(plan, { finished });
  let found = await findTable(session, name);
  if (found === undefined && !finished) {
    // Another attempt may have finished the run between two statements, and moved the rows.
    finished = await control.isFinished(session, plan.runId);
    name = mode.rowsAt(plan, { finished });
    found = await findTable(session, name);
  }
  const state = await readState(plan, finished, (kind) => readDocument(session, control, plan.runId, kind));
  const target = plannedTarget(plan);
  const isOver = state.kind === "discarded" || state.kind === "superseded";
  if (isOver || (toDiscard && !finished)) {
    return { state, spans, files: undefined }; // its rows may be gone
  }
  // A spec that names another target is reported when it is compared with the plan.
  if (target.table === showTable(tools.name) && target.mode === mode.kind) {
    await refuseLost(session, control, plan, { name, found, finished, spans, isHeld: state.kind === "held" });
    if (!finished) {
      const isShared = mode.kind === "append" && writesTarget(mode);
      await refuseSpansGone(session, control, plan.runId, isShared ? showTable(name) : undefined);
    }
    if (finished && spans.length < spanCount(plan)) {
      throw damagedRun(
        `reading ${control.schema}.spans: run ${plan.runId} is finished, and only ${spans.length} of its ${spanCount(plan)} spans are there`,
        {
          hint: "the predictions are complete, and the control tables were changed: restore them from a backup",
          runId: plan.runId,
        },
      );
    }
    if (!finished && spans.length > 0) {
      await refuseSwappedOut(session, tools, plan);
      await checkOwnTables(session, tools, plan);
      const files = writesTarget(mode) ? await changedFiles(session, tools, plan) : undefined;
      return { state, spans, files };
    }
  }
  const rolledBack = finished && mode.kind === "replace" && (await isRolledBack(session, control, plan.runId));
  return { state: rolledBack ? { kind: "published", rolledBack } : state, spans, files: undefined };
}

/**
 * Checks the tables that an unfinished run has for itself. Ignores what is missing when another attempt has finished
 * the run.
 * @throws JobError OUTPUT_DAMAGED; PLAN_CHANGED when a later run was opened; DISCARDED
 */
async function checkOwnTables(session: Session, { control, modeOf }: TargetTools, plan: Plan): Promise<void> {
  try {
    await modeOf(plan).checkOwnTables?.(session, plan);
  } catch (error) {
    if (!(error instanceof JobError)) {
      throw error; // the transaction is aborted, and answers nothing more
    }
    await refuseStopped(session, control, plan);
    if (!(await control.isFinished(session, plan.runId))) {
      throw error;
    }
  }
}

/**
 * Refuses a table that is gone, or is another one, while committed spans have rows in it: to make it anew, or to take
 * the other one for it, would lose them silently. Of a finished run only the table's existence is checked: its rows may
 * have changed since.
 * @throws JobError OUTPUT_DAMAGED
 */
export async function refuseLost(
  session: Session,
  control: Control,
  plan: Plan,
  {
    name,
    found,
    finished,
    spans,
    isHeld,
  }: {
    readonly name: TableName;
    readonly found: FoundTable | undefined;
    readonly finished: boolean;
    readonly spans: readonly CommittedSpan[];
    readonly isHeld: boolean;
  },
): Promise<void> {
  const lost = spans.find(({ table }) => found === undefined || (!finished && table !== found.oid));
  if (lost === undefined) {
    return;
  }
  const { runId } = plan;
  if (!finished && found !== undefined && (await control.isFinished(session, runId))) {
    return; // another attempt has finished the run, and a later one may have replaced the table
  }
  await refuseStopped(session, control, plan); // a later run may have removed the table
  const doing = `checking table ${showTable(name)}: run ${runId} has rows in it, and it is gone`;
  const repair = isHeld ? "restore it, or discard the run" : "restore it";
  if (found === undefined) {
    throw damagedRun(doing, { hint: repair, runId });
  }
  const isSwapped = (await swapSince(session, control, { runId, target: name })) !== undefined;
  const since = isSwapped ? ", committed_at = clock_timestamp()" : "";
  const moved = `UPDATE ${control.table("spans")} SET table_oid = ${found.oid}${since} WHERE run_id = '${runId}'`;
  throw new JobError("OUTPUT_DAMAGED", `${doing}: this is another one of that name`, {
    hint: `${repair}, or start over with --new-run. If the rows have been restored, run: ${moved}`,
    damage: { runId },
  });
}
