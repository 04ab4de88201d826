import type { Plan } from "./plan/plan.js";
import { spanCount } from "./plan/spans.js";
import { leftOutText, notComparedText, olderModelText, replacedBy } from "./lifecycle/published-run.js";
import {
  type RunState,
  type RunVerdict,
  byChecks,
  comparedFile,
  isRolledBack,
  requireApproved,
} from "./lifecycle/lifecycle.js";
import { type Pruning, prunedError } from "./lifecycle/pruned-run.js";
import { rowsOf } from "./lifecycle/span-record.js";
import {
  columnNotes,
  countResults,
  countsText,
  knownText,
  resultLines,
  toCorrect,
  warnedText,
  warningsText,
} from "./lifecycle/verdict-text.js";
import { comparisonLines } from "../report/agreement.js";
import { attemptJson, reuseCostText, workOf } from "../report/attempt-record.js";
import {
  type DecidingCommands,
  type DueCall,
  type RunReport,
  type ScoreAgain,
  type VerdictReport,
  decidingTexts,
  toScoreAgain,
} from "../report/report.js";
import { rounded, showCount, count } from "../base/shown-numbers.js";
import type { JobContext } from "../flow/context.js";
import { keyColumns, unprofiledText } from "../flow/features.js";
import { createRejectBudget, runRejectLimit } from "../flow/rejects.js";
import { comparisonDocument, decisionDocument, stripRows, verdictDocument } from "../stores/ledger.js";
import type { RunSink, RunWriter } from "../targets/target.js";
import { attemptFacts, dueCall, isWhole, recordingFailure } from "./attempt.js";
import { decidingCommands, newRunCommand, readersLine, rolledBackReport } from "./hints.js";
import { reviewForReports, verdictOn } from "./judge.js";
import { JobError, firstError, reworded } from "../base/errors.js";

/* The end of a run: its verdict, its publication, and what an attempt reports of it. */

/** What ends an attempt whose share of the spans is committed. */
interface Ending {
  readonly writer: RunWriter;
  readonly shardsUnplanned: number;
}

/** Finishes the run if all spans are committed and nothing holds it; reports what this attempt did. */
export async function conclude(
  context: JobContext,
  run: RunSink,
  { writer, shardsUnplanned }: Ending,
): Promise<RunReport> {
  context.signal.throwIfAborted();
  const isComplete = isWhole(run);
  const end =
    (await discardedMeanwhile(context, run)) ??
    (isComplete ? await endRun(context, run, writer) : ({ status: "partial", verdict: null } as const));
  return attemptReport(context, run, { ...end, shardsUnplanned });
}

/** Codes of errors that an attempt may end with if `discard` removes what it has committed. */
const signsOfDiscard: ReadonlySet<string> = new Set(["DISCARDED", "DISK", "OUTPUT_DAMAGED"]);

/** Does the work of an attempt. If a person discards the run meanwhile, reports that. */
export async function unlessDiscarded(
  context: JobContext,
  run: RunSink,
  shardsUnplanned: number,
  work: () => Promise<RunReport>,
): Promise<RunReport> {
  try {
    return await work();
  } catch (thrown) {
    const error = firstError(thrown);
    const mayBe = error instanceof JobError && signsOfDiscard.has(error.code);
    const end = mayBe ? await discardedMeanwhile(context, run).catch(() => undefined) : undefined;
    if (end === undefined) {
      throw thrown;
    }
    return attemptReport(context, run, { ...end, shardsUnplanned });
  }
}

type AttemptEnd = Pick<RunReport, "status" | "verdict" | "scoreAgain" | "comparison" | "decided">;

function attemptReport(
  { record, log, sink }: JobContext,
  { plan, spans }: RunSink,
  end: AttemptEnd & Pick<RunReport, "shardsUnplanned">,
): RunReport {
  record.finish();
  const reuseCost = reuseCostText(record);
  if (reuseCost !== undefined) {
    log.info(reuseCost);
  }
  return {
    ...workOf(record),
    runId: plan.runId,
    ...end,
    rowsPlanned: plan.input.rows,
    rowsOfRun: rowsOf(spans),
    spansPlanned: spanCount(plan),
    spansCommitted: spans.size,
    spansResumed: spans.size - record.counts.spansCommitted,
    output: sink.target,
  };
}

/** Reports a run that a person has discarded since this attempt began, and removes what it has committed. */
async function discardedMeanwhile(context: JobContext, run: RunSink): Promise<AttemptEnd | undefined> {
  const { plan } = run;
  const { ledger } = context.sink;
  const decision = plan.staged ? await ledger.read(plan.runId, decisionDocument) : undefined;
  if (decision?.kind !== "discarded") {
    return undefined;
  }
  await run.tidy();
  const verdict = await ledger.read(plan.runId, verdictDocument);
  return await decidedReport(context, run, { kind: "discarded", decision }, verdict);
}

/** Ends a run whose spans are all committed. @throws JobError TOO_MANY_REJECTS, PLAN_CHANGED for a superseded run */
async function endRun(context: JobContext, run: RunSink, writer: RunWriter): Promise<AttemptEnd> {
  const { plan } = run;
  const { record, log, sink } = context;
  // The limit holds for all workers together; each has counted its own rejects and those before it.
  checkRejects(context, run);
  // Checks and publishing come later, and do not count.
  const seconds = record.counts.spansCommitted === 0 ? undefined : (rounded(record.seconds) ?? undefined);
  const verdict = await verdictOn(context, run, seconds);
  const scoreAgain = verdict && afterStale(context, plan, verdict);
  warnOfResults(context, verdict, scoreAgain);
  const comparison = await sink.ledger.read(plan.runId, comparisonDocument);
  for (const line of comparison === undefined ? [] : comparisonLines(comparison)) {
    log.info(line);
  }

  const state = verdict === undefined || !plan.staged ? undefined : await decidedState(context, run, verdict);
  if (state?.kind === "held" || state?.kind === "discarded") {
    log.debug(`run ${plan.runId} is ${state.kind}`);
    return { ...(await decidedReport(context, run, state, verdict)), comparison };
  }
  if (state?.kind === "superseded") {
    requireApproved(state.decision, plan.runId);
  }
  const scored = { scoring_seconds: verdict?.seconds ?? seconds ?? null };
  const finish = (): Promise<void> => writer.finish({ ...attemptJson(record), ...scored });
  await (plan.staged ? addingHint(refusedText(context, plan), finish) : finish());
  log.debug(`finished run ${plan.runId}`);
  return {
    status: "complete",
    verdict: verdict === undefined ? null : verdictReport(context, plan, verdict),
    scoreAgain,
    comparison,
  };
}

/** Warns of the checks that warn, and of those that would hold a run which is published anyway. */
function warnOfResults({ log }: JobContext, verdict: RunVerdict | undefined, scoreAgain: ScoreAgain | undefined): void {
  if (verdict !== undefined) {
    const held = verdict.verdict.outcome === "publish" ? resultLines(verdict, "hold") : [];
    const failed = held.map((line) => `${line}; only a warning: on_fail is warn`);
    for (const line of [...failed, ...resultLines(verdict, "warn")]) {
      log.warn(`checks: ${line}`);
    }
    if (scoreAgain !== undefined) {
      log.warn(`checks: ${scoreAgain.text}: ${scoreAgain.command}`);
    }
    for (const line of columnNotes(verdict.verdict)) {
      log.info(`checks: ${line}`);
    }
  }
}

/** What to do after the check `repeat` warns of a run that is published. The message of a held run has its own commands. */
function afterStale(context: JobContext, plan: Plan, verdict: RunVerdict): ScoreAgain | undefined {
  const { outcome, results } = verdict.verdict;
  const warns = results.some(({ check, level }) => check === "repeat" && level !== "pass");
  if (!warns || outcome === "hold" || comparedFile(verdict) !== undefined) {
    return undefined;
  }
  const { sink } = context;
  const command = newRunCommand(context, plan);
  const before = "if the input was not refreshed, refresh it, then";
  return replacedBy(sink.planTarget) === "nothing"
    ? {
        text: `${before} delete the rows of run ${plan.runId} from ${sink.target}, where the last run's rows may be twice now, and score again`,
        command: `${command} --allow-duplicates`,
      }
    : { text: `${before} score again`, command };
}

/**
 * The state of a staged run that has a verdict: if it passed, the checks approve the run, unless a person has decided.
 */
async function decidedState({ sink, dateMs }: JobContext, run: RunSink, { verdict }: RunVerdict): Promise<RunState> {
  if (verdict.outcome === "hold") {
    return (await sink.open(run)).state; // a person may have decided since this attempt opened the run
  }
  const at = new Date(dateMs()).toISOString();
  // A fault on a date that was expected to differ must not pass on the next one.
  const asBaseline = !verdict.results.some(({ isExcused }) => isExcused === true);
  const decision = await run.create(decisionDocument, { kind: "approved", by: byChecks, at, reason: null, asBaseline });
  return { kind: decision.kind, decision };
}

/**
 * Checks the limit of rejected rows. Rows that other attempts rejected count for every value of `on_bad_row`.
 * @throws JobError TOO_MANY_REJECTS
 */
export function checkRejects({ spec }: JobContext, { plan, spans }: RunSink): void {
  createRejectBudget(runRejectLimit(spec, { rows: plan.input.rows, already: rowsOf(spans).rejected }));
}

/** Reports an attempt that found all spans of a run committed, and scored none. */
function unscored(context: JobContext, run: RunSink): RunReport {
  return attemptReport(context, run, { status: "already_complete", verdict: null, shardsUnplanned: 0 });
}

/** Reports that no row came since the last run of a chain, so that none is planned. */
export function nothingNew({ record, sink, base }: Pick<JobContext, "record" | "sink" | "base">): RunReport {
  record.finish();
  const none = { rowsPlanned: 0, spansPlanned: 0, spansCommitted: 0, spansResumed: 0, shardsUnplanned: 0 };
  return { ...workOf(record), ...none, runId: base, status: "nothing_new", verdict: null, output: sink.target };
}

/** Reports a run that was complete when the command came. Removes its files that killed commands have left. */
export async function alreadyComplete(context: JobContext, run: RunSink): Promise<RunReport> {
  await run.tidy();
  const rolledBack = isRolledBack(run.state) ? await rolledBackReport(context, run.plan) : undefined;
  return { ...unscored(context, run), rolledBack };
}

/** A run with a verdict that holds it, or with a decision not to publish it. */
type DecidedState = Extract<RunState, { kind: "held" | "discarded" }>;

/** What a report says of a run that waits for a person, or that a person discarded; with the error to end with. */
async function decidedReport(
  context: JobContext,
  run: RunSink,
  state: DecidedState,
  verdict: RunVerdict | undefined,
): Promise<Pick<RunReport, "status" | "verdict" | "decided" | "scoreAgain">> {
  const { plan } = run;
  const shown = { status: state.kind, verdict: verdict === undefined ? null : verdictReport(context, plan, verdict) };
  const error = await decidedError(context, run, state);
  if (state.kind === "discarded") {
    const decided = { error, isOwnVerdict: false, readers: await readersLine(context, plan) };
    return { ...shown, decided, scoreAgain: { text: toScoreAgain, command: newRunCommand(context, plan) } };
  }
  return {
    ...shown,
    decided: {
      error,
      isOwnVerdict: state.verdict.writer === context.writer,
      heldCall: await heldCall(context, plan, { verdict: state.verdict, error }),
      commands: commandsFor(context, run, state.verdict),
    },
  };
}

/** Returns the error that `run` ends with when the run is held or discarded. Dry runs show it. */
export async function decidedError(context: JobContext, run: RunSink, state: DecidedState): Promise<JobError> {
  if (state.kind === "held") {
    return await heldError(context, run, state.verdict);
  }
  const { by, at, reason } = state.decision;
  const why = reason === null ? "" : `: ${reason}`;
  return new JobError("DISCARDED", `opening run ${run.plan.runId}: ${by} discarded it at ${at}${why}`, {
    hint: `${toScoreAgain}: ${newRunCommand(context, run.plan)}`,
  });
}

/** The commands that decide on a held run, and the one that shows its rejected rows if these hold it. */
function commandsFor(context: JobContext, run: RunSink, { verdict }: RunVerdict): DecidingCommands {
  const { plan, spans } = run;
  const isRejects = verdict.results.some(({ check, level }) => check === "rejects" && level === "hold");
  return {
    ...decidingCommands(context, plan),
    rejects: isRejects ? context.command(plan.params, { verb: "rejects" }) : undefined,
    isEmpty: isWhole(run) && rowsOf(spans).output === 0,
  };
}

async function heldError(context: JobContext, run: RunSink, held: RunVerdict): Promise<JobError> {
  const { plan } = run;
  const { verdict } = held;
  const commands = commandsFor(context, run, held);
  const { approve, discard, newRun, rejects, joinsBaseline, newer } = commands;
  const lost = (await lostSpans(context, run))?.message;
  const message = [
    `checking run ${plan.runId}: it is held and not published; ${countResults(verdict, "hold")} of ${countResults(verdict)} checks failed`,
    ...resultLines(held, "hold"),
    warnedText(verdict),
    knownText(verdict, comparedFile(held)),
    plan.checks && leftOutText(plan.checks),
    plan.checks && olderModelText(plan.model, plan.checks),
    lost,
  ].filter((line) => typeof line === "string");
  const readers = await readersLine(context, plan);
  const page = context.page === undefined ? "" : `, or at the page ${context.page}`;
  const texts = decidingTexts(commands);
  const restored = lost === undefined ? "" : ", after you restore what is lost";
  const hint = [
    `${readers === undefined ? "" : `${readers}; `}look at ${toLookAt(context, plan, held)}${page}, then decide`,
    ...(newer === undefined ? [] : [newer]),
    ...(rejects === undefined ? [] : [`to see the rejected rows: ${rejects}`]),
    `${texts.approve}${restored}: ${approve}`,
    ...(joinsBaseline ? [`${texts.approve}${restored}, and ${texts.notNormal}: ${approve} --not-normal`] : []),
    `${texts.discard}: ${discard}`,
    `to score again, after you correct ${toCorrect(verdict)} or change the spec: ${newRun}`,
  ];
  return new JobError("HELD", message.join("\n  "), { hint: hint.join("\n    ") });
}

/** What shows the cause: where only the number of rows is unusual, no statistics of columns do. */
function toLookAt({ command }: JobContext, { params, input: { shards } }: Plan, { verdict }: RunVerdict): string {
  const [first] = shards;
  return first !== undefined && verdict.results.every(({ check, level }) => level !== "hold" || check === "rows")
    ? `its input (${shards.length === 1 ? "the file" : `${showCount(shards.length)} files, such as`} ${first.uri})`
    : `the statistics of its columns (${command(params, { verb: "stats" })})`;
}

/** The call of `report.on_held` that this attempt is to make. */
async function heldCall(
  context: JobContext,
  { runId }: Plan,
  { verdict, error }: { readonly verdict: RunVerdict; readonly error: JobError },
): Promise<DueCall | undefined> {
  if (context.spec.report.on_held === "") {
    return undefined;
  }
  const [text = ""] = error.message.split("\n");
  const about = { isOwn: verdict.writer === context.writer, at: verdict.at };
  return await dueCall(context, about, { runId, note: "told", text, otherwise: true });
}

/** The verdict for reports. */
export function verdictReport({ spec }: Pick<JobContext, "spec">, plan: Plan, verdict: RunVerdict): VerdictReport {
  const { verdict: judged } = verdict;
  const notes = [
    notComparedText(plan),
    plan.checks && leftOutText(plan.checks),
    plan.checks && olderModelText(plan.model, plan.checks),
    unprofiledText(plan, keyColumns(spec)),
    judged.baseline.length === 0 ? undefined : knownText(judged, comparedFile(verdict)),
    ...columnNotes(judged),
  ];
  return {
    outcome: judged.outcome,
    failed: resultLines(verdict, "hold"),
    warnings: resultLines(verdict, "warn"),
    warned: warningsText(verdict),
    counts: countsText(judged),
    toCorrect: toCorrect(judged),
    comparedWith: judged.baseline,
    notes: notes.filter((line) => typeof line === "string"),
  };
}

/** Reports a run that is held or discarded. Removes what killed commands and late attempts have left of a discarded one. */
export async function reportDecided(context: JobContext, run: RunSink, state: DecidedState): Promise<RunReport> {
  const isHeld = state.kind === "held";
  const verdict = isHeld ? state.verdict : await context.sink.ledger.read(run.plan.runId, verdictDocument);
  await (isHeld ? reviewForReports(context, run, verdict) : run.tidy());
  const end = await decidedReport(context, run, state, verdict);
  return { ...unscored(context, run), ...end };
}

/** Refuses a pruned run, except with `--new-run`. @throws JobError PRUNED */
export function refusePruned(context: JobContext, pruned: Pruning): void {
  if (!context.newRun) {
    throw prunedError(pruned, newRunCommand(context, pruned.plan));
  }
}

/**
 * Returns the error for a run that waits for a decision, or was approved, and has lost spans since: it cannot be published.
 * undefined: it is whole, or its spans are still being scored.
 */
export async function lostSpans(context: Pick<JobContext, "command">, run: RunSink): Promise<JobError | undefined> {
  const { runId, params } = run.plan;
  const isHeld = run.state.kind === "held";
  if ((!isHeld && run.state.kind !== "approved") || isWhole(run)) {
    return undefined;
  }
  await run.refresh(); // the last ones may have been committed after they were counted, and before the state was read
  const spans = spanCount(run.plan);
  const lost = spans - run.spans.size;
  if (lost === 0) {
    return undefined;
  }
  const first = Array.from({ length: spans }, (_, span) => span).find((span) => !run.spans.has(span));
  const more = lost === 1 ? "" : `, and ${count(lost - 1, "more span")}`;
  const found = `checking run ${runId}: span ${first} of ${spans} is no longer committed${more}`;
  const discard = isHeld ? `; or throw it away: ${context.command(params, { verb: "discard", runId })}` : "";
  return new JobError("OUTPUT_DAMAGED", found, {
    hint: `it cannot be published: restore what was committed${discard}; or score again, as another run in its place: ${newRunCommand(context, run.plan)}`,
    damage: { runId },
  });
}

/** Publishes an approved run. Needs neither its model nor its input. */
export async function publishApproved(context: JobContext, run: RunSink): Promise<RunReport> {
  const { record, log, sink, spec } = context;
  const { plan } = run;
  const verdict = await sink.ledger.read(plan.runId, verdictDocument);
  if (spec.report.openlineage !== undefined) {
    await reviewForReports(context, run, verdict); // its events count the published rows
  }
  const stuck = refusedText(context, plan);
  const writer = await addingHint(stuck, () => run.begin(attemptFacts(context, "none")));
  record.startScoring();
  if (plan.erasure !== undefined) {
    await stripRows(sink.ledger, plan.runId);
  }
  await recordingFailure(context, run, () =>
    addingHint(stuck, () => writer.finish({ ...attemptJson(record), scoring_seconds: verdict?.seconds ?? null })),
  );
  record.finish();
  log.info(`published run ${plan.runId}`);
  return {
    ...unscored(context, run),
    status: "complete",
    verdict: verdict === undefined ? null : verdictReport(context, plan, verdict),
    seconds: record.seconds,
  };
}

function refusedText(context: Pick<JobContext, "command">, plan: Plan): string {
  return `run ${plan.runId} is approved, which is final, and nothing of it is published: correct the table, then run the same command again; or score again, as another run in its place: ${newRunCommand(context, plan)}`;
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
  const result = await orRefusal(work());
  if (result instanceof JobError) {
    const { hint } = result;
    throw reworded(result, { hint: hint === undefined ? added : `${hint}\n    ${added}` });
  }
  return result;
}
