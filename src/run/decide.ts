import { count } from "../base/shown-numbers.js";
import { sameSeries } from "./plan/identity.js";
import type { Plan } from "./plan/plan.js";
import { spanCount } from "./plan/spans.js";
import { logicalDateOf, replacedBy } from "./lifecycle/published-run.js";
import { prunedError } from "./lifecycle/pruned-run.js";
import {
  approveStep,
  byChecks,
  byText,
  type Decision,
  decisionText,
  discardStep,
  isRolledBack,
} from "./lifecycle/lifecycle.js";
import { rowsOf, type RowsOfRun } from "./lifecycle/span-record.js";
import { hideCredentials } from "../job/jobfile/secrets.js";
import type { JobContext } from "../flow/context.js";
import { decisionDocument } from "../stores/ledger.js";
import type { RunSink } from "../targets/target.js";
import { JobError } from "../base/errors.js";
import { runFacts } from "./attempt.js";
import { findPlanned, openOwn } from "./resume.js";
import {
  finishingHint,
  againCommand,
  newRunCommand,
  readersLine,
  scoringAgainText,
  unfinishedLines,
  unfinishedRuns,
} from "./hints.js";
import { addingHint, lostSpans, publishApproved } from "./conclude.js";

/** What a person decides on a run. */
export interface DecisionRequest {
  /** Who decides. Default: the Airflow task, else the user of this process. */
  readonly by: string | undefined;
  readonly reason: string | undefined;
  /** Whether no later run is compared with the approved run. */
  readonly notNormal: boolean;
  /** Whether no later run of the chain reads the rows of the discarded run. */
  readonly skips: boolean;
  /** The run that the person means; undefined: the latest run of these params. */
  readonly runId: string | undefined;
}

/** The outcome of a decision. */
export interface DecisionReport {
  readonly runId: string;
  readonly state: "published" | "discarded";
  /** Whether the same decision was made before. */
  readonly already: boolean;
  /** Whether this command published the run, or decided to discard it. */
  readonly carriedOut: boolean;
  /** Whether later runs are compared with the approved run. */
  readonly isNeighbour: boolean;
  /** Sentences about other runs of the series that are held, if the run was published before. */
  readonly held: readonly string[];
  /** What readers have, of a run that was discarded; undefined: it is not known, or the run is published. */
  readonly readers?: string | undefined;
  /** The command that scores a discarded run again; absent: the run is published. */
  readonly newRun?: string | undefined;
  /** What became of the rows of the run, when it was opened. */
  readonly rows: RowsOfRun;
  /** null: the run was published without one. */
  readonly decision: Decision | null;
}

/**
 * Approves a held run, and publishes it. Continues where publishing was killed. Needs neither model nor input.
 * @throws JobError USAGE for a run that is not held, ALREADY_DECIDED for one that was discarded or superseded
 */
export async function approveRun(context: JobContext, request: DecisionRequest): Promise<DecisionReport> {
  const run = await openToDecide(context, "approving", request);
  const { plan, state } = run;
  const { runId } = plan;
  const step = approveStep(state);
  if (step === "tell") {
    refuseRolledBack(context, "approving", run);
    await run.tidy(); // of an approval that was killed when it had published the run
    const decision = (plan.staged ? await context.sink.ledger.read(runId, decisionDocument) : undefined) ?? null;
    requireAsAsked(context, run, { decision, request });
    return {
      ...publishedReport(run, decision),
      already: true,
      carriedOut: false,
      held: await heldOthers(context, plan),
    };
  }
  if (step === "refuse") {
    throw "decision" in state ? alreadyDecided(context, "approving", plan, state.decision) : notHeld(context, run);
  }

  const lost = state.kind === "approved" ? undefined : await lostSpans(context, run);
  if (lost !== undefined) {
    throw lost; // an approval is final, and could not be carried out
  }
  const decision =
    state.kind === "approved"
      ? state.decision
      : await addingHint("it stays held: approve it once the table fits, or discard it", () =>
          run.create(decisionDocument, decisionOf(context, "approved", request)),
        );
  if (decision.kind !== "approved") {
    throw alreadyDecided(context, "approving", plan, decision);
  }
  requireAsAsked(context, run, { decision, request });
  await publishApproved(context, run);
  return { ...publishedReport(run, decision), already: state.kind === "approved", carriedOut: true, held: [] };
}

function publishedReport(
  { plan, spans }: RunSink,
  decision: Decision | null,
): Pick<DecisionReport, "runId" | "state" | "isNeighbour" | "rows" | "decision"> {
  // With runs without a date, and where a file is compared with, no later run is compared.
  const isCompared = logicalDateOf(plan) !== undefined && plan.checks !== null && plan.checks.profile === undefined;
  const isNeighbour = isCompared && decision !== null && decision.asBaseline && decision.by !== byChecks;
  return { runId: plan.runId, state: "published", isNeighbour, rows: rowsOf(spans), decision };
}

/** Refuses a published run whose rows a person has taken out of the table. @throws JobError ALREADY_DECIDED */
function refuseRolledBack(context: JobContext, act: string, { plan, state }: RunSink): void {
  if (isRolledBack(state)) {
    throw new JobError(
      "ALREADY_DECIDED",
      `${act} run ${plan.runId}: it was published and then rolled back, and its rows are not in ${context.sink.target}`,
      { hint: `to score it again: ${newRunCommand(context, plan)}` },
    );
  }
}

/** Sentences about the other runs of a run's series that are held: a person who approves this one may mean one of them. */
async function heldOthers(context: JobContext, plan: Plan): Promise<readonly string[]> {
  const others = await unfinishedRuns(context);
  const held = others.filter(({ isHeld, params }) => isHeld && sameSeries(params, plan.params));
  return unfinishedLines(context, held);
}

/** Refuses to say that an approved run is not normal if it was approved as a normal one. @throws JobError ALREADY_DECIDED */
function requireAsAsked(
  context: JobContext,
  { plan, state }: RunSink,
  { decision, request }: { readonly decision: Decision | null; readonly request: DecisionRequest },
): void {
  if (!request.notNormal || decision === null || !decision.asBaseline) {
    return;
  }
  const { runId, params } = plan;
  const next =
    state.kind === "published"
      ? `${scoringAgainText(context, plan)}\n    then approve that run with --not-normal, if its checks hold it`
      : `to publish the run as it was approved: ${context.command(params, { verb: "approve", runId })}`;
  throw new JobError(
    "ALREADY_DECIDED",
    `approving run ${runId} as not normal: it was approved without --not-normal, ${byText(decision)}`,
    { hint: `a decision is final; ${next}` },
  );
}

/**
 * Discards a run that is not published: nothing of it will be. What is stored of its rows is removed.
 * @throws JobError USAGE for a run that is published or not staged, ALREADY_DECIDED for one that was approved
 */
export async function discardRun(context: JobContext, request: DecisionRequest): Promise<DecisionReport> {
  const run = await openToDecide(context, "discarding", request);
  const { plan, state } = run;
  const step = discardStep(state, plan.staged);
  if (step === "refuse") {
    throw "decision" in state
      ? alreadyDecided(context, "discarding", plan, state.decision)
      : notDiscarded(context, run);
  }
  requireChain(request, plan);
  const decision =
    state.kind === "discarded"
      ? state.decision
      : await run.create(decisionDocument, decisionOf(context, "discarded", request));
  if (decision.kind !== "discarded") {
    throw alreadyDecided(context, "discarding", plan, decision);
  }
  const skips = decision.skips === true;
  if (skips !== request.skips) {
    const how = skips
      ? "with --skip: the next run does not read its rows"
      : "without --skip: the next run reads its rows";
    throw new JobError(
      "ALREADY_DECIDED",
      `discarding run ${plan.runId}: it was discarded ${how}, ${byText(decision)}`,
      {
        hint: "a decision is final",
      },
    );
  }
  await run.tidy();
  const already = step === "tell";
  return {
    runId: plan.runId,
    state: "discarded",
    already,
    carriedOut: !already,
    isNeighbour: false,
    held: [],
    rows: rowsOf(run.spans),
    readers: await readersLine(context, plan),
    newRun: skips ? undefined : againCommand(context, plan),
    decision,
  };
}

/** @throws JobError USAGE for rows to skip that no later run reads anyway */
function requireChain({ skips }: DecisionRequest, { runId, input, erasure }: Plan): void {
  if (skips && (input.changes === undefined || erasure !== undefined)) {
    throw new JobError("USAGE", `discarding run ${runId} with --skip: no later run reads its rows`, {
      hint: "--skip is for runs with input.since; leave it out",
    });
  }
}

function notDiscarded(context: JobContext, run: RunSink): JobError {
  const { runId, target, staged } = run.plan;
  if (run.state.kind === "published") {
    refuseRolledBack(context, "discarding", run);
    return new JobError(staged ? "ALREADY_DECIDED" : "USAGE", `discarding run ${runId}: it is published`, {
      hint: scoringAgainText(context, run.plan),
    });
  }
  const when =
    replacedBy(target) === "all" ? "it is published when it is complete" : "its rows are published as they come";
  return new JobError("USAGE", `discarding run ${runId}: it is not staged, so ${when}`, {
    hint: `${finishingHint(context, run.plan)}; runs that are planned with \`checks\` in the spec and on_fail: hold can be discarded`,
  });
}

async function openToDecide(
  context: JobContext,
  act: "approving" | "discarding",
  { runId }: DecisionRequest,
): Promise<RunSink> {
  const stored = await findPlanned(context, act);
  const { plan, pruned } = stored;
  if (runId !== undefined && runId !== plan.runId) {
    throw new JobError("ALREADY_DECIDED", `${act} run ${runId}: the latest run of these params is ${plan.runId}`, {
      hint: "infer-batch status shows it; without --run the latest run is meant",
    });
  }
  if (pruned !== undefined) {
    throw prunedError(pruned, newRunCommand(context, plan));
  }
  context.record.setRun(runFacts(stored));
  const toDiscard = act === "discarding"; // a discarded run publishes nothing, so missing or damaged rows do not matter
  return await openOwn(context, stored, { toDiscard });
}

function decisionOf(
  { actingUser, dateMs }: JobContext,
  kind: Decision["kind"],
  { by, reason, notNormal, skips }: DecisionRequest,
): Decision {
  const named = by?.trim() ?? "";
  if (named === byChecks) {
    throw new JobError("USAGE", `reading --by: ${byChecks} is the name of the checks themselves`, {
      hint: "name the person or the team that decides",
    });
  }
  const at = new Date(dateMs()).toISOString();
  const who = named === "" ? actingUser() : named; // a script's variable may be empty
  const why = reason === undefined ? null : hideCredentials(reason);
  return { kind, by: who, at, reason: why, asBaseline: !notNormal, ...(skips ? { skips } : {}) };
}

function notHeld(context: JobContext, { plan, spans }: RunSink): JobError {
  const progress = `${spans.size} of ${count(spanCount(plan), "span")} committed`;
  return new JobError("USAGE", `approving run ${plan.runId}: its checks do not hold it (${progress})`, {
    hint: finishingHint(context, plan),
  });
}

function alreadyDecided({ command }: JobContext, act: string, { runId, params }: Plan, decision: Decision): JobError {
  // A published run is refused before: an approved one is not published yet.
  const next = decision.kind === "approved" ? `${command(params)} publishes it; if the target refuses its rows, ` : "";
  return new JobError("ALREADY_DECIDED", `${act} run ${runId}: it was ${decisionText(decision, true)}`, {
    hint: `a decision is final; ${next}run --new-run scores the input again as another run`,
  });
}
