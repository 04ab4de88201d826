import type { RunId } from "../../plan/plan.js";
import { splitTable } from "../../spec/postgres-spec.js";
import type { Session } from "./connections.js";
import type { Control, AbandonedRun } from "./control/control.js";
import { quoteTable, type TableName } from "./names.js";
import { stagingTable } from "./modes/replace.js";
import { keysTable } from "./modes/upsert.js";

/**
 * Drops the tables of earlier, abandoned runs. Their attempts are fenced, so none of them makes a table again. A table
 * that belongs to another role stays: that is no reason to fail.
 */
export async function clearAbandonedRuns(session: Session, control: Control, runId: RunId): Promise<void> {
  for (const run of await control.abandonedRuns(session, runId)) {
    await dropLeftover(session, control, run);
  }
}

/**
 * Drops a run's own table, also before the run begins: somebody may have removed the run from the control tables, to
 * start over.
 */
export async function dropLeftover(session: Session, control: Control, run: AbandonedRun): Promise<void> {
  const name = leftoverOf(control, run);
  if (name !== undefined && (await isOwned(session, name))) {
    await session.query(`DROP TABLE IF EXISTS ${quoteTable(name)}`);
  }
}

function leftoverOf({ schema }: Control, { runId, target, mode }: AbandonedRun): TableName | undefined {
  switch (mode) {
    case "upsert":
      return keysTable(schema, runId);
    case "replace":
      return stagingTable(splitTable(target), runId);
    default:
      return undefined; // append has no table of its own
  }
}

async function isOwned(session: Session, { schema, table }: TableName): Promise<boolean> {
  const { rows } = await session.query({
    text: `SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname = $2 AND pg_has_role(c.relowner, 'USAGE')`,
    values: [schema, table],
  });
  return rows.length > 0;
}
