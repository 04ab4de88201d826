import { splitRunId } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import {
  type TableName,
  answersTable,
  keysTable,
  quoteTable,
  showTable,
  stagedRowsTable,
  stagingTable,
} from "./table.js";
import { type Session, classify, transact } from "./connections.js";
import { type Control, plannedTarget, readDocument } from "./control.js";
import { decisionDocument } from "../ledger.js";
import { messageOf } from "../../util/errors.js";
import type { RunTools } from "./modes/mode.js";
import { splitTable } from "../../spec/output-spec.js";

/**
 * Drops a run's own tables, also before the run begins: a person may have removed the run from the control tables, to
 * start over.
 */
export async function dropLeftovers(session: Session, control: Control, run: PastRun): Promise<void> {
  for (const name of await droppableTables(session, control, [run])) {
    await session.query(`DROP TABLE IF EXISTS ${quoteTable(name)}`);
  }
}

/**
 * Finds the tables of their own (staged rows, keys, answers) that the runs of one target which are over still have. Only the
 * latest runs are searched, of all jobs.
 */
export async function tablesOfClosedRuns(
  session: Session,
  control: Control,
  target: string,
): Promise<readonly TableName[]> {
  return await droppableTables(session, control, await closedRuns(session, control, target));
}

/**
 * Finds the tables of their own that a published or discarded run, and the runs that it replaced, still have; none of any
 * other run, which needs them.
 */
export async function tablesToDrop(session: Session, control: Control, plan: Plan): Promise<readonly TableName[]> {
  const closed = await ifClosed(session, control, plan);
  const isLater = closed.length > 0 && splitRunId(plan.runId).number > 1;
  const replaced = isLater ? await abandonedRuns(session, control, plan.runId) : [];
  return await droppableTables(session, control, [...closed, ...replaced]);
}

/** Finds the tables of its own that a published or discarded run still has, and that this role may not drop. */
export async function tablesOfOthers(session: Session, control: Control, plan: Plan): Promise<readonly LeftTable[]> {
  const closed = await ifClosed(session, control, plan);
  const tables = await existingTables(
    session,
    closed.flatMap((run) => leftoversOf(control, run)),
  );
  return tables.filter(({ mayDrop }) => !mayDrop);
}

/** The run of a plan if it is published or discarded; else none. */
async function ifClosed(session: Session, control: Control, plan: Plan): Promise<readonly PastRun[]> {
  const { runId } = plan;
  const isClosed =
    (await control.isFinished(session, runId)) ||
    (await readDocument(session, control, runId, decisionDocument))?.kind === "discarded";
  const { table: target, mode } = plannedTarget(plan);
  return isClosed ? [{ runId, target, mode }] : [];
}

function leftoversOf(control: Control, run: PastRun): readonly TableName[] {
  return [answersTable(control.schema, run.runId), ...rowTablesOf(control, run)];
}

/** Names the tables of its own in which a run may have rows, or keys of rows. */
export function rowTablesOf({ schema }: Control, { runId, target, mode }: PastRun): readonly TableName[] {
  switch (mode) {
    case "append":
      return [stagedRowsTable(schema, runId)];
    case "upsert":
      return [stagedRowsTable(schema, runId), keysTable(schema, runId)];
    case "replace":
      return [stagingTable(splitTable(target), runId)];
    default:
      return [];
  }
}

/** Returns the tables of their own that runs still have, and that this role may drop. */
export async function droppableTables(
  session: Session,
  control: Control,
  runs: readonly PastRun[],
): Promise<readonly TableName[]> {
  const tables = await existingTables(
    session,
    runs.flatMap((run) => leftoversOf(control, run)),
  );
  return tables.filter(({ mayDrop }) => mayDrop).map(({ schema, table }) => ({ schema, table }));
}

/** A table of its own that a run has left. */
export interface LeftTable extends TableName {
  readonly owner: string;
  /** Whether this role may drop the table. */
  readonly mayDrop: boolean;
  /** Whether this role may erase rows of the table. */
  readonly mayErase: boolean;
  /** The name of this role. */
  readonly role: string;
}

/** Returns the tables that exist. */
export async function existingTables(session: Session, names: readonly TableName[]): Promise<readonly LeftTable[]> {
  const { rows } = await session.query<LeftTable>({
    text: `SELECT w.schema, w.table, pg_get_userbyid(c.relowner) AS owner, pg_has_role(c.relowner, 'USAGE') AS "mayDrop",
        has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'DELETE') AS "mayErase", current_user AS role
      FROM unnest($1::text[], $2::text[]) AS w (schema, "table")
      JOIN pg_namespace n ON n.nspname = w.schema JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.table`,
    values: [names.map(({ schema }) => schema), names.map(({ table }) => table)],
  });
  return rows;
}

/** A run that leaves tables of its own behind. */
export interface PastRun {
  readonly runId: RunId;
  /** `schema.table` */
  readonly target: string;
  readonly mode: string;
}

/** Reads the earlier runs of the same job and params that were not published: they are abandoned. */
async function abandonedRuns(session: Session, { table, where }: Control, runId: RunId): Promise<readonly PastRun[]> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<PastRun>({
    text: `SELECT run_id AS "runId", target, mode FROM ${table("runs")} r WHERE base = $1 AND number < $2
      AND ${where.isUnfinished}`,
    values: [base, number],
  });
  return rows;
}

/** Tables of older runs were dropped by the runs after them, except those of other roles. */
const closedLimit = 200;

/**
 * Reads the runs for a target that are over: published, discarded, or abandoned for a run that is one of these. Default: the
 * latest, a bounded number.
 */
export async function closedRuns(
  session: Session,
  { table, where }: Control,
  target: string,
  limit: number | null = closedLimit,
): Promise<readonly PastRun[]> {
  const { rows } = await session.query<PastRun>({
    text: `SELECT run_id AS "runId", target, mode FROM ${table("runs")} r WHERE target = $1
      AND (NOT (${where.isUnfinished}) OR ${where.isDecided("discarded")} OR EXISTS (
        SELECT FROM ${table("runs")} n WHERE n.base = r.base AND n.number > r.number AND run_id IN (
          SELECT run_id FROM ${table("finishes")} UNION ALL SELECT run_id FROM ${table("decisions")} WHERE kind = 'discarded')))
      ORDER BY planned_at DESC LIMIT $2`,
    values: [target, limit],
  });
  return rows;
}

/** Drops tables, each in a transaction of its own. Warns about those that it cannot drop. `next`: added to these warnings. */
export async function dropTables(
  tools: RunTools,
  find: (session: Session) => Promise<readonly TableName[]>,
  next = "",
): Promise<void> {
  const { warn } = tools;
  try {
    // The same table may be found in several ways.
    for (const name of new Map((await transact(tools, find)).map((one) => [quoteTable(one), one])).values()) {
      await transact(tools, (session) => session.query(`DROP TABLE IF EXISTS ${quoteTable(name)}`)).catch(
        (error: unknown) => {
          warn(`table ${showTable(name)} is no longer needed, and could not be dropped: ${foundIn(error)}${next}`);
        },
      );
    }
  } catch (error) {
    warn(`tables that are no longer needed could not be dropped: ${messageOf(error)}`);
  }
}

/** What the server says, on one line: of a view that depends on a table, its name. */
function foundIn(error: unknown): string {
  const failure = classify(error);
  return (failure.kind === "bug" ? messageOf(error) : failure.found).replaceAll(/\s*\n\s*/g, ", ");
}
