import { JobError } from "../../util/errors.js";
import { splitRunId } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { requireApproved } from "../../publish/decision.js";
import type { Session } from "./connections.js";
import type { Control } from "./control/control.js";
import { decisionDocument } from "../ledger.js";
import { readDocument } from "./control/documents.js";

/** Waits for a lock by name. The lock belongs to the transaction: behind a pooler, a session may be shared. */
export async function lock(
  session: Session,
  name: string,
  { shared = false }: { readonly shared?: boolean } = {},
): Promise<void> {
  await session.query({
    text: `SELECT pg_advisory_xact_lock${shared ? "_shared" : ""}(hashtextextended($1, 0))`,
    values: [`infer-batch ${name}`],
  });
}

/**
 * Lets one attempt at a time make and remove a run's tables. Two attempts that swap tables would deadlock, and a late
 * one would make anew what the finish has removed.
 */
export async function lockRun(session: Session, runId: RunId): Promise<void> {
  await lock(session, `run ${runId}`);
}

/**
 * The fence around the runs of one job and its params. A transaction that makes something of a run visible takes it
 * `shared`, checks for a later run, and commits; a transaction that stores a later run's plan takes it alone. So all of
 * an earlier run is visible before a later plan is stored, or never.
 */
export async function lockRuns(session: Session, runId: RunId, how: { readonly shared: boolean }): Promise<void> {
  await lock(session, `runs ${splitRunId(runId).base}`, how);
}

/**
 * Stops an attempt whose run was superseded. The check is a statement of its own: it sees what was committed while
 * `lockRuns` waited.
 * @throws JobError PLAN_CHANGED
 */
export async function refuseSuperseded(session: Session, control: Control, runId: RunId): Promise<void> {
  const later = await control.laterRun(session, runId);
  if (later !== undefined) {
    throw new JobError("PLAN_CHANGED", `reading ${control.schema}.runs: run ${later} came after ${runId}`, {
      hint: "run the same command again: it continues that run",
    });
  }
}

/**
 * Stops an attempt whose run was superseded, or, where the run is staged, discarded. Checks as `refuseSuperseded` does.
 * @throws JobError PLAN_CHANGED, DISCARDED
 */
export async function refuseStopped(session: Session, control: Control, { runId, staged }: Plan): Promise<void> {
  await refuseSuperseded(session, control, runId);
  const decision = staged ? await readDocument(session, control, runId, decisionDocument) : undefined;
  if (decision !== undefined) {
    requireApproved(decision, runId);
  }
}
