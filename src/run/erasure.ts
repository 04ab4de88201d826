import { splitRunId } from "./plan/identity.js";
import type { Plan, RunId } from "./plan/plan.js";
import { verdictWithoutRows, withoutRows } from "./lifecycle/erasure.js";
import { comparisonDocument, decisionDocument, stripRows, verdictDocument } from "../stores/ledger.js";
import type { RunSink, RunWriter, Sink } from "../targets/target.js";
import type { Job } from "../flow/context.js";
import { JobError } from "../base/errors.js";
import { type Decision, decisionText } from "./lifecycle/lifecycle.js";

/**
 * Makes the error for an erasure that lacks spans: they are copies, without the rows that were erased, so that it cannot
 * be scored. The next erasure replaces it; so does a new run.
 */
export function unfinishedErasure({ command }: Job, plan: Plan): JobError {
  const { runId, params, erasure } = plan;
  return new JobError(
    "NOT_ERASED",
    `resuming run ${runId}: ${erasure?.by ?? "someone"} began to erase rows of ${erasure?.of ?? "it"}, and has not finished`,
    {
      hint: `wait until infer-batch erase has finished, or run the same infer-batch erase again, which replaces this run; readers see the run before it. To score all rows instead: ${command(params)} --new-run`,
    },
  );
}

/** Refuses to score spans of the erasure that another process has planned as this attempt's run. @throws JobError PLAN_CHANGED */
export function refusePlannedErasure({ runId, erasure }: Plan): void {
  if (erasure !== undefined) {
    throw new JobError(
      "PLAN_CHANGED",
      `planning run ${runId}: ${erasure.by} has planned it, to erase rows of ${erasure.of}`,
      { hint: "run the same command again when infer-batch erase has ended" },
    );
  }
}

/**
 * Publishes an erasure in place of the run that its rows are of, with that run's verdict and decision.
 * @throws JobError PLAN_CHANGED if it was superseded or discarded
 */
export async function finishErasure(sink: Sink, run: RunSink, writer: RunWriter): Promise<void> {
  const { plan } = run;
  await approveErasure(sink, run);
  await stripRows(sink.ledger, plan.runId);
  await writer.finish({ started_at: plan.erasure?.at ?? null, erased_from: plan.erasure?.of ?? null });
}

/**
 * Approves an erasure whose spans are all committed, and copies the verdict of the run that its rows are of. From then on
 * no other erasure supersedes it. Returns the stored decision.
 * @throws JobError PLAN_CHANGED if it was superseded or discarded
 */
export async function approveErasure(sink: Sink, run: RunSink): Promise<Decision> {
  const { runId, erasure } = run.plan;
  if (erasure === undefined) {
    throw new Error(`run ${runId} is no erasure`);
  }
  const { of, at, by } = erasure;
  const verdict = await sink.ledger.read(of as RunId, verdictDocument);
  if (verdict !== undefined) {
    await run.create(verdictDocument, verdictWithoutRows(verdict));
  }
  const comparison = await sink.ledger.read(of as RunId, comparisonDocument);
  if (comparison !== undefined) {
    await run.create(comparisonDocument, withoutRows(comparison));
  }
  const decided = await sink.ledger.read(of as RunId, decisionDocument);
  const { base, number } = splitRunId(of as RunId);
  const asBaseline = (await sink.find(base, number))?.plan.staged === false; // a staged run has a decision, which says so
  const own: Decision = { kind: "approved", by, at, reason: `without the erased rows of ${of}`, asBaseline };
  const decision = await run.create(decisionDocument, decided ?? own);
  if (decision.kind !== "approved") {
    throw new JobError("PLAN_CHANGED", `publishing run ${runId}: it was ${decisionText(decision, true)}`, {
      hint: "run the same infer-batch erase again",
    });
  }
  return decision;
}
