import { splitRunId } from "../../plan/identity.js";
import { spanCount } from "../../plan/spans.js";
import { JobError, messageOf } from "../../util/errors.js";
import type { StoredPlan } from "../port.js";
import { clearAbandonedRuns } from "./abandoned-runs.js";
import { committedSpansOf } from "./committed-spans.js";
import type { Session } from "./connections.js";
import { changedFiles, refuseEmptied } from "./control/emptied-table.js";
import { readSpans } from "./control/spans.js";
import { lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import { quoteTable, showTable } from "./names.js";
import { retrying } from "./retry.js";
import type { RunTools } from "./run-tools.js";
import { transact } from "./transaction.js";

/** Limit of a check of all rows of a run, and of moving them where a rename is not enough. */
export const finishSeconds = 24 * 3600;

/** Clears up after abandoned runs of the job, then finishes the run: checks that all of its spans are committed. */
export async function clearAndFinish(tools: RunTools, stored: StoredPlan): Promise<void> {
  const { control, retry, target } = tools;
  const { runId } = stored.plan;
  if (splitRunId(runId).number > 1) {
    await retrying(`clearing up after runs before ${runId}`, retry, (last) =>
      transact(tools, (session) => clearAbandonedRuns(session, control, runId), { last }),
    );
  }
  await retrying(`finishing ${target}`, retry, (last) =>
    transact(tools, (session) => finishRun(session, tools, stored), { last, silentSeconds: finishSeconds }),
  );
  await dropUnneededTables(tools);
}

async function finishRun(session: Session, tools: RunTools, stored: StoredPlan): Promise<void> {
  const { control, mode, name, writer } = tools;
  const { plan } = stored;
  await lockRuns(session, plan.runId, { shared: true });
  await lockRun(session, plan.runId);
  if (await control.isFinished(session, plan.runId)) {
    return;
  }
  await refuseSuperseded(session, control, plan.runId);
  const now = committedSpansOf(plan, await readSpans(session, control, stored));
  const missing = now.committed.indexOf(0);
  if (missing >= 0) {
    throw new JobError(
      "OUTPUT_DAMAGED",
      `finishing run ${plan.runId}: span ${missing} of ${spanCount(plan)} is not committed any more`,
      { hint: "somebody changed the control tables under the run; run the same command again" },
    );
  }
  const due = mode.writtenRows?.(plan);
  const files = due === undefined ? undefined : await changedFiles(session, { name, control, plan });
  if (due !== undefined && files !== undefined) {
    await refuseEmptied(session, { name, control, plan, doing: `finishing run ${plan.runId}`, due, files });
  }
  await mode.finish?.(session, plan);
  await session.query({
    text: `INSERT INTO ${control.table("finishes")} (run_id, writer) VALUES ($1, $2) ON CONFLICT DO NOTHING`,
    values: [plan.runId, writer],
  });
}

/**
 * Drops tables that are no longer needed, after the finish: a session that reads one, or a view of one, must neither
 * fail the finish nor make readers of the target wait. The next finish tries again.
 */
async function dropUnneededTables(tools: RunTools): Promise<void> {
  const { mode, warn } = tools;
  try {
    for (const name of await transact(tools, (session) => mode.unneededTables?.(session) ?? Promise.resolve([]))) {
      await transact(tools, (session) => session.query(`DROP TABLE IF EXISTS ${quoteTable(name)}`)).catch(
        (error: unknown) => {
          warn(`table ${showTable(name)} is no longer needed, and could not be dropped: ${messageOf(error)}`);
        },
      );
    }
  } catch (error) {
    warn(`tables that are no longer needed could not be dropped: ${messageOf(error)}`);
  }
}
