import { splitRunId } from "../../../plan/identity.js";
import type { RunId } from "../../../plan/plan.js";
import { nothingRemoved, type PruneOutcome, type PruneRequest } from "../../../publish/prune-request.js";
import { splitTable } from "../../../spec/postgres-spec.js";
import type { Sink } from "../../port.js";
import { droppableTables, leftoversOf } from "../other-runs/abandoned-runs.js";
import type { Session } from "../connections.js";
import type { PastRun } from "../control/other-runs.js";
import { countControlRows, isTombstone, removeControlRows, runsBefore, storeTombstone } from "../control/tombstones.js";
import { dropTables, finishSeconds } from "../finish-run.js";
import { lockRuns } from "../locks.js";
import { showTable, type TableName } from "../names.js";
import { retrying } from "../retry.js";
import type { RunTools } from "../run-tools.js";
import { transact } from "../transaction.js";
import { lookAtTables } from "./kept-tables.js";
import { lockPins, pinningRun } from "./pins.js";
import { currentRun, previousTables } from "./previous-tables.js";

/** Reads where there are control tables; else answers `none`. */
type Read = <T>(doing: string, none: T, work: (session: Session) => Promise<T>) => Promise<T>;

/** Removes what is stored of old runs. Rows in the target stay. */
export function pruning(
  tools: RunTools,
  { mode, read }: { readonly mode: string; readonly read: Read },
): Pick<Required<Sink>, "prune" | "previousTables" | "dropPrevious"> {
  const { control, name, target } = tools;
  return {
    prune: (request) => pruneRuns(tools, request, mode),
    previousTables: () => read(`reading ${target}`, [], (session) => previousTables(session, control, name)),
    dropPrevious: async (table) => {
      await dropTables(tools, () => Promise.resolve([splitTable(table)]));
      return (await leftTables(tools, [table])).size === 0;
    },
  };
}

async function pruneRuns(tools: RunTools, request: PruneRequest, mode: string): Promise<PruneOutcome> {
  const doing = `pruning the runs before ${request.pruning.tombstone}`;
  const outcome = await retrying(doing, tools.retry, async (last) => {
    await (request.dryRun ? undefined : tools.ensureControlTables(last));
    return await transact(tools, (session) => pruneInTransaction(session, tools, { request, mode }), {
      last,
      silentSeconds: finishSeconds,
    });
  });
  if (outcome.kind !== "removed" || request.dryRun) {
    return outcome;
  }
  // After the tombstone: no attempt makes such a table again. A table that a reader holds must not fail the rest.
  await dropTables(tools, (session) => ownTables(session, tools, request.pruning.tombstone));
  const left = await leftTables(tools, outcome.tables);
  const bytesLeft = sizeOf([...left.values()]);
  const tables = outcome.tables.filter((table) => !left.has(table));
  return { ...outcome, tables, bytes: Math.max(0, outcome.bytes - bytesLeft) };
}

type FoundTables = Awaited<ReturnType<typeof lookAtTables>>;

/** Finds those of the tables that could not be dropped. */
async function leftTables(tools: RunTools, tables: readonly string[]): Promise<FoundTables> {
  const { retry, target } = tools;
  return await retrying(`reading ${target}`, retry, () =>
    transact(tools, (session) => lookAtTables(session, tables.map(splitTable))),
  );
}

/** Stores the tombstone, and removes rejects and profiles, in one transaction; or only counts them. */
async function pruneInTransaction(
  session: Session,
  tools: RunTools,
  { request: { latest, pruning: record, dryRun }, mode }: { readonly request: PruneRequest; readonly mode: string },
): Promise<PruneOutcome> {
  const { control, name } = tools;
  const { tombstone } = record;
  const target = showTable(name);
  if (!dryRun) {
    await session.query("SET LOCAL statement_timeout = 0"); // a run may have millions of rejected rows
    await lockRuns(session, tombstone, { shared: false });
    await lockPins(session, target, { shared: false });
  }
  const now = await latestOf(session, tools, tombstone);
  if (now?.isTombstone !== true && now?.runId !== latest) {
    return { kind: "retained", why: `run ${now?.runId ?? ""} was planned meanwhile` };
  }
  const runs = await runsBefore(session, control, { tombstone, target });
  const ids = runs.map(({ runId }) => runId);
  const current = await currentRun(session, control, name);
  if (current !== undefined && ids.includes(current)) {
    return { kind: "retained", why: `its rows are in ${target}` };
  }
  const pinning = await pinningRun(session, control, { target, runs: ids });
  if (pinning !== undefined) {
    return { kind: "retained", why: `the checks of run ${pinning} compare with it` };
  }
  const found = await lookAtTables(session, await droppableTables(session, tablesOf(tools, runs)));
  const tables = [...found].filter(([, { keptBy }]) => !dryRun || keptBy === null);
  const counts = await countControlRows(session, control, ids);
  if (!dryRun) {
    await (now.isTombstone ? undefined : storeTombstone(session, tools, { pruning: record, target, mode }));
    await removeControlRows(session, control, ids);
  }
  const bytes = counts.bytes + sizeOf(tables.map(([, table]) => table));
  return { kind: "removed", ...nothingRemoved, ...counts, tables: tables.map(([table]) => table), bytes };
}

/** The latest run of the params of a tombstone, which may be a tombstone itself. */
async function latestOf(
  session: Session,
  { control }: RunTools,
  tombstone: RunId,
): Promise<{ readonly runId: RunId; readonly isTombstone: boolean } | undefined> {
  const { rows } = await session.query<{ runId: RunId; isTombstone: boolean }>({
    text: `SELECT run_id AS "runId", ${isTombstone("r")} AS "isTombstone" FROM ${control.table("runs")} r
      WHERE base = $1 ORDER BY number DESC LIMIT 1`,
    values: [splitRunId(tombstone).base],
  });
  return rows[0];
}

/** Finds the tables of their own that the runs before a tombstone still have. */
async function ownTables(session: Session, tools: RunTools, tombstone: RunId): Promise<readonly TableName[]> {
  const { control, name } = tools;
  const runs = await runsBefore(session, control, { tombstone, target: showTable(name) });
  return await droppableTables(session, tablesOf(tools, runs));
}

function tablesOf({ control }: RunTools, runs: readonly PastRun[]): readonly TableName[] {
  return runs.flatMap((run) => leftoversOf(control, run));
}

function sizeOf(tables: readonly { readonly bytes: number }[]): number {
  return tables.reduce((sum, { bytes }) => sum + bytes, 0);
}
