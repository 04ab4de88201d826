import type { Plan } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import { byChecks, type Decision, type SupersededRun } from "../../publish/decision.js";
import type { RunVerdict } from "../../publish/run-verdict.js";
import { decisionDocument, verdictDocument } from "../ledger.js";
import type { RunSink } from "../port.js";
import { tablesToDrop } from "./other-runs/abandoned-runs.js";
import type { Session } from "./connections.js";
import { createDocument, readDocument } from "./control/documents.js";
import { committedProfile } from "./control/run-profile.js";
import { countKeys } from "./control/key-counts.js";
import { dropTables, finishSeconds, requireSpans, warnOfKeptTables } from "./finish-run.js";
import { lockRun, lockRuns, refuseSuperseded } from "./locks.js";
import { retrying } from "./retry.js";
import type { RunTools } from "./run-tools.js";
import { requirePlannedTarget } from "./target.js";
import { transact } from "./transaction.js";

/** What decides whether a run is published: its profile, the verdict on it, and the decision. */
export function runDecisions(
  tools: RunTools,
  plan: Plan,
): Pick<Required<RunSink>, "profile" | "countKeys" | "judge" | "decide" | "tidy"> {
  const { control, retry, target } = tools;
  return {
    profile: () => retrying(`reading ${target}`, retry, () => committedProfile(tools, plan)),
    countKeys: (columns) =>
      retrying(`counting the keys of run ${plan.runId}`, retry, (last) =>
        transact(
          tools,
          (session) => countKeys(session, tools.modeOf(plan).rowsAt(plan, { finished: false }), columns),
          { last, silentSeconds: finishSeconds },
        ),
      ),
    judge: (verdict) =>
      retrying(`writing the verdict on ${plan.runId}`, retry, (last) =>
        transact(tools, (session) => judgeRun(session, tools, plan, verdict), { last, silentSeconds: finishSeconds }),
      ),
    decide: (decision) =>
      retrying(`writing the decision on ${plan.runId}`, retry, (last) =>
        transact(tools, (session) => decideRun(session, tools, plan, decision), {
          last,
          ...(decision.kind === "approved" ? { silentSeconds: finishSeconds } : {}),
        }),
      ),
    async tidy() {
      await dropTables(tools, (session) => tablesToDrop(session, control, plan));
      await warnOfKeptTables(tools, plan);
    },
  };
}

async function judgeRun(session: Session, tools: RunTools, plan: Plan, verdict: RunVerdict): Promise<RunVerdict> {
  await requireSpans(session, tools, plan, "judging");
  return await createDocument(session, tools, { runId: plan.runId, kind: verdictDocument, value: verdict });
}

/**
 * Stores the decision on a run unless there is one. A run that a later one has replaced is not approved or discarded,
 * and a run that may not overwrite newer rows, or whose rows the table cannot take, is not approved. A discarded run
 * takes no more spans: the lock waits for those that are being committed.
 */
async function decideRun(session: Session, tools: RunTools, plan: Plan, decision: Decision): Promise<Decision> {
  const { control } = tools;
  const { runId } = plan;
  await lockRuns(session, runId, { shared: decision.kind !== "discarded" });
  const before = await readDocument(session, control, { runId, kind: decisionDocument });
  if (before !== undefined) {
    return before;
  }
  if (decision.kind !== "superseded") {
    await refuseSuperseded(session, control, runId);
  }
  if (decision.kind === "approved") {
    const since = await refuseUnpublishable(session, tools, plan, decision);
    if (since !== undefined) {
      return since;
    }
  }
  return await createDocument(session, tools, { runId, kind: decisionDocument, value: decision });
}

/**
 * Stores the decision that a run is superseded, in the transaction that stores the plan of the later run. Returns whether
 * that plan may be stored: not if the run is approved, unless another attempt has stored the plan.
 */
export async function supersede(
  session: Session,
  tools: RunTools,
  { runId, decision }: SupersededRun,
): Promise<boolean> {
  await lockRuns(session, runId, { shared: false });
  const { kind } = await createDocument(session, tools, { runId, kind: decisionDocument, value: decision });
  return kind !== "approved" || (await tools.control.laterRun(session, runId)) !== undefined;
}

/**
 * Refuses to approve a run that could not be published, as far as that is known before its rows are written: nothing
 * else may become of an approved run. Publishing checks all of it again. Returns the decision of an attempt that has approved
 * the run meanwhile, and may have published it; undefined: there is none.
 * @throws JobError PLAN_CHANGED, OUTPUT_NEWER, OUTPUT_MISMATCH, OUTPUT_DAMAGED
 */
async function refuseUnpublishable(
  session: Session,
  tools: RunTools,
  plan: Plan,
  { by }: Decision,
): Promise<Decision | undefined> {
  requirePlannedTarget(plan, tools.planTarget, "approving");
  const mode = tools.modeOf(plan);
  if (mode.kind !== "append") {
    await tools.refuseNewer(session, plan);
  }
  await lockRun(session, plan.runId);
  const since = await readDocument(session, tools.control, { runId: plan.runId, kind: decisionDocument });
  if (since !== undefined) {
    return since; // the staging table of a published run is gone
  }
  await requireSpans(session, tools, plan, "approving");
  await mode.prepare(session, plan, { mayCreate: spanCount(plan) === 0 });
  await mode.checkFinish?.(session, plan);
  if (by !== byChecks) {
    await mode.checkRows?.(session, plan, "approving"); // checks approve what this command has just scored, and publishes at once
  }
  return undefined;
}
