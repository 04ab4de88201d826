import type { RunId } from "../../../plan/plan.js";
import type { PreviousTable } from "../../../publish/prune-request.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { showTable, type TableName } from "../names.js";
import { followSwaps, type SwapRow } from "./follow-swaps.js";
import { lookAtTables } from "./kept-tables.js";

async function readSwaps(session: Session, control: Control, target: TableName): Promise<readonly SwapRow[]> {
  const { rows } = await session.query<SwapRow>({
    text: `SELECT run_id, kept, action FROM ${control.table("swaps")} WHERE target = $1 ORDER BY n`,
    values: [showTable(target)],
  });
  return rows;
}

/** The run whose rows are in a table that runs replace; undefined: none, or another mode writes it. */
export async function currentRun(session: Session, control: Control, target: TableName): Promise<RunId | undefined> {
  return followSwaps(await readSwaps(session, control, target)).current;
}

/** What a rollback of a table undoes; undefined: nothing is left to undo. */
export interface Undoable {
  /** The run that replaced the rows. */
  readonly runId: RunId;
  /** The table that keeps what it replaced; null: none does. */
  readonly kept: string | null;
  /** The run whose rows are kept there; undefined: no run wrote them. */
  readonly back: RunId | undefined;
}

/** Finds the last replacement of a table that no rollback has undone. */
export async function lastReplacement(
  session: Session,
  control: Control,
  target: TableName,
): Promise<Undoable | undefined> {
  const { standing, kept } = followSwaps(await readSwaps(session, control, target));
  return standing && { runId: standing.run_id, kept: standing.kept, back: kept.get(standing.kept ?? "") };
}

/** Finds the tables that swaps kept and that still exist, the newest first. */
export async function previousTables(
  session: Session,
  control: Control,
  target: TableName,
): Promise<readonly PreviousTable[]> {
  const { kept } = followSwaps(await readSwaps(session, control, target));
  const names = [...kept.keys()].toReversed();
  const found = await lookAtTables(
    session,
    names.map((table) => ({ schema: target.schema, table })),
  );
  return names.flatMap((table) => {
    const name = showTable({ schema: target.schema, table });
    const { bytes, keptBy } = found.get(name) ?? {};
    return bytes === undefined ? [] : [{ name, runId: kept.get(table), bytes, keptBy: keptBy ?? undefined }];
  });
}
