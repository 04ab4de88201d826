import { JobError, firstError, messageOf, reworded } from "../util/errors.js";
import { attemptJson, idleReport, reuseCostText } from "../report/attempt-record.js";
import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import {
  type Decision,
  type RunState,
  type RunVerdict,
  byChecks,
  comparedFile,
  isRolledBack,
  requireApproved,
} from "../publish/lifecycle.js";
import {
  columnNotes,
  countResults,
  countsText,
  knownText,
  resultLines,
  toCorrect,
  warnedText,
  warningsText,
} from "../publish/verdict-text.js";
import {
  type DecidingCommands,
  type DueCall,
  type RunReport,
  type ScoreAgain,
  type VerdictReport,
  count,
  decidingTexts,
  rounded,
  toScoreAgain,
} from "../report/report.js";
import { secondsByStage } from "../report/stage-times.js";
import { leftOutText, notComparedText, olderModelText, replacedBy } from "../publish/published-run.js";
import type { JobContext } from "../scoring/context.js";
import { createRejectBudget, runRejectLimit } from "../scoring/rejects.js";
import { comparisonDocument, decisionDocument, stripRows, verdictDocument } from "../sink/ledger.js";
import type { RunSink, RunWriter, StoredPlan } from "../sink/port.js";
import { comparisonLines } from "../report/agreement.js";
import { attemptFacts, countCommitted, dueCall, recordingFailure } from "./attempt.js";
import { decidingCommands, readersLine, rolledBackReport } from "./hints.js";
import { reviewForReports, verdictOn } from "./judge.js";
import { rowsOf } from "../publish/span-record.js";
import { type Pruning, prunedError } from "../publish/pruned-run.js";
import { keyColumns, unprofiledText } from "../scoring/features.js";
import type { Verdict } from "../checks/check.js";
import { compareListing, compareSpec } from "../plan/compare.js";
import { shortDigest } from "../plan/identity.js";
import { modelUri } from "../spec/model-spec.js";
import { withSeparators } from "../util/shown-numbers.js";
import { listInput } from "./input.js";
import { isModelUri, isObjectUri } from "../spec/uri.js";

/** A run whose share of this worker is committed. */
interface EndingRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  readonly writer: RunWriter;
  readonly shardsUnplanned: number;
}

/** Finishes the run if all spans are committed and nothing holds it; reports what this attempt did. */
export async function conclude(context: JobContext, ending: EndingRun): Promise<RunReport> {
  const { stored, run } = ending;
  context.signal.throwIfAborted();
  const isComplete = countCommitted(run) === spanCount(stored.plan);
  const end =
    (await discardedMeanwhile(context, ending)) ??
    (isComplete ? await endRun(context, ending) : ({ status: "partial", verdict: null } as const));
  return attemptReport(context, ending, end);
}

/** Codes of errors that an attempt may end with if `discard` removes what it has committed. */
const signsOfDiscard: ReadonlySet<string> = new Set(["DISCARDED", "DISK", "OUTPUT_DAMAGED"]);

/** Does the work of an attempt. If a person discards the run meanwhile, reports that. */
export async function unlessDiscarded(
  context: JobContext,
  ending: Omit<EndingRun, "writer">,
  work: () => Promise<RunReport>,
): Promise<RunReport> {
  try {
    return await work();
  } catch (thrown) {
    const error = firstError(thrown);
    const mayBe = error instanceof JobError && signsOfDiscard.has(error.code);
    const end = mayBe ? await discardedMeanwhile(context, ending).catch(() => undefined) : undefined;
    if (end === undefined) {
      throw thrown;
    }
    return attemptReport(context, ending, end);
  }
}

type AttemptEnd = Pick<RunReport, "status" | "verdict" | "scoreAgain" | "comparison" | "decided">;

function attemptReport(
  context: JobContext,
  { stored: { plan }, run, shardsUnplanned }: Omit<EndingRun, "writer">,
  end: AttemptEnd,
): RunReport {
  const { record } = context;
  const committed = countCommitted(run);
  record.finish();
  const reuseCost = reuseCostText(record);
  if (reuseCost !== undefined) {
    context.log.info(reuseCost);
  }
  const { spansCommitted, ...counts } = record.counts;
  return {
    runId: plan.runId,
    ...end,
    rowsPlanned: plan.input.rows,
    ...counts,
    rowsOfRun: rowsOf(run.spans),
    spansPlanned: spanCount(plan),
    spansCommitted: committed,
    spansResumed: committed - spansCommitted,
    shardsUnplanned,
    inputWaitSeconds: record.inputWaitSeconds,
    seconds: record.seconds,
    batchSize: record.engine?.batchRows() ?? null,
    provider: record.engine?.provider ?? null,
    providersMissing: record.engine?.missing ?? [],
    trees: record.engine?.trees() ?? null,
    engineBusy: record.engineBusy,
    server: record.engine?.server?.(),
    spending: record.engine?.spending?.(),
    stageSeconds: secondsByStage(record.stages),
    unitsReadAgain: Object.fromEntries(record.unitsReadAgain),
    output: context.sink.target,
  };
}

/** Reports a run that a person has discarded since this attempt began, and removes what it has committed. */
async function discardedMeanwhile(
  context: JobContext,
  { stored: { plan }, run }: Pick<EndingRun, "stored" | "run">,
): Promise<AttemptEnd | undefined> {
  const decision = plan.staged ? await context.sink.ledger.read(plan.runId, decisionDocument) : undefined;
  if (decision?.kind !== "discarded") {
    return undefined;
  }
  await run.tidy();
  return await decidedReport(context, {
    plan,
    run,
    state: { kind: "discarded", decision },
    verdict: await context.sink.ledger.read(plan.runId, verdictDocument),
  });
}

/** Ends a run whose spans are all committed. @throws JobError TOO_MANY_REJECTS, PLAN_CHANGED for a superseded run */
async function endRun(context: JobContext, { stored, run, writer }: EndingRun): Promise<AttemptEnd> {
  const { plan } = stored;
  // The limit holds for all workers together; each has counted its own rejects and those before it.
  checkRejects(context, plan, run);
  const seconds = scoredSeconds(context);
  const verdict = await verdictOn(context, { stored, run, seconds });
  const scoreAgain = verdict && afterStale(context, plan, verdict);
  warnOfResults(context, verdict, scoreAgain);
  const comparison = await context.sink.ledger.read(plan.runId, comparisonDocument);
  for (const line of comparison === undefined ? [] : comparisonLines(comparison)) {
    context.log.info(line);
  }
  const state =
    verdict === undefined || !plan.staged ? undefined : await decidedState(context, { stored, run, verdict });
  if (state?.kind === "held" || state?.kind === "discarded") {
    context.log.debug(`run ${plan.runId} is ${state.kind}`);
    return { ...(await decidedReport(context, { plan, run, state, verdict })), comparison };
  }
  if (state?.kind === "superseded") {
    requireApproved(state.decision, plan.runId);
  }
  const scored = { scoring_seconds: verdict?.seconds ?? seconds ?? null };
  const finish = (): Promise<void> => writer.finish({ ...attemptJson(context.record), ...scored });
  await (plan.staged ? addingHint(refusedText(context, plan), finish) : finish());
  context.log.debug(`finished run ${plan.runId}`);
  return {
    status: "complete",
    verdict: verdict === undefined ? null : verdictReport(context, plan, verdict),
    scoreAgain,
    comparison,
  };
}

/** How long this attempt has scored; undefined: it has not. Checks and publishing come later, and do not count. */
function scoredSeconds({ record }: JobContext): number | undefined {
  return record.counts.spansCommitted === 0 ? undefined : (rounded(record.seconds) ?? undefined);
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
function afterStale(
  { command, sink }: JobContext,
  { runId, params }: Plan,
  verdict: RunVerdict,
): ScoreAgain | undefined {
  const { outcome, results } = verdict.verdict;
  const warns = results.some(({ check, level }) => check === "repeat" && level !== "pass");
  if (!warns || outcome === "hold" || comparedFile(verdict) !== undefined) {
    return undefined;
  }
  const again = `${command(params)} --new-run`;
  const before = "if the input was not refreshed, refresh it, then";
  return replacedBy(sink.planTarget) === "nothing"
    ? {
        text: `${before} delete the rows of run ${runId} from ${sink.target}, where the last run's rows may be twice now, and score again`,
        command: `${again} --allow-duplicates`,
      }
    : { text: `${before} score again`, command: again };
}

/**
 * The state of a staged run that has a verdict: if it passed, the checks approve the run, unless a person has decided.
 */
async function decidedState(
  { sink, dateMs }: JobContext,
  { stored, run, verdict }: { readonly stored: StoredPlan; readonly run: RunSink; readonly verdict: RunVerdict },
): Promise<RunState> {
  if (verdict.verdict.outcome === "hold") {
    return (await sink.open(stored)).state; // a person may have decided since this attempt opened the run
  }
  const at = new Date(dateMs()).toISOString();
  // A fault on a date that was expected to differ must not pass on the next one.
  const asBaseline = !verdict.verdict.results.some(({ isExcused }) => isExcused === true);
  const decision = await run.create(decisionDocument, { kind: "approved", by: byChecks, at, reason: null, asBaseline });
  return { kind: decision.kind, decision };
}

/**
 * Checks the limit of rejected rows. Rows that other attempts rejected count for every value of `on_bad_row`.
 * @throws JobError TOO_MANY_REJECTS
 */
export function checkRejects({ spec }: JobContext, plan: Plan, run: RunSink): void {
  createRejectBudget(runRejectLimit(spec, { rows: plan.input.rows, already: rowsOf(run.spans).rejected }));
}

/** Reports a run that was complete when the command came. Removes its files that killed commands have left. */
export async function alreadyComplete(
  context: JobContext,
  { stored, run }: { stored: StoredPlan; run: RunSink },
): Promise<RunReport> {
  const { plan } = stored;
  await run.tidy();
  return {
    ...idleReport(context.record, { plan, rowsOfRun: rowsOf(run.spans), output: context.sink.target }),
    rolledBack: isRolledBack(run.state) ? await rolledBackReport(context, plan) : undefined,
  };
}

/** A run with a verdict that holds it, or with a decision not to publish it. */
type DecidedState = Extract<RunState, { kind: "held" | "discarded" }>;

/** What a report says of a run that waits for a person, or that a person discarded; with the error to end with. */
async function decidedReport(
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
    await stripRows(sink.ledger, plan.runId);
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
function refusedText({ command }: Pick<JobContext, "command">, { runId, params }: Plan): string {
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

/** Changes since a run was held, other than those of the spec. */
interface ChangesSince {
  /** Describes lost spans, without which the run cannot be published; undefined: none are lost. */
  readonly lost: string | undefined;
  /** Changes of the model's file and of the input's files, one line each. */
  readonly files: readonly string[];
}

/**
 * Finds what has changed. A store, a registry or a server is not asked: if it is away, the command would wait for it. A file
 * that is gone is no change.
 * @public so that tests call it
 */
export async function changesSince(context: JobContext, plan: Plan, run: RunSink): Promise<ChangesSince> {
  const { spec, signal, log } = context;
  const lost = (await lostSpans(context, plan, run))?.message;
  const isModelHere = !isModelUri(modelUri(spec.model)) && spec.model.sha256 === undefined; // with it, no other file is scored
  const isInputHere = !plan.input.shards.some(({ uri }) => isObjectUri(uri));
  const files: string[] = [];
  for (const changes of [...(isModelHere ? [modelChanges] : []), ...(isInputHere ? [inputChanges] : [])]) {
    try {
      files.push(...(await changes(context, plan)));
    } catch (error) {
      signal.throwIfAborted();
      log.debug(`comparing the model and the input with the plan of a held run: ${messageOf(error)}`);
    }
  }
  return { lost, files };
}

interface HeldRun {
  readonly verdict: RunVerdict;
  readonly commands: DecidingCommands;
  /** Default: changes are not looked for. */
  readonly since?: ChangesSince | undefined;
  /** The page of this attempt; absent: it writes none. */
  readonly page?: string | undefined;
}

/** The error that a command ends with if the run is held: what the checks found, and the commands that decide. */
async function heldError(
  context: JobContext,
  plan: Plan,
  { verdict, commands, page: file, since }: HeldRun,
): Promise<JobError> {
  const { approve, discard, newRun, rejects, joinsBaseline, newer } = commands;
  const failed = countResults(verdict.verdict, "hold");
  const message = [
    `checking run ${plan.runId}: it is held and not published; ${failed} of ${countResults(verdict.verdict)} checks failed`,
    ...resultLines(verdict, "hold"),
    ...[
      warnedText(verdict.verdict),
      knownText(verdict.verdict, comparedFile(verdict)),
      plan.checks && leftOutText(plan.checks),
      plan.checks && olderModelText(plan.model, plan.checks),
    ].filter((line) => typeof line === "string"),
    ...specChanges(context, plan, verdict),
    ...(since?.lost === undefined ? [] : [since.lost]),
    ...(since?.files ?? []),
  ].join("\n  ");
  const readers = await readersLine(context, plan);
  const page = file === undefined ? "" : `, or at the page ${file}`;
  const texts = decidingTexts(commands);
  const restored = since?.lost === undefined ? "" : ", after you restore what is lost";
  const hint = [
    `${readers === undefined ? "" : `${readers}; `}look at ${toLookAt(context, plan, verdict.verdict)}${page}, then decide`,
    ...(newer === undefined ? [] : [newer]),
    ...(rejects === undefined ? [] : [`to see the rejected rows: ${rejects}`]),
    `${texts.approve}${restored}: ${approve}`,
    ...(joinsBaseline ? [`${texts.approve}${restored}, and ${texts.notNormal}: ${approve} --not-normal`] : []),
    `${texts.discard}: ${discard}`,
    `to score again, after you correct ${toCorrect(verdict.verdict)}: ${newRun}`,
  ].join("\n    ");
  return new JobError("HELD", message, { hint });
}

/** What shows the cause: where only the number of rows is unusual, no statistics of columns do. */
function toLookAt({ command }: JobContext, { params, input: { shards } }: Plan, { results }: Verdict): string {
  const [first] = shards;
  return first !== undefined && results.every(({ check, level }) => level !== "hold" || check === "rows")
    ? `its input (${shards.length === 1 ? "the file" : `${withSeparators(shards.length)} files, such as`} ${first.uri})`
    : `the statistics of its columns (${command(params, { verb: "stats" })})`;
}

/** Keys of `checks` that may change until a run has its verdict; `expect` may name other dates. */
const limits = ["on_fail", "factor", "rejects", "outputs", "unique", "inputs"] as const;

/** Says how the spec differs from the one that a run was planned and judged with, since only another run takes it into account. */
function specChanges(
  { spec }: Pick<JobContext, "spec">,
  plan: Plan,
  { thresholds }: Pick<RunVerdict, "thresholds">,
): string[] {
  const planned = compareSpec(plan, spec);
  const { checks } = spec;
  const changed = limits.filter((key) => checks !== undefined && textOf(thresholds[key]) !== textOf(checks[key]));
  return [
    ...(planned.length === 0
      ? []
      : [`the spec has changed since this run was planned (${planned.join("; ")}): run --new-run applies it`]),
    ...(changed.length === 0
      ? []
      : [
          `the limits in the spec are not those of this verdict (${changed.map((key) => `checks.${key}`).join(", ")}): run --new-run applies them`,
        ]),
  ];
}

/** Says how the input differs from that of a run. Nothing if none of its files is left. */
async function inputChanges(context: JobContext, plan: Plan): Promise<string[]> {
  const { shards } = await listInput(context);
  const { added, missing, changed } = compareListing(plan, shards);
  const differences = [
    [added.length, "added"],
    [changed.length, "replaced"],
    [missing.length, "removed"],
  ] as const;
  const texts = differences.flatMap(([files, what]) =>
    files === 0 ? [] : [`${count(files, "file")} ${files === 1 ? "was" : "were"} ${what}`],
  );
  return shards.length === 0 || texts.length === 0
    ? []
    : [`the input has changed since this run was planned (${texts.join(", ")}): run --new-run scores it`];
}

/** Says that the model is not that of a run. */
async function modelChanges({ spec, resolveModel }: JobContext, { model: planned }: Plan): Promise<string[]> {
  // With a pin: the model is not looked for to plan a run.
  const { model } = await resolveModel({ sha256: planned.sha256 });
  const digests = `sha256 ${shortDigest(model.sha256)}, planned ${shortDigest(planned.sha256)}`;
  return model.sha256 === planned.sha256
    ? []
    : [
        `the model has changed since this run was planned (${modelUri(spec.model)}: ${digests}): run --new-run scores with it`,
      ];
}

/** JSON with sorted keys, without those that are undefined. */
function textOf(value: unknown): string {
  return JSON.stringify(value, (_, one: unknown) =>
    typeof one === "object" && one !== null && !Array.isArray(one)
      ? Object.fromEntries(Object.entries(one).toSorted(([a], [b]) => (a < b ? -1 : 1)))
      : one,
  );
}

/**
 * Returns the error for a run that waits for a decision, or was approved, and has lost spans since: it cannot be published.
 * undefined: it is whole, or its spans are still being scored.
 */
export async function lostSpans(
  { command }: Pick<JobContext, "command">,
  plan: Plan,
  run: RunSink,
): Promise<JobError | undefined> {
  const { runId, params } = plan;
  const spans = spanCount(plan);
  const isJudged = run.state.kind === "held" || run.state.kind === "approved";
  if (!isJudged || run.spans.size === spans) {
    return undefined;
  }
  await run.refresh(); // the last ones may have been committed after they were counted, and before the state was read
  const lost = spans - run.spans.size;
  if (lost === 0) {
    return undefined;
  }
  const first = Array.from({ length: spans }, (_, span) => span).find((span) => !run.spans.has(span));
  const more = lost === 1 ? "" : `, and ${count(lost - 1, "more span")}`;
  const discard = run.state.kind === "held" ? `; or throw it away: ${command(params, { verb: "discard", runId })}` : "";
  return new JobError(
    "OUTPUT_DAMAGED",
    `checking run ${runId}: span ${first} of ${spans} is no longer committed${more}`,
    {
      hint: `it cannot be published: restore what was committed${discard}; or score again, as another run in its place: ${command(params)} --new-run`,
      damage: { runId },
    },
  );
}
