import { JobError } from "../../util/errors.js";
import { splitRunId } from "../../plan/identity.js";
import type { RunId } from "../../plan/plan.js";
import type { Session } from "./connections.js";
import type { Control } from "./control/control.js";

/** Waits for a lock by name. It is the transaction's: behind a pooler, a session is not ours. */
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
 * Makes and removes a run's tables one attempt at a time: two that swap tables would lock each other out, and one
 * that is late would make anew what the finish has taken away.
 */
export async function lockRun(session: Session, runId: RunId): Promise<void> {
  await lock(session, `run ${runId}`);
}

/**
 * The fence around the runs of one job and its params. Whatever makes something of a run visible takes it `shared`,
 * looks for a later run, and commits; a later run's plan is stored by a transaction that has it alone. So what an
 * earlier run does is there before a later plan stands, or never.
 */
export async function lockRuns(session: Session, runId: RunId, how: { readonly shared: boolean }): Promise<void> {
  await lock(session, `runs ${splitRunId(runId).base}`, how);
}

/**
 * Stops an attempt whose run was followed by another one. A statement of its own: it sees what was committed while
 * `lockRuns` waited.
 * @throws JobError PLAN_CHANGED
 */
export async function refuseOvertaken(session: Session, control: Control, runId: RunId): Promise<void> {
  const later = await control.laterRun(session, runId);
  if (later !== undefined) {
    throw new JobError("PLAN_CHANGED", `looking at ${control.schema}.runs: run ${later} came after ${runId}`, {
      hint: "run the same command again: it takes up that run",
    });
  }
}
