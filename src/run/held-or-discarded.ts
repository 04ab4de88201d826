import type { Plan } from "../plan/plan.js";
import type { Decision } from "../publish/decision.js";
import { prunedError, type Pruning } from "../publish/pruned-run.js";
import { comparedFile, type RunVerdict } from "../publish/run-verdict.js";
import type { RunState } from "../publish/lifecycle.js";
import { columnNotes, countsText, knownText, resultLines, toCorrect, warningsText } from "../publish/verdict-text.js";
import { attemptJson } from "../report/attempt-json.js";
import { idleReport } from "../report/idle-report.js";
import {
  type DecidingCommands,
  type DueCall,
  type RunReport,
  toScoreAgain,
  type VerdictReport,
} from "../report/report.js";
import type { JobContext } from "../scoring/context.js";
import { stripVerdicts, verdictDocument } from "../sink/ledger.js";
import type { RunSink, RunWriter, StoredPlan } from "../sink/port.js";
import { JobError, reworded } from "../util/errors.js";
import { attemptFacts, dueCall, recordingFailure } from "./attempt.js";
import { type ChangesSince, changesSince, heldError } from "./judging/held-error.js";
import { decidingCommands, readersLine } from "./judging/readers.js";
import { reviewForReports } from "./review.js";
import { keyColumns, unprofiledText } from "../scoring/features.js";
import { leftOutText, notComparedText, olderModelText } from "../publish/compared-text.js";
import { rowsOf } from "../publish/span-record.js";
import { spanCount } from "../plan/spans.js";

/** A run with a verdict that holds it, or with a decision not to publish it. */
export type DecidedState = Extract<RunState, { kind: "held" | "discarded" }>;

/** What a report says of a run that waits for a person, or that a person discarded; with the error to end with. */
export async function decidedReport(
  context: JobContext,
  { plan, run, state, verdict, since }: DecidedRun,
): Promise<Pick<RunReport, "status" | "verdict" | "decided" | "scoreAgain">> {
  const shown = { status: state.kind, verdict: verdict === undefined ? null : verdictReport(context, plan, verdict) };
  if (state.kind === "discarded") {
    const { newRun } = await decidingCommands(context, plan);
    const error = discardedError(plan, state.decision, newRun);
    const decided = { error, isOwnVerdict: false, readers: await readersLine(context, plan) };
    return { ...shown, decided, scoreAgain: { text: toScoreAgain, command: newRun } };
  }
  const commands = await commandsFor(context, { plan, run }, state.verdict);
  const error = await heldError(context, plan, { verdict: state.verdict, commands, page: context.page, since });
  return {
    ...shown,
    decided: {
      error,
      isOwnVerdict: state.verdict.writer === context.writer,
      heldCall: await heldCall(context, { plan, verdict: state.verdict, error }),
      commands,
    },
  };
}

/** Returns the error that `run` ends with when the run is held or discarded. Dry runs show it. */
export async function decidedError(
  context: JobContext,
  { plan, run, state }: Pick<DecidedRun, "plan" | "run" | "state">,
): Promise<JobError> {
  if (state.kind === "discarded") {
    return discardedError(plan, state.decision, (await decidingCommands(context, plan)).newRun);
  }
  const commands = await commandsFor(context, { plan, run }, state.verdict);
  return await heldError(context, plan, {
    verdict: state.verdict,
    commands,
    since: await changesSince(context, plan, run),
  });
}

/** The commands that decide on a held run, and the one that shows its rejected rows if these hold it. */
async function commandsFor(
  context: JobContext,
  { plan, run }: Pick<DecidedRun, "plan" | "run">,
  { verdict }: RunVerdict,
): Promise<DecidingCommands> {
  const isRejects = verdict.results.some(({ check, level }) => check === "rejects" && level === "hold");
  const rejects = isRejects ? context.command(plan.params, { verb: "rejects" }) : undefined;
  return {
    ...(await decidingCommands(context, plan)),
    rejects,
    isEmpty: run.spans.size === spanCount(plan) && rowsOf(run.spans).output === 0,
  };
}

/** A run that is held or discarded. */
interface DecidedRun {
  readonly plan: Plan;
  readonly run: RunSink;
  readonly state: DecidedState;
  readonly verdict: RunVerdict | undefined;
  /** Default: changes are not looked for. */
  readonly since?: ChangesSince | undefined;
}

/** The call of `report.on_held` that this attempt is to make. */
async function heldCall(
  context: JobContext,
  { plan, verdict, error }: { readonly plan: Plan; readonly verdict: RunVerdict; readonly error: JobError },
): Promise<DueCall | undefined> {
  if (context.spec.report.on_held === "") {
    return undefined;
  }
  const [text = ""] = error.message.split("\n");
  const about = { isOwn: verdict.writer === context.writer, at: verdict.at };
  return await dueCall(context, about, { runId: plan.runId, note: "told", text, otherwise: true });
}

/** The verdict for reports. */
export function verdictReport({ spec }: Pick<JobContext, "spec">, plan: Plan, verdict: RunVerdict): VerdictReport {
  const { verdict: found } = verdict;
  const notes = [
    notComparedText(plan),
    plan.checks && leftOutText(plan.checks),
    plan.checks && olderModelText(plan.model, plan.checks),
    unprofiledText(plan, keyColumns(spec)),
    found.baseline.length === 0 ? undefined : knownText(found, comparedFile(verdict)),
    ...columnNotes(found),
  ];
  return {
    outcome: verdict.verdict.outcome,
    failed: resultLines(verdict, "hold"),
    warnings: resultLines(verdict, "warn"),
    warned: warningsText(verdict),
    counts: countsText(verdict.verdict),
    toCorrect: toCorrect(verdict.verdict),
    comparedWith: verdict.verdict.baseline,
    notes: notes.filter((line) => typeof line === "string"),
  };
}

function discardedError({ runId }: Plan, { by, at, reason }: Decision, newRun: string): JobError {
  const why = reason === null ? "" : `: ${reason}`;
  return new JobError("DISCARDED", `opening run ${runId}: ${by} discarded it at ${at}${why}`, {
    hint: `${toScoreAgain}: ${newRun}`,
  });
}

/** Reports a run that is held or discarded. Removes what killed commands and late attempts have left of a discarded one. */
export async function reportDecided(
  context: JobContext,
  { stored, run, state }: { readonly stored: StoredPlan; readonly run: RunSink; readonly state: DecidedState },
): Promise<RunReport> {
  const { plan } = stored;
  const verdict = state.kind === "held" ? state.verdict : await context.sink.ledger.read(plan.runId, verdictDocument);
  if (state.kind === "held") {
    await reviewForReports(context, { stored, run }, verdict);
  } else {
    await run.tidy();
  }
  const since = state.kind === "held" ? await changesSince(context, plan, run) : undefined;
  const end = await decidedReport(context, { plan, run, state, verdict, since });
  return {
    ...idleReport(context.record, { plan, rowsOfRun: rowsOf(run.spans), output: context.sink.target }),
    ...end,
  };
}

/** Refuses a pruned run, except with `--new-run`. @throws JobError PRUNED */
export function refusePruned({ newRun, command }: JobContext, pruned: Pruning): void {
  if (!newRun) {
    throw prunedError(pruned, `${command(pruned.plan.params)} --new-run`);
  }
}

/** Publishes an approved run. Needs neither its model nor its input. */
export async function publishApproved(
  context: JobContext,
  { stored, run }: { readonly stored: StoredPlan; readonly run: RunSink },
): Promise<RunReport> {
  const { record, log, sink } = context;
  const { plan } = stored;
  const verdict = await sink.ledger.read(plan.runId, verdictDocument);
  if (context.spec.report.openlineage !== undefined) {
    await reviewForReports(context, { stored, run }, verdict); // its events count the published rows
  }
  const stuck = refusedText(context, plan);
  const writer: RunWriter = await addingHint(stuck, () => run.begin(attemptFacts(context, "none")));
  record.startScoring();
  if (plan.erasure !== undefined) {
    await stripVerdicts(sink.ledger, plan.runId);
  }
  await recordingFailure(context, { stored, run }, () =>
    addingHint(stuck, () => writer.finish({ ...attemptJson(record), scoring_seconds: verdict?.seconds ?? null })),
  );
  record.finish();
  log.info(`published run ${plan.runId}`);
  return {
    ...idleReport(record, { plan, rowsOfRun: rowsOf(run.spans), output: sink.target }),
    status: "complete",
    verdict: verdict === undefined ? null : verdictReport(context, plan, verdict),
    seconds: record.seconds,
  };
}

/** What a person can do if the target does not take the rows of an approved run. */
export function refusedText({ command }: Pick<JobContext, "command">, { runId, params }: Plan): string {
  return `run ${runId} is approved, which is final, and nothing of it is published: correct the table, then run the same command again; or score again, as another run in its place: ${command(params)} --new-run`;
}

const refusals: ReadonlySet<string> = new Set(["OUTPUT_MISMATCH", "OUTPUT_REFUSED", "DUPLICATE_KEY"]);

/** Whether an error says that a table does not take the rows of a run, and has taken none. */
function isRefusal(error: unknown): error is JobError {
  // OUTPUT_DAMAGED without a damaged run: a table that a trigger or rule of the target names is gone.
  return (
    error instanceof JobError &&
    (refusals.has(error.code) || (error.code === "OUTPUT_DAMAGED" && error.damage === undefined))
  );
}

/** Returns the error if the target does not take the rows of an approved run. @throws other errors of `publishing` */
export async function orRefusal<T>(publishing: Promise<T>): Promise<T | JobError> {
  return await publishing.catch((error: unknown) => {
    if (isRefusal(error)) {
      return error;
    }
    throw error;
  });
}

/** Adds to the hint of an error that the target does not take the rows of a run. @throws errors of `work` */
export async function addingHint<T>(added: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (!isRefusal(error)) {
      throw error;
    }
    const { hint } = error;
    throw reworded(error, { hint: hint === undefined ? added : `${hint}\n    ${added}` });
  }
}
