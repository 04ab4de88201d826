import { runIdOf, sameSeries } from "../plan/identity.js";
import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import { logicalDateOf, replacedBy } from "../publish/published-run.js";
import { prunedError } from "../publish/pruned-run.js";
import {
  approveStep,
  byChecks,
  byText,
  type Decision,
  decisionText,
  discardStep,
  isRolledBack,
} from "../publish/lifecycle.js";
import { count } from "../report/report.js";
import { rowsOf, type RowsOfRun } from "../publish/span-record.js";
import { hideCredentials } from "../spec/secrets.js";
import type { JobContext } from "../scoring/context.js";
import { decisionDocument } from "../sink/ledger.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import { JobError } from "../util/errors.js";
import { countCommitted, runFacts } from "./attempt.js";
import { notPlanned, openOwn } from "./resume.js";
import {
  decidingCommands,
  finishingHint,
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
  const { stored, run } = await findRun(context, "approving", request);
  const { runId } = stored.plan;
  const { state } = run;
  const step = approveStep(state);
  if (step === "tell") {
    refuseRolledBack(context, "approving", { stored, run });
    await run.tidy(); // of an approval that was killed when it had published the run
    const decision = (stored.plan.staged ? await context.sink.ledger.read(runId, decisionDocument) : undefined) ?? null;
    await requireAsAsked(context, { plan: stored.plan, decision, request, isPublished: true });
    const held = await heldOthers(context, stored.plan);
    const facts = { isNeighbour: isNeighbour(stored.plan, decision), held, rows: rowsOf(run.spans), decision };
    return { runId, state: "published", already: true, carriedOut: false, ...facts };
  }
  if (step === "refuse") {
    throw "decision" in state
      ? alreadyDecided(context, "approving", { plan: stored.plan, decision: state.decision })
      : await notHeld(context, { stored, run });
  }
  if (state.kind === "approved") {
    return await publishIfApproved(context, { stored, run, decision: state.decision, already: true, request });
  }
  const lost = await lostSpans(context, stored.plan, run);
  if (lost !== undefined) {
    throw lost; // an approval is final, and could not be carried out
  }
  const asked = decisionOf(context, "approved", request);
  const decision = await addingHint("it stays held: approve it once the table fits, or discard it", () =>
    run.create(decisionDocument, asked),
  );
  return await publishIfApproved(context, { stored, run, decision, already: false, request });
}

/** Refuses a published run whose rows a person has taken out of the table. @throws JobError ALREADY_DECIDED */
function refuseRolledBack({ command, sink }: JobContext, act: string, { stored: { plan }, run }: OpenedRun): void {
  if (isRolledBack(run.state)) {
    throw new JobError(
      "ALREADY_DECIDED",
      `${act} run ${plan.runId}: it was published and then rolled back, and its rows are not in ${sink.target}`,
      { hint: `to score it again: ${command(plan.params)} --new-run` },
    );
  }
}

interface OpenedRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
}

/** A run with its decision. `already`: another command made it. */
interface DecidedRun extends OpenedRun {
  readonly decision: Decision;
  readonly already: boolean;
  readonly request: DecisionRequest;
}

async function publishIfApproved(
  context: JobContext,
  { stored, run, decision, already, request }: DecidedRun,
): Promise<DecisionReport> {
  const { runId } = stored.plan;
  if (decision.kind !== "approved") {
    throw alreadyDecided(context, "approving", { plan: stored.plan, decision });
  }
  await requireAsAsked(context, { plan: stored.plan, decision, request, isPublished: false });
  await publishApproved(context, { stored, run });
  const facts = {
    isNeighbour: isNeighbour(stored.plan, decision),
    held: [],
    rows: rowsOf(run.spans),
    decision,
  };
  return { runId, state: "published", already, carriedOut: true, ...facts };
}

/** Whether later runs are compared with a run that a person approved. With runs without a date, and where a file is compared with, they are not. */
function isNeighbour(plan: Plan, decision: Decision | null): boolean {
  const isCompared = logicalDateOf(plan) !== undefined && plan.checks !== null && plan.checks.profile === undefined;
  return isCompared && decision !== null && decision.asBaseline && decision.by !== byChecks;
}

/** Sentences about the other runs of a run's series that are held: a person who approves this one may mean one of them. */
async function heldOthers(context: JobContext, plan: Plan): Promise<readonly string[]> {
  const others = await unfinishedRuns(context);
  const held = others.filter(({ isHeld, params }) => isHeld && sameSeries(params, plan.params));
  return unfinishedLines(context, held);
}

/** Refuses to say that an approved run is not normal if it was approved as a normal one. @throws JobError ALREADY_DECIDED */
async function requireAsAsked(
  context: JobContext,
  {
    plan,
    decision,
    request,
    isPublished,
  }: Pick<DecidedRun, "request"> & {
    readonly plan: Plan;
    readonly decision: Decision | null;
    readonly isPublished: boolean;
  },
): Promise<void> {
  if (!request.notNormal || decision === null || !decision.asBaseline) {
    return;
  }
  const { runId, params } = plan;
  const next = isPublished
    ? `${await scoringAgainText(context, plan)}\n    then approve that run with --not-normal, if its checks hold it`
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
  const { stored, run } = await findRun(context, "discarding", request);
  const { runId, staged } = stored.plan;
  const { state } = run;
  const step = discardStep(state, staged);
  if (step === "refuse") {
    throw "decision" in state
      ? alreadyDecided(context, "discarding", { plan: stored.plan, decision: state.decision })
      : await notDiscarded(context, { stored, run });
  }
  const decision =
    state.kind === "discarded"
      ? state.decision
      : await run.create(decisionDocument, decisionOf(context, "discarded", request));
  if (decision.kind !== "discarded") {
    throw alreadyDecided(context, "discarding", { plan: stored.plan, decision });
  }
  await run.tidy();
  const already = step === "tell";
  const readers = await readersLine(context, stored.plan);
  const { newRun } = await decidingCommands(context, stored.plan);
  const facts = { isNeighbour: false, held: [], rows: rowsOf(run.spans), readers, newRun, decision };
  return { runId, state: "discarded", already, carriedOut: !already, ...facts };
}

/** Makes the error for discarding a run that is published, or is not staged. */
async function notDiscarded(context: JobContext, { stored, run }: OpenedRun): Promise<JobError> {
  const { plan } = stored;
  if (run.state.kind !== "published") {
    return await notStaged(context, plan);
  }
  refuseRolledBack(context, "discarding", { stored, run });
  return new JobError(plan.staged ? "ALREADY_DECIDED" : "USAGE", `discarding run ${plan.runId}: it is published`, {
    hint: await scoringAgainText(context, plan),
  });
}

/** Makes the error for discarding an unfinished run that was planned without checks that can hold it. */
async function notStaged(context: JobContext, plan: Plan): Promise<JobError> {
  const { runId, target } = plan;
  const when =
    replacedBy(target) === "all" ? "it is published when it is complete" : "its rows are published as they come";
  return new JobError("USAGE", `discarding run ${runId}: it is not staged, so ${when}`, {
    hint: `${await finishingHint(context, plan)}; runs that are planned with \`checks\` in the spec and on_fail: hold can be discarded`,
  });
}

async function findRun(
  context: JobContext,
  act: "approving" | "discarding",
  { runId }: DecisionRequest,
): Promise<OpenedRun> {
  const { spec, sink, sha256, command, record } = context;
  const base = runIdOf(spec.name, spec.params, sha256);
  const stored = await sink.find(base);
  if (stored === undefined) {
    throw notPlanned(context, act);
  }
  if (runId !== undefined && runId !== stored.plan.runId) {
    throw new JobError(
      "ALREADY_DECIDED",
      `${act} run ${runId}: the latest run of these params is ${stored.plan.runId}`,
      {
        hint: "infer-batch status shows it; without --run the latest run is meant",
      },
    );
  }
  if (stored.pruned !== undefined) {
    throw prunedError(stored.pruned, `${command(stored.plan.params)} --new-run`);
  }
  record.setRun(runFacts(stored));
  const toDiscard = act === "discarding"; // a discarded run publishes nothing, so missing or damaged rows do not matter
  return { stored, run: await openOwn(context, stored, { toDiscard }) };
}

function decisionOf(
  { actingUser, dateMs }: JobContext,
  kind: Decision["kind"],
  { by, reason, notNormal }: DecisionRequest,
): Decision {
  const named = by?.trim() ?? "";
  if (named === byChecks) {
    throw new JobError("USAGE", `reading --by: ${byChecks} is the name of the checks themselves`, {
      hint: "name the person or the team that decides",
    });
  }
  const at = new Date(dateMs()).toISOString();
  const who = named === "" ? actingUser() : named; // a script's variable may be empty
  return { kind, by: who, at, reason: reason === undefined ? null : hideCredentials(reason), asBaseline: !notNormal };
}

async function notHeld(context: JobContext, { stored: { plan }, run }: OpenedRun): Promise<JobError> {
  const progress = `${countCommitted(run)} of ${count(spanCount(plan), "span")} committed`;
  return new JobError("USAGE", `approving run ${plan.runId}: its checks do not hold it (${progress})`, {
    hint: await finishingHint(context, plan),
  });
}

function alreadyDecided(
  { command }: JobContext,
  act: string,
  { plan: { runId, params }, decision }: { readonly plan: Plan; readonly decision: Decision },
): JobError {
  // A published run is refused before: an approved one is not published yet.
  const next = decision.kind === "approved" ? `${command(params)} publishes it; if the target refuses its rows, ` : "";
  return new JobError("ALREADY_DECIDED", `${act} run ${runId}: it was ${decisionText(decision, true)}`, {
    hint: `a decision is final; ${next}run --new-run scores the input again as another run`,
  });
}
