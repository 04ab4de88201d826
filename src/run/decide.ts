import type { AttemptRecord } from "../report/attempt-record.js";
import { count } from "../base/shown-numbers.js";
import { sameSeries } from "./plan/identity.js";
import type { Plan } from "./plan/plan.js";
import { spanCount } from "./plan/spans.js";
import { comparedDateOf, replacedBy } from "./lifecycle/published-run.js";
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
import { countSpans, type RowsOfRun } from "./lifecycle/span-record.js";
import { hideCredentials } from "../job/jobfile/secrets.js";
import type { OpenedJob, Job, Attempt } from "../flow/opened-job.js";
import { decisionDocument } from "../stores/ledger.js";
import type { RunSink, Sink } from "../targets/target.js";
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

export interface DecisionReport {
  readonly runId: string;
  readonly state: "published" | "discarded";
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

/** Continues where publishing was killed. Needs neither model nor input. @throws JobError USAGE, ALREADY_DECIDED */
export async function approveRun(opened: OpenedJob, request: DecisionRequest): Promise<DecisionReport> {
  const { job, sink, attempt, reporter } = opened;
  const run = await openToDecide(job, sink, reporter.record, "approving", request);
  const { plan, state } = run;
  const { runId } = plan;
  const step = approveStep(state);
  if (step === "tell") {
    refuseRolledBack(job, sink, "approving", run);
    await run.finish(); // of an approval that was killed when it had published the run
    const decision = (plan.staged ? await sink.ledger.read(runId, decisionDocument) : undefined) ?? null;
    requireAsAsked(job, sink, run, { decision, request });
    // A person who approves this one may mean another one of the series that is held.
    const others = await unfinishedRuns(job, sink);
    const held = others.filter(({ isHeld, params }) => isHeld && sameSeries(params, plan.params));
    return {
      ...publishedReport(run, decision),
      already: true,
      carriedOut: false,
      held: unfinishedLines(job, held),
    };
  }
  if (step === "refuse") {
    throw "decision" in state ? alreadyDecided(job, "approving", plan, state.decision) : notHeld(job, run);
  }

  const lost = state.kind === "approved" ? undefined : await lostSpans(job, run);
  if (lost !== undefined) {
    throw lost; // an approval is final, and could not be carried out
  }
  const decision =
    state.kind === "approved"
      ? state.decision
      : await addingHint("it stays held: approve it once the table fits, or discard it", () =>
          sink.ledger.create(run, decisionDocument, decisionOf(attempt, "approved", request)),
        );
  if (decision.kind !== "approved") {
    throw alreadyDecided(job, "approving", plan, decision);
  }
  requireAsAsked(job, sink, run, { decision, request });
  await publishApproved(opened, run);
  return { ...publishedReport(run, decision), already: state.kind === "approved", carriedOut: true, held: [] };
}

function publishedReport(
  { plan, spans }: RunSink,
  decision: Decision | null,
): Pick<DecisionReport, "runId" | "state" | "isNeighbour" | "rows" | "decision"> {
  // With runs without a date, and where a file is compared with, no later run is compared.
  const isCompared = comparedDateOf(plan) !== undefined && plan.checks !== null && plan.checks.profile === undefined;
  const isNeighbour = isCompared && decision !== null && decision.asBaseline && decision.by !== byChecks;
  return { runId: plan.runId, state: "published", isNeighbour, rows: countSpans(spans), decision };
}

/** Refuses a published run whose rows a person has taken out of the table. @throws JobError ALREADY_DECIDED */
function refuseRolledBack(job: Job, sink: Sink, act: string, { plan, state }: RunSink): void {
  if (isRolledBack(state)) {
    throw new JobError(
      "ALREADY_DECIDED",
      `${act} run ${plan.runId}: it was published and then rolled back, and its rows are not in ${sink.target}`,
      { hint: `to score it again: ${newRunCommand(job, plan)}` },
    );
  }
}

/** Refuses to say that an approved run is not normal if it was approved as a normal one. @throws JobError ALREADY_DECIDED */
function requireAsAsked(
  job: Job,
  sink: Sink,
  { plan, state }: RunSink,
  { decision, request }: { readonly decision: Decision | null; readonly request: DecisionRequest },
): void {
  if (!request.notNormal || decision === null || !decision.asBaseline) {
    return;
  }
  const { runId, params } = plan;
  const next =
    state.kind === "published"
      ? `${scoringAgainText(job, sink, plan)}\n    then approve that run with --not-normal, if its checks hold it`
      : `to publish the run as it was approved: ${job.command(params, { verb: "approve", runId })}`;
  throw new JobError(
    "ALREADY_DECIDED",
    `approving run ${runId} as not normal: it was approved without --not-normal, ${byText(decision)}`,
    { hint: `a decision is final; ${next}` },
  );
}

/** Removes what is stored of its rows. @throws JobError USAGE if published or not staged, ALREADY_DECIDED */
export async function discardRun(opened: OpenedJob, request: DecisionRequest): Promise<DecisionReport> {
  const { job, sink, attempt, reporter } = opened;
  const run = await openToDecide(job, sink, reporter.record, "discarding", request);
  const { plan, state } = run;
  const step = discardStep(state, plan.staged);
  if (step === "refuse") {
    throw "decision" in state ? alreadyDecided(job, "discarding", plan, state.decision) : notDiscarded(job, sink, run);
  }
  requireChain(request, plan);
  const decision =
    state.kind === "discarded"
      ? state.decision
      : await sink.ledger.create(run, decisionDocument, decisionOf(attempt, "discarded", request));
  if (decision.kind !== "discarded") {
    throw alreadyDecided(job, "discarding", plan, decision);
  }
  const skips = decision.skips === true;
  if (skips !== request.skips) {
    const how = skips
      ? "with --skip: the next run does not read its rows"
      : "without --skip: the next run reads its rows";
    throw new JobError(
      "ALREADY_DECIDED",
      `discarding run ${plan.runId}: it was discarded ${how}, ${byText(decision)}`,
      { hint: "a decision is final" },
    );
  }
  await run.finish();
  const already = step === "tell";
  return {
    runId: plan.runId,
    state: "discarded",
    already,
    carriedOut: !already,
    isNeighbour: false,
    held: [],
    rows: countSpans(run.spans),
    readers: await readersLine(sink, reporter.log, plan),
    newRun: skips ? undefined : againCommand(job, plan),
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

function notDiscarded(job: Job, sink: Sink, run: RunSink): JobError {
  const { runId, target, staged } = run.plan;
  if (run.state.kind === "published") {
    refuseRolledBack(job, sink, "discarding", run);
    return new JobError(staged ? "ALREADY_DECIDED" : "USAGE", `discarding run ${runId}: it is published`, {
      hint: scoringAgainText(job, sink, run.plan),
    });
  }
  const when =
    replacedBy(target) === "all" ? "it is published when it is complete" : "its rows are published as they come";
  return new JobError("USAGE", `discarding run ${runId}: it is not staged, so ${when}`, {
    hint: `${finishingHint(job, run.plan)}; runs that are planned with \`checks\` in the spec and on_fail: hold can be discarded`,
  });
}

async function openToDecide(
  job: Job,
  sink: Sink,
  record: AttemptRecord,
  act: "approving" | "discarding",
  { runId }: DecisionRequest,
): Promise<RunSink> {
  const stored = await findPlanned(job, sink, act);
  const { plan, pruned } = stored;
  if (runId !== undefined && runId !== plan.runId) {
    throw new JobError("ALREADY_DECIDED", `${act} run ${runId}: the latest run of these params is ${plan.runId}`, {
      hint: "infer-batch status shows it; without --run the latest run is meant",
    });
  }
  if (pruned !== undefined) {
    throw prunedError(pruned, newRunCommand(job, plan));
  }
  record.setRun(runFacts(stored));
  const toDiscard = act === "discarding"; // a discarded run publishes nothing, so missing or damaged rows do not matter
  return await openOwn(job, sink, stored, { toDiscard });
}

function decisionOf(
  { actingUser, dateMs }: Attempt,
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

function notHeld(job: Job, { plan, spans }: RunSink): JobError {
  const progress = `${spans.size} of ${count(spanCount(plan), "span")} committed`;
  return new JobError("USAGE", `approving run ${plan.runId}: its checks do not hold it (${progress})`, {
    hint: finishingHint(job, plan),
  });
}

function alreadyDecided({ command }: Job, act: string, { runId, params }: Plan, decision: Decision): JobError {
  // A published run is refused before: an approved one is not published yet.
  const next = decision.kind === "approved" ? `${command(params)} publishes it; if the target refuses its rows, ` : "";
  return new JobError("ALREADY_DECIDED", `${act} run ${runId}: it was ${decisionText(decision, true)}`, {
    hint: `a decision is final; ${next}run --new-run scores the input again as another run`,
  });
}
