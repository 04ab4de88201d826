import type { RunId } from "../../../plan/plan.js";
import type { PreviousTable } from "../../../publish/prune-request.js";
import type { Session } from "../connections.js";
import type { Control } from "../control/control.js";
import { showTable, type TableName } from "../names.js";
import { followSwaps, type SwapRow } from "./follow-swaps.js";

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

/** Finds the tables that swaps kept and that still exist, the newest first. */
export async function previousTables(
  session: Session,
  control: Control,
  target: TableName,
): Promise<readonly PreviousTable[]> {
  const { kept } = followSwaps(await readSwaps(session, control, target));
  const names = [...kept.keys()].toReversed();
  const { rows } = await session.query<{ table: string; bytes: string }>({
    text: `SELECT c.relname AS table, pg_total_relation_size(c.oid) AS bytes
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = ANY ($2)`,
    values: [target.schema, names],
  });
  const sizes = new Map(rows.map(({ table, bytes }) => [table, Number(bytes)]));
  return names.flatMap((table) => {
    const bytes = sizes.get(table);
    return bytes === undefined
      ? []
      : [{ name: showTable({ schema: target.schema, table }), runId: kept.get(table), bytes }];
  });
}
