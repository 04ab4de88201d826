import { splitRunId } from "../../run/plan/identity.js";
import type { Plan, RunId } from "../../run/plan/plan.js";
import { splitTable } from "../../job/jobfile/output-spec.js";
import {
  answersTable,
  keysTable,
  type LeftTable,
  lookAtTables,
  quoteTable,
  showTable,
  stagedRowsTable,
  stagingTable,
  type TableName,
} from "./table.js";
import { classifyFailure, type Session, transact } from "./connections.js";
import { type Control, isFinished, plannedTarget, selectDocument } from "./control.js";
import type { PreviousTable } from "../../run/lifecycle/pruned-run.js";
import { decisionDocument } from "../../stores/ledger.js";
import { messageOf } from "../../base/errors.js";
import type { TableTools } from "./modes/mode.js";

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
  const tables = await lookAtTables(
    session,
    closed.flatMap((run) => leftoversOf(control, run)),
  );
  return tables.filter(({ mayDrop }) => !mayDrop);
}

async function ifClosed(session: Session, control: Control, plan: Plan): Promise<readonly PastRun[]> {
  const { runId } = plan;
  const isClosed =
    (await isFinished(session, control, runId)) ||
    (await selectDocument(session, control, runId, decisionDocument))?.kind === "discarded";
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
): Promise<readonly LeftTable[]> {
  const tables = await lookAtTables(
    session,
    runs.flatMap((run) => leftoversOf(control, run)),
  );
  return tables.filter(({ mayDrop }) => mayDrop);
}

/** A run that leaves tables of its own behind. */
export interface PastRun {
  readonly runId: RunId;
  /** `schema.table` */
  readonly target: string;
  readonly mode: string;
}

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

/** Drops tables that are no longer needed. Where it cannot find or drop them, it warns. `next`: added to these warnings. */
export async function dropTables(
  tools: TableTools,
  find: (session: Session) => Promise<readonly TableName[]>,
  next = "",
): Promise<void> {
  try {
    await dropEach(tools, await transact(tools, find), next);
  } catch (error) {
    tools.warn(`tables that are no longer needed could not be dropped: ${messageOf(error)}`);
  }
}

/** Drops tables, each in a transaction of its own. Warns of those that it cannot drop, and returns their names. */
export async function dropEach(
  tools: TableTools,
  tables: readonly TableName[],
  next = "",
): Promise<ReadonlySet<string>> {
  const left = new Set<string>();
  // The same table may be found in several ways.
  for (const [shown, name] of new Map(tables.map((table) => [showTable(table), table]))) {
    await transact(tools, (session) => session.query(`DROP TABLE IF EXISTS ${quoteTable(name)}`)).catch(
      (error: unknown) => {
        left.add(shown);
        tools.warn(`${unneededText(shown, foundIn(error))}${next}`);
      },
    );
  }
  return left;
}

/** Drops tables that keep what runs replaced, or only finds out which could be dropped; returns those. */
export async function prunePrevious(
  tools: TableTools,
  tables: readonly PreviousTable[],
  dryRun: boolean,
): Promise<readonly PreviousTable[]> {
  if (!dryRun) {
    const left = await dropEach(
      tools,
      tables.map(({ name }) => splitTable(name)),
    );
    return tables.filter(({ name }) => !left.has(name));
  }
  for (const { name, keptBy } of tables) {
    if (keptBy !== undefined) {
      tools.warn(unneededText(name, keptBy));
    }
  }
  return tables.filter(({ keptBy }) => keptBy === undefined);
}

function unneededText(table: string, why: string): string {
  return `table ${table} is no longer needed, and could not be dropped: ${why}`;
}

function foundIn(error: unknown): string {
  const failure = classifyFailure(error);
  return (failure.kind === "bug" ? messageOf(error) : failure.found).replaceAll(/\s*\n\s*/g, ", ");
}
