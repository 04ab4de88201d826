import { JobError } from "../../util/errors.js";
import type { Session } from "./connections.js";
import { quoteTable, showTable, type TableName } from "./names.js";
import { findTable, readsAllRows } from "./table.js";
import { splitRunId } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import type { StoredPlan } from "../port.js";
import type { SupersededRun } from "../../publish/decision.js";
import { decisionDocument } from "../ledger.js";
import { createDocument } from "./control/documents.js";
import { splitTable } from "../../spec/postgres-spec.js";
import type { Control } from "./control/control.js";
import { dropLeftovers } from "./other-runs/own-tables.js";
import { lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import { prepareRun, refuseOlder } from "./run-sink.js";
import type { RunTools } from "./run-tools.js";
import { refuseOlderNewRun } from "./other-runs/newer-runs.js";
import { refusePrunedPins } from "./other-runs/prune-runs.js";

/**
 * Stores the plan of a run unless there is one, and prepares the tables. Returns the stored plan; that of the run in whose
 * place it would come, if that one is approved, and no other attempt has stored a plan after it.
 * @throws JobError PLAN_CHANGED, OUTPUT_NEWER, USAGE
 */
export async function createRun(
  session: Session,
  tools: RunTools,
  plan: Plan,
  insteadOf?: SupersededRun,
): Promise<StoredPlan> {
  const { control, planTarget } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: false });
  await refuseTakingOver(session, tools, runId); // before the run before it is superseded
  if (insteadOf !== undefined) {
    const held = insteadOf.runId;
    const { kind } = await createDocument(session, tools, held, decisionDocument, insteadOf.decision);
    if (kind === "approved" && (await control.laterRun(session, held)) === undefined) {
      return await requirePlan(session, control, held);
    }
  }
  await refuseSuperseded(session, control, runId);
  if (await control.storePlan(session, plan)) {
    await refuseForgotten(session, tools, runId);
    await admitNewRun(session, tools, runId);
    await refuseOlder(session, tools, plan, 0); // a plan that stays unfinished would keep rows from being erased
    await dropLeftovers(session, control, { runId, target: planTarget.table, mode: planTarget.mode });
    await refusePrunedPins(session, control, plan, planTarget.table);
  }
  const stored = await requirePlan(session, control, runId);
  if (stored.pruned !== undefined) {
    throw new JobError("PLAN_CHANGED", `planning run ${runId}: the runs before it were pruned meanwhile`, {
      hint: "run the same command again",
    });
  }
  await lockRun(session, runId);
  await prepareRun(session, tools, stored.plan, { mayCreate: true });
  return stored;
}

async function requirePlan(session: Session, control: Control, runId: RunId): Promise<StoredPlan> {
  const stored = await control.readPlan(session, runId);
  if (stored === undefined) {
    throw new Error(`the plan of run ${runId} was stored and is gone`);
  }
  return stored;
}

/** Refuses a run after others of the same params that may not add to their rows, or replace those of later dates. */
async function admitNewRun(session: Session, tools: RunTools, runId: RunId): Promise<void> {
  const { control, planTarget, allowOlder, allowDuplicates } = tools;
  if (splitRunId(runId).number === 1) {
    return;
  }
  if (planTarget.mode !== "append") {
    await (allowOlder ? undefined : refuseOlderNewRun(session, control, runId, planTarget));
  } else if (!allowDuplicates && !(await nothingPublished(session, control, runId))) {
    await refuseDuplicates(session, tools.name);
  }
}

/** Refuses to plan a run anew whose plan is gone while other control rows of it are there. @throws JobError OUTPUT_DAMAGED */
async function refuseForgotten(
  session: Session,
  { control: { schema, table }, planTarget }: RunTools,
  runId: RunId,
): Promise<void> {
  const tables = (["attempts", "finishes"] as const).map(table);
  const { rows } = await session.query({
    text: tables.map((name) => `SELECT FROM ${name} WHERE run_id = $1`).join(" UNION ALL "),
    values: [runId],
  });
  if (rows.length > 0) {
    const forget = tables.map((name) => `DELETE FROM ${name} WHERE run_id = '${runId}'`).join("; ");
    throw new JobError("OUTPUT_DAMAGED", `reading ${schema}.runs: the plan of run ${runId} is gone`, {
      hint: `rows of run ${runId} may be in ${planTarget.table} all the same: look for them there first. If they are, restore the control tables from a backup, or delete all of them. When none is there: ${forget}; then run the same command again`,
    });
  }
}

/**
 * Whether no run before this one has published a row: all of them are staged, and none is published. False where there is
 * none. It stays so once this run's plan is stored: an approved run that is being published meanwhile holds `lockRuns`.
 */
async function nothingPublished(session: Session, { table, where }: Control, runId: RunId): Promise<boolean> {
  const { base, number } = splitRunId(runId);
  const { rows } = await session.query<{ nothing: boolean | null }>({
    text: `SELECT bool_and(staged AND ${where.isUnfinished}) AS nothing
      FROM ${table("runs")} r WHERE base = $1 AND number < $2`,
    values: [base, number],
  });
  return rows[0]?.nothing === true;
}

/**
 * Refuses a new run in mode append where the table holds rows: the new run would add the same rows again. Only an empty
 * table has none of them. The fence around the runs is locked, so that no row of an earlier run can come later.
 * @throws JobError USAGE
 */
async function refuseDuplicates(session: Session, name: TableName): Promise<void> {
  // A role that may not read all rows cannot tell that there are none.
  const readable = await session.query<{ readable: boolean }>({
    text: `SELECT ${readsAllRows} AS readable
      FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
    values: [name.schema, name.table],
  });
  const [table] = readable.rows;
  if (table === undefined || (table.readable && !(await holdsRows(session, name)))) {
    return;
  }
  throw new JobError(
    "USAGE",
    `opening a new run: output.postgres.mode is append, and ${showTable(name)} keeps the rows of the runs before`,
    {
      hint: "use mode upsert or replace, which accept new runs; or empty the table; or delete those rows, or accept each row twice, and add --allow-duplicates",
    },
  );
}

async function holdsRows(session: Session, name: TableName): Promise<boolean> {
  const { rows } = await session.query(`SELECT FROM ${quoteTable(name)} LIMIT 1`);
  return rows.length > 0;
}

/**
 * Refuses a new run in place of one whose rows are for another table, which may be another job's of the same name: that job
 * could not finish its run, and would add its rows again. Admitted if the new run is planned already; if that table is
 * gone, which may have been renamed; if the run before is published, discarded or superseded; and if it has neither
 * committed spans nor an approval.
 * @throws JobError PLAN_CHANGED
 */
async function refuseTakingOver(
  session: Session,
  { control: { table, where }, planTarget }: RunTools,
  runId: RunId,
): Promise<void> {
  const { base, number } = splitRunId(runId);
  if (number === 1) {
    return;
  }
  const { rows } = await session.query<{ run_id: RunId; target: string; job: string; approved: boolean }>({
    text: `SELECT run_id, target, job, approved FROM (
        SELECT r.*, ${where.isDecided("approved")} AS approved FROM ${table("runs")} r WHERE base = $1 AND number < $2
        ORDER BY number DESC LIMIT 1) r
      WHERE target <> $3 AND NOT EXISTS (SELECT FROM ${table("runs")} WHERE run_id = $4) AND ${where.isUnfinished} AND NOT ${where.isDecided("discarded")} AND NOT ${where.isDecided("superseded")}
        AND (approved OR EXISTS (SELECT 1 FROM ${table("spans")} s WHERE s.run_id = r.run_id))`,
    values: [base, number, planTarget.table, runId],
  });
  const [other] = rows;
  if (other === undefined) {
    return;
  }
  const found = await findTable(session, splitTable(other.target));
  if (found === undefined || !["r", "p"].includes(found.kind)) {
    return; // a view may have the name of a table that was renamed; no run can publish into it
  }
  const state = other.approved ? "is approved" : "has committed spans";
  throw new JobError(
    "PLAN_CHANGED",
    `opening run ${runId}: run ${other.run_id} for ${other.target} ${state} and is not published`,
    {
      hint: `if another job is called ${other.job}, too, give this job another name; else name ${other.target} in output.postgres.table again, and finish or discard that run, or run --new-run there; or drop that table if it is no longer needed`,
    },
  );
}
