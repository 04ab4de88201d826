import type { Plan, RunId } from "../../run/plan/plan.js";
import type { Session } from "./connections.js";
import { lookAtTables, oidOf, showTable, type TableName } from "./table.js";
import { type Control, isFinished, refuseStoppedRun } from "./control.js";
import type { PreviousTable } from "../../run/lifecycle/pruned-run.js";
import { JobError } from "../../base/errors.js";
import { type TargetTools, writesTarget } from "./modes/mode.js";

/**
 * SQL for `committed_at` of a span. It is later than every swap that the transaction sees. `last`: SQL for the number
 * of the last swap that the attempt has seen, so that few rows are read.
 */
export function committedAtSql({ table }: Control, target: string, last: string): string {
  return `greatest(clock_timestamp(), (SELECT max(at) + interval '1 microsecond' FROM ${table("swaps")} WHERE n >= ${last} AND target = ${target}))`;
}

/** No earlier than any span that an unfinished run has committed to the target. */
function swappedAtSql({ table }: Control, target: string): string {
  return `greatest(clock_timestamp(), (SELECT max(s.committed_at) FROM ${table("spans")} s JOIN ${table("runs")} r USING (run_id)
    WHERE r.target = ${target} AND r.mode <> 'replace' AND NOT EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id)))`;
}

/** Records a swap of the target, which this transaction has made. */
export async function recordSwap(session: Session, control: Control, target: TableName, swap: SwapRow): Promise<void> {
  await session.query({
    text: `INSERT INTO ${control.table("swaps")} (target, run_id, kept, action, table_oid, at)
      VALUES ($1, $2, $3, $4, $5, ${swappedAtSql(control, "$1")})`,
    values: [showTable(target), swap.run_id, swap.kept, swap.action, await oidOf(session, target)],
  });
}

/** Whether a rollback has put back the table that a run had replaced. No swap brings its rows in again. */
export async function hasRollback(session: Session, control: Control, runId: RunId): Promise<boolean> {
  const { rows } = await session.query({
    text: `SELECT FROM ${control.table("swaps")} WHERE run_id = $1 AND action = 'rollback' LIMIT 1`,
    values: [runId],
  });
  return rows.length > 0;
}

/** The number of the target's last swap, as text; 0: there is none. */
export async function lastSwapNumber(session: Session, control: Control, target: TableName): Promise<string> {
  const { rows } = await session.query<{ n: string }>({
    text: `SELECT coalesce(max(n), 0)::text AS n FROM ${control.table("swaps")} WHERE target = $1`,
    values: [showTable(target)],
  });
  return rows[0]?.n ?? "0";
}

/**
 * Finds a swap that took the run's rows out of the target. Swaps and spans wait for each other's locks, so the order of
 * their times is the order of their commits. A replacement that was rolled back does not count: its rollback has put
 * back what it replaced.
 */
export async function swapSince(
  session: Session,
  { table }: Control,
  { runId, target }: { readonly runId: RunId; readonly target: TableName },
): Promise<Omit<SwapRow, "kept"> | undefined> {
  const { rows } = await session.query<Omit<SwapRow, "kept">>({
    text: `WITH since AS (SELECT n, run_id, action FROM ${table("swaps")}
        WHERE target = $2 AND at >= (SELECT min(committed_at) FROM ${table("spans")} WHERE run_id = $1 AND rows > 0))
      SELECT run_id, action FROM since
      WHERE NOT EXISTS (SELECT FROM since o WHERE o.run_id = since.run_id AND o.action <> since.action)
      ORDER BY n DESC LIMIT 1`,
    values: [runId, showTable(target)],
  });
  return rows[0];
}

/** What a rollback of a table undoes. */
export interface Undoable {
  /** The run that replaced the rows. */
  readonly runId: RunId;
  /** The table that keeps what it replaced; null: none does. */
  readonly kept: string | null;
  /** The run whose rows are kept there; undefined: no run wrote them. */
  readonly back: RunId | undefined;
}

/** The state of a target after all of its swaps. */
export interface Swapped {
  /** The run whose rows are in the target; undefined: none, or another mode writes it. */
  readonly current: RunId | undefined;
  /** The tables that swaps kept, in order, and which run's rows they hold; undefined: rows that no run wrote. */
  readonly kept: ReadonlyMap<string, RunId | undefined>;
  /** The last replacement that no rollback has undone. */
  readonly replacement: Undoable | undefined;
  /** The last swap, and the OID of the target since then. */
  readonly last: (SwapRow & { readonly table_oid: number }) | undefined;
}

/**
 * Reads the swaps of a target, and follows them: which run's rows are in it, and in each table that a swap kept; and the
 * replacement that a rollback undoes.
 */
export async function readSwaps(session: Session, control: Control, target: TableName): Promise<Swapped> {
  const { rows } = await session.query<NonNullable<Swapped["last"]>>({
    text: `SELECT run_id, kept, action, table_oid FROM ${control.table("swaps")} WHERE target = $1 ORDER BY n`,
    values: [showTable(target)],
  });
  const kept = new Map<string, RunId | undefined>();
  const standing: SwapRow[] = [];
  let current: RunId | undefined;
  for (const swap of rows) {
    const { run_id: runId, kept: table, action } = swap;
    const before = current;
    if (action === "replace") {
      current = runId;
      standing.push(swap);
    } else {
      const undone = standing.pop()?.kept ?? "";
      current = kept.get(undone);
      kept.delete(undone);
    }
    if (table !== null) {
      kept.delete(table); // a name that is used again comes last
      kept.set(table, before);
    }
  }
  const due = standing.at(-1);
  const replacement = due && { runId: due.run_id, kept: due.kept, back: kept.get(due.kept ?? "") };
  return { current, kept, replacement, last: rows.at(-1) };
}

/** Finds the tables that swaps kept and that still exist, the newest first. */
export async function previousTables(
  session: Session,
  control: Control,
  target: TableName,
): Promise<readonly PreviousTable[]> {
  const { schema } = target;
  const { kept } = await readSwaps(session, control, target);
  const names = [...kept.keys()].toReversed().map((table) => ({ schema, table }));
  const found = new Map((await lookAtTables(session, names)).map((left) => [left.table, left]));
  return names.flatMap((name) => {
    const { bytes, keptBy } = found.get(name.table) ?? {};
    const runId = kept.get(name.table);
    return bytes === undefined ? [] : [{ name: showTable(name), runId, bytes, keptBy: keptBy ?? undefined }];
  });
}

interface SwapRow {
  /** The run that replaced the rows, or the run that was rolled back. */
  readonly run_id: RunId;
  /** The table that keeps the rows that were there before; null: none does. */
  readonly kept: string | null;
  readonly action: "replace" | "rollback";
}

/** Says what has taken the rows of an unfinished run out of the target, as a clause; undefined: they are there. */
export async function whyGone(session: Session, tools: TargetTools, plan: Plan): Promise<string | undefined> {
  const { control, name, modeOf } = tools;
  const swap = writesTarget(modeOf(plan))
    ? await swapSince(session, control, { runId: plan.runId, target: name })
    : undefined;
  return (
    swap &&
    (swap.action === "replace"
      ? `run ${swap.run_id} has replaced all rows since`
      : `the rollback of run ${swap.run_id} has put back the rows from before`)
  );
}

/**
 * Refuses an unfinished run whose rows another run, or its rollback, has taken out of the target: otherwise its
 * committed spans would count as present. Staged runs are exempt: their rows are in staging tables.
 * @throws JobError OUTPUT_DAMAGED; PLAN_CHANGED when a later run was opened
 */
export async function refuseSwappedOut(session: Session, tools: TargetTools, plan: Plan): Promise<void> {
  const { control, name, modeOf } = tools;
  const { runId } = plan;
  const why = await whyGone(session, tools, plan);
  if (why === undefined || (await isFinished(session, control, runId))) {
    return; // another attempt may have finished the run before the swap
  }
  await refuseStoppedRun(session, control, plan);
  const newRun = modeOf(plan).kind === "append" ? "--new-run --allow-duplicates" : "--new-run";
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
