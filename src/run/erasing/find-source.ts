import { numberedRunId, splitRunId } from "../../plan/identity.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { eraseStep } from "../../publish/lifecycle.js";
import type { JobContext } from "../../scoring/context.js";
import { decisionDocument } from "../../sink/ledger.js";
import type { RunSink, StoredPlan } from "../../sink/port.js";
import { JobError } from "../../util/errors.js";
import { attemptFacts } from "../attempt.js";
import { latestRun } from "../check-planned.js";
import { isPublished } from "../resume.js";
import { type Source } from "./copy-run.js";
import { finishErasure } from "./refuse-scoring.js";

/** Finds the run to erase rows from; undefined: none has rows. Returns why that is not possible as a text. */
export async function findSource(
  context: JobContext,
  latest: StoredPlan,
  dryRun: boolean,
): Promise<Source | string | undefined> {
  const { sink } = context;
  const { plan } = latest;
  const run = await sink.open(latest);
  const step = eraseStep(latestRun({ stored: latest, run }));
  if (step === "erase") {
    await (dryRun ? undefined : run.tidy()); // an erasure may have been killed after it was published
    return { stored: latest, run, latest: plan.runId, unfinished: false };
  }
  if (step === "finish") {
    return await finishFirst(context, latest, { run, dryRun });
  }
  if (step === "refuse") {
    return run.state.kind === "held"
      ? `its checks hold it; approve or discard it first: ${context.command(plan.params, { verb: "approve", runId: plan.runId })}`
      : `it is not finished; to finish it: ${context.command(plan.params)}`;
  }
  const before = await publishedBefore(context, plan.runId);
  if (plan.erasure === undefined) {
    return before;
  }
  return typeof before === "object"
    ? { ...before, unfinished: true }
    : (before ?? lostText(context, plan.erasure.of, plan));
}

/** Finishes an erasure whose spans are all committed, and which may have begun to take the place of the run before it. */
async function finishFirst(
  context: JobContext,
  latest: StoredPlan,
  { run, dryRun }: { readonly run: RunSink; readonly dryRun: boolean },
): Promise<Source> {
  const { runId } = latest.plan;
  if (dryRun) {
    return { stored: latest, run, latest: runId, unfinished: false };
  }
  const writer = await run.begin(attemptFacts(context, "none"));
  await finishErasure(context, { stored: latest, run, writer });
  return { stored: latest, run: await context.sink.open(latest), latest: runId, unfinished: false };
}

/**
 * Finds the run whose rows readers have while the latest one is discarded or an unfinished erasure; undefined: no run was
 * published. Returns why it cannot be read as a text.
 */
async function publishedBefore(context: JobContext, runId: RunId): Promise<Source | string | undefined> {
  const { number } = splitRunId(runId);
  let lost: string | undefined;
  for (let earlier = number - 1; earlier > 0; earlier -= 1) {
    const found = await earlierRun(context, earlier, runId);
    if (typeof found === "object") {
      return found;
    }
    lost ??= found;
  }
  return lost;
}

async function earlierRun(context: JobContext, number: number, latest: RunId): Promise<Source | string | undefined> {
  const { sink } = context;
  const { base } = splitRunId(latest);
  const runId = numberedRunId(base, number);
  const stored = await sink.find(base, number);
  if (stored === undefined || stored.pruned !== undefined) {
    return undefined; // it is gone
  }
  if (stored.plan.staged && (await sink.ledger.read(runId, decisionDocument))?.kind !== "approved") {
    return undefined; // it was never published
  }
  try {
    const run = await sink.open(stored);
    return isPublished(run) ? { stored, run, latest, unfinished: false } : undefined;
  } catch (error) {
    if (error instanceof JobError && ["PLAN_CHANGED", "OUTPUT_DAMAGED"].includes(error.code)) {
      return lostText(context, runId, stored.plan);
    }
    throw error;
  }
}

function lostText({ command }: JobContext, before: string, { params }: Pick<Plan, "params">): string {
  return `the rows of run ${before} before it cannot be read: that run is damaged, is not finished, or is being replaced; run the same command again, or score again: ${command(params)} --new-run`;
}
