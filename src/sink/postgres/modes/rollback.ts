import { JobError } from "../../../util/errors.js";
import type { RunId } from "../../../plan/plan.js";
import type { VisibleRun } from "../../../publish/published-run.js";
import type { RolledBack } from "../../../publish/readers-view.js";
import type { Session } from "../connections.js";
import { isPruned } from "../other-runs/prune-runs.js";
import { copyTable, exchangeNames, exchangeRows, freeName, refuseDependents } from "./swap.js";
import { lock, lockRuns } from "../locks.js";
import type { ModeTools } from "./mode.js";
import { quoteTable, showTable, type TableName } from "../names.js";
import { readSwaps, recordSwap, type Swapped, type Undoable } from "../control/swaps.js";
import { lockTarget, refuseUnfit, wholeTables, writableColumns } from "./replace.js";
import { copyAttributes } from "./staging.js";
import { findTable, type FoundTable } from "../table.js";
import type { Control } from "../control/control.js";

/**
 * Swaps back the table that the last `replace` replaced which is not rolled back yet, and keeps the rows of that run in
 * a table. Safe to repeat: where the answer to a commit was lost, or another command was first, nothing else is undone.
 * @param due the run that is to be undone: the last one that was not, when the command began
 * @throws JobError USAGE when there is nothing to restore; OUTPUT_NEWER when rows of other runs would go, too;
 * ALREADY_DECIDED when the rows are those of a pruned run
 */
export async function rollBack(session: Session, tools: ModeTools, due: string | undefined): Promise<RolledBack> {
  const { name, control } = tools;
  await session.query("SET LOCAL statement_timeout = 0");
  await session.query(wholeTables);
  // `erase` takes this lock, too, so it never sees tables while they are being renamed.
  await lock(session, `swap ${showTable(name)}`);
  const { replacement, last } = await readSwaps(session, control, name);
  if (due !== undefined && replacement?.runId !== due) {
    return await rolledBackMeanwhile(session, tools, due, last);
  }
  if (replacement?.back !== undefined) {
    // A concurrent prune either commits first and is seen below, or waits.
    await lockRuns(session, replacement.back, { shared: true });
  }
  const target = await lockTarget(session, tools);
  if (target === undefined) {
    throw new JobError("USAGE", `rolling back ${showTable(name)}: there is no such table`);
  }
  const { runId, back, before } = await requireReplaced(session, name, target, { replacement, last });
  await refuseLaterRows(session, tools, runId, before);
  if (back !== undefined && (await isPruned(session, control, back))) {
    throw new JobError(
      "ALREADY_DECIDED",
      `rolling back ${showTable(name)}: ${showTable(before)} has the rows of run ${back}, which is pruned`, // `prune` could not drop it
      {
        hint: `nothing was changed; the next infer-batch prune drops that table. To have these predictions again, score them with run --new-run`,
      },
    );
  }
  const undone = await freeName(session, name, "__undone", runId);
  await swapBack(session, tools, { target, before, undone });
  await recordSwap(session, control, name, { run_id: runId, action: "rollback", kept: undone.table });
  return await rolledBack(session, tools, runId, undone.table);
}

async function rolledBack(session: Session, tools: ModeTools, runId: RunId, kept: string): Promise<RolledBack> {
  const { name, control } = tools;
  const { current } = await readSwaps(session, control, name); // undefined: the rows are of no run
  return {
    kept: showTable({ schema: name.schema, table: kept }),
    undone: await runWithParams(session, control, runId),
    restored: current && (await runWithParams(session, control, current)),
  };
}

/** What the last rollback of a run did. @throws JobError OUTPUT_NEWER if the run is not rolled back, but replaced */
async function rolledBackMeanwhile(
  session: Session,
  tools: ModeTools,
  due: string,
  last: Swapped["last"],
): Promise<RolledBack> {
  if (last?.action !== "rollback" || last.run_id !== due || last.kept === null) {
    throw new JobError(
      "OUTPUT_NEWER",
      `rolling back run ${due}: another command has replaced ${showTable(tools.name)} meanwhile`,
      {
        hint: "nothing was changed; infer-batch status shows whose rows readers have",
      },
    );
  }
  return await rolledBack(session, tools, last.run_id, last.kept);
}

/** Requires a replacement that is not undone, and the table that it has kept. @throws JobError USAGE */
async function requireReplaced(
  session: Session,
  name: TableName,
  target: FoundTable,
  { replacement, last }: Pick<Swapped, "replacement" | "last">,
): Promise<Undoable & { readonly before: TableName }> {
  const doing = `rolling back ${showTable(name)}`;
  if (replacement === undefined || last === undefined) {
    throw new JobError(
      "USAGE",
      `${doing}: ${last === undefined ? "no run has replaced it" : "all of its replacements were rolled back already"}`,
    );
  }
  const { kept } = replacement;
  const before = kept === null ? undefined : { schema: name.schema, table: kept };
  if (before === undefined || (await findTable(session, before)) === undefined) {
    throw new JobError(
      "USAGE",
      `${doing}: no table was there before run ${replacement.runId} replaced it, or it is not kept any more`,
      { hint: "output.postgres.keep_previous sets how many tables are kept from now on" },
    );
  }
  if (last.table_oid !== target.oid) {
    throw new JobError(
      "USAGE",
      `${doing}: it is not the table that ${last.action === "replace" ? "" : "the rollback of "}run ${last.run_id} put there`,
      {
        hint: `the table was replaced since then; the table from before the run is ${showTable(before)}`,
      },
    );
  }
  return { ...replacement, before };
}

/** Swaps the target and the table that the last replacement kept. */
async function swapBack(
  session: Session,
  tools: ModeTools,
  { target, before, undone }: { readonly target: FoundTable; readonly before: TableName; readonly undone: TableName },
): Promise<void> {
  const { name, spec } = tools;
  if (spec.swap === "rename") {
    await refuseDependents(session, name, target.oid);
    await copyAttributes(session, name, before);
    await exchangeNames(session, { target: name, incoming: before, kept: undone });
  } else {
    await refuseUnfit(session, tools, target);
    const columns = writableColumns(target);
    await copyTable(session, name, undone, columns);
    const fixed = target.columns.filter(({ generated }) => generated).map((column) => column.name);
    await exchangeRows(session, { target: name, from: before, key: spec.key, columns, fixed });
    await session.query(`DROP TABLE ${quoteTable(before)}`);
  }
}

async function runWithParams(session: Session, { table }: Control, runId: RunId): Promise<VisibleRun> {
  const { rows } = await session.query<Pick<VisibleRun, "params">>({
    text: `SELECT params FROM ${table("runs")} WHERE run_id = $1`,
    values: [runId],
  });
  return { runId, params: rows[0]?.params ?? null };
}

/** The number of runs that a message names. */
const namedLimit = 5;

/**
 * Refuses to roll back a replacement if other runs have put rows into the table since, because a rollback would remove
 * those rows, too. The caller holds a lock that writers of the table wait for.
 * @param before the table that keeps what was replaced
 * @throws JobError OUTPUT_NEWER
 */
async function refuseLaterRows(
  session: Session,
  { control: { table, where }, name }: ModeTools,
  replacedBy: RunId,
  before: TableName,
): Promise<void> {
  const spans = `FROM ${table("spans")} s WHERE s.run_id = r.run_id AND s.rows > 0`;
  const hasSpans = `EXISTS (SELECT ${spans} AND s.committed_at >
    (SELECT max(at) FROM ${table("swaps")} WHERE target = $1 AND run_id = $2 AND action = 'replace'))`;
  // Spans of staged runs are put there together.
  const isPublished = `EXISTS (SELECT ${spans}) AND EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id
    AND f.publication > (SELECT coalesce(max(publication), 0) FROM ${table("finishes")} WHERE run_id = $2))`;
  const { rows: runs } = await session.query<{ readonly run_id: RunId; readonly published: boolean }>({
    text: `SELECT run_id, NOT (${where.isUnfinished}) AS published FROM ${table("runs")} r
      WHERE r.target = $1 AND r.run_id <> $2 AND r.mode <> 'replace'
        AND CASE WHEN r.staged THEN ${isPublished} ELSE ${hasSpans} END
        AND NOT (${where.isUnfinished} AND ${where.hasLater})
      ORDER BY planned_at`,
    values: [showTable(name), replacedBy],
  });
  if (runs.length === 0) {
    return;
  }
  const shown = runs
    .slice(0, namedLimit)
    .map(({ run_id: runId, published }) => `${runId}${published ? "" : " (not finished)"}`);
  const more = runs.length > namedLimit ? ` and ${runs.length - namedLimit} more` : "";
  const have = runs.length === 1 ? `run ${shown.join("")} has` : `runs ${shown.join(", ")}${more} have`;
  throw new JobError(
    "OUTPUT_NEWER",
    `rolling back ${showTable(name)}: ${have} put rows into it since run ${replacedBy} replaced it, and a rollback would take them out`,
    {
      hint: `nothing was changed; the rows from before run ${replacedBy} are in ${showTable(before)}: copy the rows that readers need from there`,
    },
  );
}
