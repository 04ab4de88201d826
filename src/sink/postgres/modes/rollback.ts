import { JobError } from "../../../util/errors.js";
import type { RunId } from "../../../plan/plan.js";
import type { RolledBack, VisibleRun } from "../../../publish/readers-view.js";
import type { Session } from "../connections.js";
import { isPruned } from "../other-runs/prune-runs.js";
import { copyTable, exchangeNames, exchangeRows, freeName, lastSwap, recordSwap, refuseDependents } from "./swap.js";
import { lock, lockRuns } from "../locks.js";
import type { ModeTools } from "./mode.js";
import { quoteTable, showTable, type TableName } from "../names.js";
import { currentRun, lastReplacement, type Undoable } from "../control/swaps.js";
import { lockTarget, refuseUnfit, wholeTables, writableColumns } from "./replace.js";
import { copyAttributes } from "./staging.js";
import { findTable, type FoundTable } from "../table.js";
import { type Control, runConditions } from "../control/control.js";

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
  const replacement = await lastReplacement(session, control, name);
  if (due !== undefined && replacement?.runId !== due) {
    return await rolledBackMeanwhile(session, tools, due);
  }
  if (replacement?.back !== undefined) {
    // A concurrent prune either commits first and is seen below, or waits.
    await lockRuns(session, replacement.back, { shared: true });
  }
  const target = await lockTarget(session, tools);
  if (target === undefined) {
    throw new JobError("USAGE", `rolling back ${showTable(name)}: there is no such table`);
  }
  const { runId, back, before } = await requireReplaced(session, tools, { target, replacement });
  await refuseLaterRows(session, control, { replacedBy: runId, target: name, before });
  await refusePruned(session, tools, { back, before });
  const undone = await freeName(session, name, "__undone", runId);
  await swapBack(session, tools, { target, before, undone });
  await recordSwap(session, control, name, { runId, action: "rollback", kept: undone.table });
  return {
    kept: showTable(undone),
    undone: await runWithParams(session, tools, runId),
    restored: await restoredRun(session, tools),
  };
}

/** What the last rollback of a run did. @throws JobError OUTPUT_NEWER if the run is not rolled back, but replaced */
async function rolledBackMeanwhile(session: Session, tools: ModeTools, due: string): Promise<RolledBack> {
  const { name, control } = tools;
  const last = await lastSwap(session, control, name);
  if (last?.action !== "rollback" || last.runId !== due || last.kept === null) {
    throw new JobError(
      "OUTPUT_NEWER",
      `rolling back run ${due}: another command has replaced ${showTable(name)} meanwhile`,
      {
        hint: "nothing was changed; infer-batch status shows whose rows readers have",
      },
    );
  }
  return {
    kept: showTable({ schema: name.schema, table: last.kept }),
    undone: await runWithParams(session, tools, due),
    restored: await restoredRun(session, tools),
  };
}

/** Requires a replacement that is not undone, and the table that it has kept. @throws JobError USAGE */
async function requireReplaced(
  session: Session,
  { name, control }: ModeTools,
  { target, replacement }: { readonly target: FoundTable; readonly replacement: Undoable | undefined },
): Promise<Undoable & { readonly before: TableName }> {
  const last = await lastSwap(session, control, name);
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
  if (last.table !== target.oid) {
    throw new JobError(
      "USAGE",
      `${doing}: it is not the table that ${last.action === "replace" ? "" : "the rollback of "}run ${last.runId} put there`,
      {
        hint: `the table was replaced since then; the table from before the run is ${showTable(before)}`,
      },
    );
  }
  return { ...replacement, before };
}

/**
 * Refuses to give readers the rows of a pruned run whose table `prune` could not drop. @throws JobError ALREADY_DECIDED
 */
async function refusePruned(
  session: Session,
  { name, control }: ModeTools,
  { back, before }: { readonly back: RunId | undefined; readonly before: TableName },
): Promise<void> {
  if (back !== undefined && (await isPruned(session, control, back))) {
    throw new JobError(
      "ALREADY_DECIDED",
      `rolling back ${showTable(name)}: ${showTable(before)} has the rows of run ${back}, which is pruned`,
      {
        hint: `nothing was changed; the next infer-batch prune drops that table. To have these predictions again, score them with run --new-run`,
      },
    );
  }
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

/** The run whose rows are in the target again; undefined: rows that no run wrote. */
async function restoredRun(session: Session, tools: ModeTools): Promise<VisibleRun | undefined> {
  const runId = await currentRun(session, tools.control, tools.name);
  return runId === undefined ? undefined : await runWithParams(session, tools, runId);
}

async function runWithParams(session: Session, { control }: ModeTools, runId: string): Promise<VisibleRun> {
  const { rows } = await session.query<Pick<VisibleRun, "params">>({
    text: `SELECT params FROM ${control.table("runs")} WHERE run_id = $1`,
    values: [runId],
  });
  return { runId, params: rows[0]?.params ?? null };
}

interface LaterRun {
  readonly run_id: RunId;
  readonly published: boolean;
}

/** The number of runs that a message names. */
const namedLimit = 5;

/**
 * Refuses to roll back a replacement if other runs have put rows into the table since, because a rollback would remove
 * those rows, too. The caller holds a lock that writers of the table wait for. @throws JobError OUTPUT_NEWER
 */
export async function refuseLaterRows(
  session: Session,
  control: Control,
  { replacedBy, target, before }: LaterRowsOptions,
): Promise<void> {
  const runs = await laterRuns(session, control, { replacedBy, target });
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
    `rolling back ${showTable(target)}: ${have} put rows into it since run ${replacedBy} replaced it, and a rollback would take them out`,
    {
      hint: `nothing was changed; the rows from before run ${replacedBy} are in ${showTable(before)}: copy the rows that readers need from there`,
    },
  );
}

interface LaterRowsOptions {
  /** The run whose replacement is to be undone. */
  readonly replacedBy: string;
  readonly target: TableName;
  /** The table that keeps what was replaced. */
  readonly before: TableName;
}

/**
 * Finds the runs that have put rows into the target since its replacement. Abandoned runs are excluded: a
 * later run has superseded them.
 */
async function laterRuns(
  session: Session,
  { table }: Control,
  { replacedBy, target }: Omit<LaterRowsOptions, "before">,
): Promise<readonly LaterRun[]> {
  const { isUnfinished } = runConditions(table);
  const spans = `FROM ${table("spans")} s WHERE s.run_id = r.run_id AND s.rows > 0`;
  const hasSpans = `EXISTS (SELECT ${spans} AND s.committed_at >
    (SELECT max(at) FROM ${table("swaps")} WHERE target = $1 AND run_id = $2 AND action = 'replace'))`;
  // Spans of staged runs are put there together.
  const isPublished = `EXISTS (SELECT ${spans}) AND EXISTS (SELECT FROM ${table("finishes")} f WHERE f.run_id = r.run_id
    AND f.publication > (SELECT coalesce(max(publication), 0) FROM ${table("finishes")} WHERE run_id = $2))`;
  const { rows } = await session.query<LaterRun>({
    text: `SELECT run_id, NOT (${isUnfinished}) AS published FROM ${table("runs")} r
      WHERE r.target = $1 AND r.run_id <> $2 AND r.mode <> 'replace'
        AND CASE WHEN r.staged THEN ${isPublished} ELSE ${hasSpans} END
        AND NOT (${isUnfinished} AND EXISTS (SELECT FROM ${table("runs")} l WHERE l.base = r.base AND l.number > r.number))
      ORDER BY planned_at`,
    values: [showTable(target), replacedBy],
  });
  return rows;
}
