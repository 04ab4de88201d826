import { splitRunId } from "../../../plan/identity.js";
import type { Plan, RunId } from "../../../plan/plan.js";
import { splitTable } from "../../../spec/postgres-spec.js";
import { answersTable } from "../answers.js";
import type { Session } from "../connections.js";
import { type Control, runConditions } from "../control/control.js";
import { decisionDocument } from "../../ledger.js";
import { readDocument } from "../control/documents.js";
import { stagingTable } from "../modes/replace.js";
import { stagedRowsTable } from "../modes/staged.js";
import { keysTable } from "../modes/upsert.js";
import { quoteTable, type TableName } from "../names.js";
import { plannedTarget } from "../target.js";

/**
 * Drops a run's own tables, also before the run begins: a person may have removed the run from the control tables, to
 * start over.
 */
export async function dropLeftovers(session: Session, control: Control, run: PastRun): Promise<void> {
  for (const name of await droppableTables(session, leftoversOf(control, run))) {
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
  const runs = await closedRuns(session, control, target);
  return await droppableTables(
    session,
    runs.flatMap((run) => leftoversOf(control, run)),
  );
}

/**
 * Finds the tables of their own that a published or discarded run, and the runs that it replaced, still have; none of any
 * other run, which needs them.
 */
export async function tablesToDrop(session: Session, control: Control, plan: Plan): Promise<readonly TableName[]> {
  const { runId } = plan;
  const { table: target, mode } = plannedTarget(plan);
  if (!(await isClosed(session, control, runId))) {
    return [];
  }
  const replaced = splitRunId(runId).number > 1 ? await abandonedRuns(session, control, runId) : [];
  return await droppableTables(
    session,
    [{ runId, target, mode }, ...replaced].flatMap((run) => leftoversOf(control, run)),
  );
}

async function isClosed(session: Session, control: Control, runId: RunId): Promise<boolean> {
  return (
    (await control.isFinished(session, runId)) ||
    (await readDocument(session, control, { runId, kind: decisionDocument }))?.kind === "discarded"
  );
}

/** A table that is no longer needed, and belongs to a role whose tables this one may not drop. */
export interface OthersTable extends TableName {
  readonly owner: string;
}

/** Finds the tables of their own that a published or discarded run still has, and that this role may not drop. */
export async function tablesOfOthers(session: Session, control: Control, plan: Plan): Promise<readonly OthersTable[]> {
  const { runId } = plan;
  if (!(await isClosed(session, control, runId))) {
    return [];
  }
  const { table: target, mode } = plannedTarget(plan);
  const found = await existingTables(session, leftoversOf(control, { runId, target, mode }));
  return found.filter(({ mayDrop }) => !mayDrop).map(({ owner, schema, table }) => ({ owner, schema, table }));
}

/** Names the tables of its own that a run may have. */
export function leftoversOf(control: Control, run: PastRun): readonly TableName[] {
  const { schema } = control;
  return [answersTable(schema, run.runId), ...rowTablesOf(control, run)];
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

/** Returns the tables that exist and that this role may drop. */
export async function droppableTables(session: Session, names: readonly TableName[]): Promise<readonly TableName[]> {
  const found = await existingTables(session, names);
  return found.filter(({ mayDrop }) => mayDrop).map(({ schema, table }) => ({ schema, table }));
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

interface PastRow {
  readonly run_id: RunId;
  readonly target: string;
  readonly mode: string;
}

function pastRun({ run_id: runId, target, mode }: PastRow): PastRun {
  return { runId, target, mode };
}

/** Reads the earlier runs of the same job and params that were not published: they are abandoned. */
export async function abandonedRuns(session: Session, { table }: Control, runId: RunId): Promise<readonly PastRun[]> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<PastRow>({
    text: `SELECT run_id, target, mode FROM ${table("runs")} r WHERE base = $1 AND number < $2
      AND ${runConditions(table).isUnfinished}`,
    values: [base, number],
  });
  return rows.map(pastRun);
}

/** Tables of older runs were dropped by the runs after them, except those of other roles. */
const closedLimit = 200;

/**
 * Reads the runs for a target that are over: published, discarded, or abandoned for a run that is one of these. Default: the
 * latest, a bounded number.
 */
export async function closedRuns(
  session: Session,
  { table }: Control,
  target: string,
  { all = false }: { readonly all?: boolean } = {},
): Promise<readonly PastRun[]> {
  const { isUnfinished, isDecided } = runConditions(table);
  const { rows } = await session.query<PastRow>({
    text: `SELECT run_id, target, mode FROM ${table("runs")} r WHERE target = $1
      AND (NOT (${isUnfinished}) OR ${isDecided("discarded")} OR EXISTS (
        SELECT FROM ${table("runs")} n WHERE n.base = r.base AND n.number > r.number AND run_id IN (
          SELECT run_id FROM ${table("finishes")} UNION ALL SELECT run_id FROM ${table("decisions")} WHERE kind = 'discarded')))
      ORDER BY planned_at DESC${all ? "" : ` LIMIT ${closedLimit}`}`,
    values: [target],
  });
  return rows.map(pastRun);
}

/**
 * Whether no run before this one has published a row: all of them are staged, and none is published. False where there is
 * none. It stays so once this run's plan is stored: an approved run that is being published meanwhile holds `lockRuns`.
 */
export async function nothingPublished(session: Session, { table }: Control, runId: RunId): Promise<boolean> {
  const { isUnfinished } = runConditions(table);
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<{ nothing: boolean | null }>({
    text: `SELECT bool_and(staged AND ${isUnfinished}) AS nothing
      FROM ${table("runs")} r WHERE base = $1 AND number < $2`,
    values: [base, number],
  });
  return rows[0]?.nothing === true;
}
