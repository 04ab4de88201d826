import { sha256Of } from "../../../util/sha256.js";
import { splitRunId } from "../../../plan/identity.js";
import type { Plan, RunId } from "../../../plan/plan.js";
import {
  nothingRemoved,
  type PruneOutcome,
  type PruneRequest,
  type Pruning,
  tombstonePrefix,
  tombstoneText,
} from "../../../publish/pruned-run.js";
import { splitTable } from "../../../spec/output-spec.js";
import { droppableTables, type PastRun } from "./own-tables.js";
import type { Session } from "../connections.js";
import { finishSeconds, retried, retriedWrite, type RunTools } from "../run-tools.js";
import { dropTables } from "../finish-run.js";
import { lock, lockRuns } from "../locks.js";
import { showTable } from "../names.js";
import { lookAtTables, readSwaps } from "../control/swaps.js";
import { logicalDateOf } from "../../../publish/published-run.js";
import { type Control, type PlanRow, storedPlan } from "../control/control.js";
import { decisionDocument } from "../../ledger.js";
import { createDocument } from "../control/documents.js";
import { pinsOf } from "../../../jobs/prune-choice.js";
import { JobError } from "../../../util/errors.js";

/** Removes what is stored of old runs. Rows in the target stay. */
export async function pruneRuns(tools: RunTools, request: PruneRequest): Promise<PruneOutcome> {
  const { control, name } = tools;
  const { tombstone } = request.pruning;
  const outcome = await (request.dryRun ? retried : retriedWrite)(
    tools,
    `pruning the runs before ${tombstone}`,
    (session) => pruneInTransaction(session, tools, request),
    finishSeconds,
  );
  if (outcome.kind !== "removed" || request.dryRun) {
    return outcome;
  }
  // After the tombstone: no attempt makes such a table again. A table that a reader holds must not fail the rest.
  await dropTables(tools, async (session) =>
    droppableTables(session, control, await runsBefore(session, control, tombstone, showTable(name))),
  );
  const left = await leftTables(tools, outcome.tables);
  const tables = outcome.tables.filter((table) => !left.has(table));
  return { ...outcome, tables, bytes: Math.max(0, outcome.bytes - sizeOf(left)) };
}

type FoundTables = Awaited<ReturnType<typeof lookAtTables>>;

/** Finds those of the tables that could not be dropped. */
export async function leftTables(tools: RunTools, tables: readonly string[]): Promise<FoundTables> {
  return await retried(tools, `reading ${tools.target}`, (session) => lookAtTables(session, tables.map(splitTable)));
}

/** Stores the tombstone, and removes rejects and profiles, in one transaction; or only counts them. */
async function pruneInTransaction(
  session: Session,
  tools: RunTools,
  { latest, pruning: record, dryRun }: PruneRequest,
): Promise<PruneOutcome> {
  const { control, name } = tools;
  const { tombstone } = record;
  const target = showTable(name);
  if (!dryRun) {
    await session.query("SET LOCAL statement_timeout = 0"); // a run may have millions of rejected rows
    await lockRuns(session, tombstone, { shared: false });
    await lockPins(session, target, { shared: false });
  }
  const now = await latestOf(session, control, tombstone);
  if (now?.isTombstone !== true && now?.runId !== latest) {
    return { kind: "retained", why: `run ${now?.runId ?? ""} was planned meanwhile` };
  }
  const runs = await runsBefore(session, control, tombstone, target);
  const ids = runs.map(({ runId }) => runId);
  const { current } = await readSwaps(session, control, name);
  if (current !== undefined && ids.includes(current)) {
    return { kind: "retained", why: `its rows are in ${target}` };
  }
  const pinning = await pinningRun(session, control, target, ids);
  if (pinning !== undefined) {
    return { kind: "retained", why: `the checks of run ${pinning} compare with it` };
  }
  const found = await lookAtTables(session, await droppableTables(session, control, runs));
  const tables = new Map([...found].filter(([, { keptBy }]) => !dryRun || keptBy === null));
  const counts = await countControlRows(session, control, ids);
  if (!dryRun) {
    await (now.isTombstone ? undefined : storeTombstone(session, tools, record));
    await removeControlRows(session, control, ids);
  }
  return {
    kind: "removed",
    ...nothingRemoved,
    ...counts,
    tables: [...tables.keys()],
    bytes: counts.bytes + sizeOf(tables),
  };
}

/** The latest run of the params of a tombstone, which may be a tombstone itself. */
async function latestOf(
  session: Session,
  { table }: Control,
  tombstone: RunId,
): Promise<{ readonly runId: RunId; readonly isTombstone: boolean } | undefined> {
  const { rows } = await session.query<{ runId: RunId; isTombstone: boolean }>({
    text: `SELECT run_id AS "runId", ${isTombstone("r")} AS "isTombstone" FROM ${table("runs")} r
      WHERE base = $1 ORDER BY number DESC LIMIT 1`,
    values: [splitRunId(tombstone).base],
  });
  return rows[0];
}

function sizeOf(tables: FoundTables): number {
  return [...tables.values()].reduce((sum, { bytes }) => sum + bytes, 0);
}

/** SQL for whether a row of the table of runs is a tombstone. It takes the number of a run, and its text takes the plan's place. */
export function isTombstone(row: string): string {
  return `starts_with(${row}.plan, '${tombstonePrefix}')`;
}

/**
 * Stores a tombstone as the plan of its number. The caller has locked the runs of these params alone. Its decision keeps
 * it from counting as an unfinished run.
 */
async function storeTombstone(session: Session, tools: RunTools, record: Pruning): Promise<void> {
  const { tombstone, plan, by, at } = record;
  const { base, number } = splitRunId(tombstone);
  const { table, mode } = tools.planTarget;
  const text = tombstoneText(record);
  await session.query({
    text: `INSERT INTO ${tools.control.table("runs")} (run_id, base, number, plan_id, job, target, mode, rows_planned, spans_planned, plan, params, staged, logical_date)
      VALUES ($1, $2, $3, $4, $5, $6, $7, 0, 0, $8, $9, false, $10)`,
    values: [
      tombstone,
      base,
      number,
      sha256Of(text),
      plan.job,
      table,
      mode,
      text,
      JSON.stringify(plan.params),
      logicalDateOf(plan) ?? null,
    ],
  });
  const reason = `pruned: stands for ${plan.runId} and the runs before it`;
  const value = { kind: "discarded", by, at, reason, asBaseline: false } as const;
  await createDocument(session, tools, tombstone, decisionDocument, value);
}

/** Whether a run is pruned. */
export async function isPruned(session: Session, { table }: Control, runId: RunId): Promise<boolean> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query({
    text: `SELECT FROM ${table("runs")} t WHERE base = $1 AND number > $2 AND ${isTombstone("t")} LIMIT 1`,
    values: [base, number],
  });
  return rows.length > 0;
}

/** Reads the runs for a target before a tombstone, of the same params. */
async function runsBefore(
  session: Session,
  { table }: Control,
  tombstone: RunId,
  target: string,
): Promise<readonly PastRun[]> {
  const { base, number } = splitRunId(tombstone);
  const { rows } = await session.query<PastRun>({
    text: `SELECT run_id AS "runId", target, mode FROM ${table("runs")} WHERE base = $1 AND number < $2 AND target = $3`,
    values: [base, number, target],
  });
  return rows;
}

/** Counts the rejected rows of runs, their profiles, and the bytes of these. */
async function countControlRows(
  session: Session,
  { table }: Control,
  runs: readonly RunId[],
): Promise<Pick<Extract<PruneOutcome, { kind: "removed" }>, "rejects" | "profiles" | "bytes">> {
  const profiles = (name: "spans" | "finishes"): string =>
    `SELECT pg_column_size(profile) AS size FROM ${table(name)} WHERE run_id = ANY ($1) AND profile IS NOT NULL`;
  const { rows } = await session.query<{ rejects: string; profiles: string; bytes: string }>({
    text: `SELECT (SELECT count(*) FROM ${table("rejects")} WHERE run_id = ANY ($1)) AS rejects,
        count(*) AS profiles, coalesce(sum(size), 0) AS bytes
      FROM (${profiles("spans")} UNION ALL ${profiles("finishes")}) AS p`,
    values: [runs],
  });
  const [row] = rows;
  return { rejects: Number(row?.rejects), profiles: Number(row?.profiles), bytes: Number(row?.bytes) };
}

async function removeControlRows(session: Session, { table }: Control, runs: readonly RunId[]): Promise<void> {
  await session.query({ text: `DELETE FROM ${table("rejects")} WHERE run_id = ANY ($1)`, values: [runs] });
  for (const name of ["spans", "finishes"] as const) {
    await session.query({
      text: `UPDATE ${table(name)} SET profile = NULL WHERE run_id = ANY ($1) AND profile IS NOT NULL`,
      values: [runs],
    });
  }
}

/**
 * The fence around pinned profiles. A transaction that stores a plan takes it `shared` and checks that the profiles
 * which the plan pins are there; one that removes profiles takes it alone and checks that no open run pins them.
 */
async function lockPins(session: Session, target: string, { shared }: { readonly shared: boolean }): Promise<void> {
  await lock(session, `pins ${target}`, { shared });
}

/** Refuses a new plan whose pinned profiles were pruned since they were found. @throws JobError DATABASE */
export async function refusePrunedPins(
  session: Session,
  { table }: Control,
  plan: Plan,
  target: string,
): Promise<void> {
  const pins = pinsOf(plan);
  if (pins.length === 0) {
    return;
  }
  await lockPins(session, target, { shared: true });
  const { rows } = await session.query<{ run_id: string }>({
    text: `SELECT run_id FROM ${table("finishes")} WHERE run_id = ANY ($1) AND profile IS NULL LIMIT 1`,
    values: [pins],
  });
  if (rows[0] !== undefined) {
    throw new JobError(
      "DATABASE",
      `planning run ${plan.runId}: run ${rows[0].run_id}, which it is compared with, was pruned meanwhile`,
      {
        hint: "run the same command again: it plans the run without that one",
      },
    );
  }
}

/** Finds an open run for a target whose plan pins the profile of one of these runs. */
async function pinningRun(
  session: Session,
  { table, where }: Control,
  target: string,
  runs: readonly RunId[],
): Promise<RunId | undefined> {
  const { rows } = await session.query<PlanRow>({
    text: `SELECT plan, plan_id FROM ${table("runs")} r WHERE target = $1 AND ${where.isOpen}`,
    values: [target],
  });
  const plans = rows.flatMap((row) => storedPlan(row)?.plan ?? []);
  const all: ReadonlySet<string> = new Set(runs);
  return plans.find((plan) => pinsOf(plan).some((run) => all.has(run)))?.runId;
}
