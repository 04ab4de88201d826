import { firstError, JobError, messageOf, orError, reworded } from "../base/errors.js";
import { mapBounded } from "../base/promises.js";
import { count, rounded, showCount } from "../base/shown-numbers.js";
import { comparedNights, type Finding } from "../checks/check.js";
import {
  asksForPrevious,
  earlierThan,
  judge,
  judgeDay,
  judgeWithPrevious,
  type PreviousModel,
} from "../checks/checks.js";
import { mergeProfiles, parseProfile, type SpanProfile } from "../checks/profile/profile.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import { checkKeys } from "../checks/rules/spec.js";
import type { RowRange } from "../columns/types.js";
import { timeRow } from "../flow/batch-size.js";
import { keyColumns, unprofiledText } from "../flow/features.js";
import type { Attempt, Job, Log, OpenedJob, PlacedSpec, Queries } from "../flow/opened-job.js";
import { createRejectBudget, runRejectLimit } from "../flow/rejects.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { type Contract, withUsedExpressions } from "../models/binding/contract.js";
import type { Model } from "../models/places/place.js";
import { comparisonLines } from "../report/agreement.js";
import { attemptJson, type RunReview } from "../report/attempt-record.js";
import {
  type DecidingCommands,
  decidingTexts,
  type RunReport,
  type ScoreAgain,
  toScoreAgain,
  type VerdictReport,
} from "../report/report.js";
import { comparisonDocument, decisionDocument, stripRows, verdictDocument } from "../stores/ledger.js";
import type { AttemptJson, RunSink, Sink } from "../targets/target.js";
import {
  type AttemptEnd,
  attemptFacts,
  attemptReport,
  dueCall,
  isWhole,
  recordingFailure,
  tellInput,
  unscored,
} from "./attempt.js";
import {
  aggregatesOf,
  readBaseline,
  readPinnedProfile,
  readsAtOnce,
  requireCheckedColumns,
  warnOfSlices,
} from "./checks.js";
import { openTokenizers } from "./find-model.js";
import { decidingCommands, newRunCommand, readersLine, readersOf } from "./hints.js";
import { listInput, readSchema } from "./input.js";
import { verdictWithoutRows, withoutRows } from "./lifecycle/erasure.js";
import {
  byChecks,
  comparedFile,
  type Decision,
  decisionText,
  requireApproved,
  type RunState,
  type RunVerdict,
} from "./lifecycle/lifecycle.js";
import { runProfileOf } from "./lifecycle/profile-text.js";
import {
  type DatedRun,
  leftOutText,
  logicalDateOf,
  notComparedText,
  olderModelText,
  replacedBy,
  runsOfSeries,
} from "./lifecycle/published-run.js";
import { countSpans } from "./lifecycle/span-record.js";
import {
  columnNotes,
  countResults,
  countsText,
  knownText,
  limitsOf,
  resultLines,
  toCorrect,
  warnedText,
  warningsText,
} from "./lifecycle/verdict-text.js";
import { bindFirstShard, loadEngine } from "./model.js";
import { splitRunId } from "./plan/identity.js";
import type { Plan, RunId } from "./plan/plan.js";
import { spanAt, spanCount } from "./plan/spans.js";
import { scoreWithoutPublishing } from "./score-without-publishing.js";

/* The end of a run: its verdict, its decision, its publication, and what an attempt reports of it. */

/** Finishes the run if all spans are committed and nothing holds it; reports what this attempt did. */
export async function conclude(opened: OpenedJob, run: RunSink, shardsUnplanned: number): Promise<RunReport> {
  const { sink, attempt, reporter } = opened;
  attempt.signal.throwIfAborted();
  const isComplete = isWhole(run);
  const end =
    (await discardedMeanwhile(opened, run)) ??
    (isComplete ? await endRun(opened, run) : ({ status: "partial", verdict: null } as const));
  return attemptReport(sink, reporter, run, { ...end, shardsUnplanned });
}

const signsOfDiscard: ReadonlySet<string> = new Set(["DISCARDED", "DISK", "OUTPUT_DAMAGED"]);

export async function unlessDiscarded(
  opened: OpenedJob,
  run: RunSink,
  shardsUnplanned: number,
  work: () => Promise<RunReport>,
): Promise<RunReport> {
  const { sink, reporter } = opened;
  try {
    return await work();
  } catch (thrown) {
    const error = firstError(thrown);
    const mayBe = error instanceof JobError && signsOfDiscard.has(error.code);
    const end = mayBe ? await discardedMeanwhile(opened, run).catch(() => undefined) : undefined;
    if (end === undefined) {
      throw thrown;
    }
    return attemptReport(sink, reporter, run, { ...end, shardsUnplanned });
  }
}

/** Reports a run that a person has discarded since this attempt began, and removes what it has committed. */
async function discardedMeanwhile(opened: OpenedJob, run: RunSink): Promise<AttemptEnd | undefined> {
  const { sink } = opened;
  const { plan } = run;
  const { ledger } = sink;
  const decision = plan.staged ? await ledger.read(plan.runId, decisionDocument) : undefined;
  if (decision?.kind !== "discarded") {
    return undefined;
  }
  await run.finish();
  const verdict = await ledger.read(plan.runId, verdictDocument);
  return await decidedReport(opened, run, { kind: "discarded", decision }, verdict);
}

async function endRun(opened: OpenedJob, run: RunSink): Promise<AttemptEnd> {
  const { job, sink, attempt, reporter } = opened;
  const { plan } = run;
  const { record, log } = reporter;
  // The limit holds for all workers together; each has counted its own rejects and those before it.
  checkRejects(job.spec, run);
  // Checks and publishing come later, and do not count.
  const seconds = record.counts.spansCommitted === 0 ? undefined : (rounded(record.seconds) ?? undefined);
  const verdict = await verdictOn(opened, run, seconds);
  const scoreAgain = verdict && afterStale(job, sink, plan, verdict);
  warnOfResults(log, verdict, scoreAgain);
  const comparison = await sink.ledger.read(plan.runId, comparisonDocument);
  for (const line of comparison === undefined ? [] : comparisonLines(comparison)) {
    log.info(line);
  }

  const state = verdict === undefined || !plan.staged ? undefined : await decidedState(sink, attempt, run, verdict);
  if (state?.kind === "held" || state?.kind === "discarded") {
    log.debug(`run ${plan.runId} is ${state.kind}`);
    return { ...(await decidedReport(opened, run, state, verdict)), comparison };
  }
  if (state?.kind === "superseded") {
    requireApproved(state.decision, plan.runId);
  }
  const scored = { scoring_seconds: verdict?.seconds ?? seconds ?? null };
  const finish = (): Promise<void> => publishRun(sink, run, { ...attemptJson(record), ...scored });
  await (plan.staged ? addingHint(refusedText(job, plan), finish) : finish());
  log.debug(`finished run ${plan.runId}`);
  await tellInput(opened, plan.input.table);
  return {
    status: "complete",
    verdict: verdict === undefined ? null : verdictReport(job.spec, plan, verdict),
    scoreAgain,
    comparison,
  };
}

/** Warns of the checks that warn, and of those that would hold a run which is published anyway. */
function warnOfResults(log: Log, verdict: RunVerdict | undefined, scoreAgain: ScoreAgain | undefined): void {
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
function afterStale(job: Job, sink: Sink, plan: Plan, verdict: RunVerdict): ScoreAgain | undefined {
  const { outcome, results } = verdict.verdict;
  const warns = results.some(({ check, level }) => check === "repeat" && level !== "pass");
  if (!warns || outcome === "hold" || comparedFile(verdict) !== undefined) {
    return undefined;
  }
  const command = newRunCommand(job, plan);
  const before = "if the input was not refreshed, refresh it, then";
  return replacedBy(sink.planTarget) === "nothing"
    ? {
        text: `${before} delete the rows of run ${plan.runId} from ${sink.target}, where the last run's rows may be twice now, and score again`,
        command: `${command} --allow-duplicates`,
      }
    : { text: `${before} score again`, command };
}

/** If the verdict passed, the checks approve the run, unless a person has decided. */
async function decidedState(sink: Sink, { dateMs }: Attempt, run: RunSink, { verdict }: RunVerdict): Promise<RunState> {
  if (verdict.outcome === "hold") {
    return (await sink.open(run)).state; // a person may have decided since this attempt opened the run
  }
  const at = new Date(dateMs()).toISOString();
  // A fault on a date that was expected to differ must not pass on the next one.
  const asBaseline = !verdict.results.some(({ isExcused }) => isExcused === true);
  const approval = { kind: "approved", by: byChecks, at, reason: null, asBaseline } as const;
  const decision = await sink.ledger.create(run, decisionDocument, approval);
  return { kind: decision.kind, decision };
}

export function checkRejects(spec: JobSpec, { plan, spans }: RunSink): void {
  createRejectBudget(runRejectLimit(spec, { rows: plan.input.rows, already: countSpans(spans).rejected }));
}

/** A run with a verdict that holds it, or with a decision not to publish it. */
type DecidedState = Extract<RunState, { kind: "held" | "discarded" }>;

/** What a report says of a run that waits for a person, or that a person discarded; with the error to end with. */
async function decidedReport(
  opened: OpenedJob,
  run: RunSink,
  state: DecidedState,
  verdict: RunVerdict | undefined,
): Promise<Pick<RunReport, "status" | "verdict" | "decided" | "scoreAgain">> {
  const { job, sink, attempt, reporter } = opened;
  const { plan } = run;
  const shown = { status: state.kind, verdict: verdict === undefined ? null : verdictReport(job.spec, plan, verdict) };
  const error = await decidedError(job, sink, reporter.log, run, state);
  if (state.kind === "discarded") {
    const decided = { error, isOwnVerdict: false, readers: await readersLine(sink, reporter.log, plan) };
    return { ...shown, decided, scoreAgain: { text: toScoreAgain, command: newRunCommand(job, plan) } };
  }
  const isOwn = state.verdict.writer === attempt.writer;
  const [text = ""] = error.message.split("\n");
  const call = { runId: plan.runId, note: "told", text, otherwise: true } as const;
  const isTold = job.spec.report.on_held !== "";
  return {
    ...shown,
    decided: {
      error,
      isOwnVerdict: isOwn,
      heldCall: isTold ? await dueCall(sink, attempt, reporter, { isOwn, at: state.verdict.at }, call) : undefined,
      commands: commandsFor(job, run, state.verdict),
    },
  };
}

/** Returns the error that `run` ends with when the run is held or discarded. Dry runs show it. */
export async function decidedError(
  job: Job,
  sink: Sink,
  log: Log,
  run: RunSink,
  state: DecidedState,
): Promise<JobError> {
  const { plan } = run;
  if (state.kind === "discarded") {
    const { by, at, reason } = state.decision;
    const why = reason === null ? "" : `: ${reason}`;
    return new JobError("DISCARDED", `opening run ${plan.runId}: ${by} discarded it at ${at}${why}`, {
      hint: `${toScoreAgain}: ${newRunCommand(job, plan)}`,
    });
  }
  const { verdict: held } = state;
  const { verdict } = held;
  const commands = commandsFor(job, run, held);
  const { approve, discard, newRun, rejects, joinsBaseline, newer } = commands;
  const lost = (await lostSpans(job, run))?.message;
  const message = [
    `checking run ${plan.runId}: it is held and not published; ${countResults(verdict, "hold")} of ${countResults(verdict)} checks failed`,
    ...resultLines(held, "hold"),
    warnedText(verdict),
    plan.checks?.day && notComparedText(plan),
    knownText(verdict, comparedFile(held)),
    plan.checks && leftOutText(plan.checks),
    plan.checks && olderModelText(plan.model, plan.checks),
    lost,
  ].filter((line) => typeof line === "string");
  const readers = await readersLine(sink, log, plan);
  const page = job.page === undefined ? "" : `, or at the page ${job.page}`;
  const texts = decidingTexts(commands);
  const restored = lost === undefined ? "" : ", after you restore what is lost";
  const cures = toCorrect(verdict);
  const hint = [
    `${readers === undefined ? "" : `${readers}; `}look at ${toLookAt(job, plan, held)}${page}, then decide`,
    ...(newer === undefined ? [] : [newer]),
    ...(rejects === undefined ? [] : [`to see the rejected rows: ${rejects}`]),
    `${texts.approve}${restored}: ${approve}`,
    ...(joinsBaseline ? [`${texts.approve}${restored}, and ${texts.notNormal}: ${approve} --not-normal`] : []),
    `${texts.discard}: ${discard}`,
    `to score again, after you correct ${cures}${cures.endsWith("the spec") ? "" : " or change the spec"}: ${newRun}`,
  ];
  return new JobError("HELD", message.join("\n  "), { hint: hint.join("\n    ") });
}

/** The commands that decide on a held run, and the one that shows its rejected rows if these hold it. */
function commandsFor(job: Job, run: RunSink, { verdict }: RunVerdict): DecidingCommands {
  const { plan, spans } = run;
  const isRejects = verdict.results.some(({ check, level }) => check === "rejects" && level === "hold");
  return {
    ...decidingCommands(job, plan),
    rejects: isRejects ? job.command(plan.params, { verb: "rejects" }) : undefined,
    isEmpty: isWhole(run) && countSpans(spans).output === 0,
  };
}

/** What shows the cause: where only the number of rows is unusual, no statistics of columns do. */
function toLookAt({ command }: Job, { params, input: { shards } }: Plan, { verdict }: RunVerdict): string {
  const [first] = shards;
  return first !== undefined && verdict.results.every(({ check, level }) => level !== "hold" || check === "rows")
    ? `its input (${shards.length === 1 ? "the file" : `${showCount(shards.length)} files, such as`} ${first.uri})`
    : `the statistics of its columns (${command(params, { verb: "stats" })})`;
}

export function verdictReport(spec: JobSpec, plan: Plan, verdict: RunVerdict): VerdictReport {
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
export async function reportDecided(opened: OpenedJob, run: RunSink, state: DecidedState): Promise<RunReport> {
  const { sink, reporter } = opened;
  const isHeld = state.kind === "held";
  const verdict = isHeld ? state.verdict : await sink.ledger.read(run.plan.runId, verdictDocument);
  await (isHeld ? reviewForReports(opened, run, verdict) : run.finish());
  const end = await decidedReport(opened, run, state, verdict);
  return { ...unscored(sink, reporter, run), ...end };
}

/** The error for a run that lost spans since it waits for a decision; undefined: it is whole, or still being scored. */
export async function lostSpans(job: Job, run: RunSink): Promise<JobError | undefined> {
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
  const discard = isHeld ? `; or throw it away: ${job.command(params, { verb: "discard", runId })}` : "";
  return new JobError("OUTPUT_DAMAGED", found, {
    hint: `it cannot be published: restore what was committed${discard}; or score again, as another run in its place: ${newRunCommand(job, run.plan)}`,
    damage: { runId },
  });
}

async function publishRun(sink: Sink, run: RunSink, attempt: AttemptJson): Promise<void> {
  const { runId } = run.plan;
  if ((await run.finish(attempt)) === "discarded") {
    requireApproved(await sink.ledger.read(runId, decisionDocument), runId);
  }
}

/** Publishes an approved run. Needs neither its model nor its input. */
export async function publishApproved(opened: OpenedJob, run: RunSink): Promise<RunReport> {
  const { job, sink, attempt, reporter } = opened;
  const { spec } = job;
  const { record, log } = reporter;
  const { plan } = run;
  const verdict = await sink.ledger.read(plan.runId, verdictDocument);
  if (spec.report.openlineage !== undefined) {
    await reviewForReports(opened, run, verdict); // its events count the published rows
  }
  const stuck = refusedText(job, plan);
  await addingHint(stuck, () => run.begin(attemptFacts(spec, attempt, "none")));
  record.startScoring();
  if (plan.erasure !== undefined) {
    await stripRows(sink.ledger, plan.runId);
  }
  await recordingFailure(sink, attempt, run, () =>
    addingHint(stuck, () =>
      publishRun(sink, run, { ...attemptJson(record), scoring_seconds: verdict?.seconds ?? null }),
    ),
  );
  record.finish();
  log.info(`published run ${plan.runId}`);
  return {
    ...unscored(sink, reporter, run),
    status: "complete",
    verdict: verdict === undefined ? null : verdictReport(spec, plan, verdict),
    seconds: record.seconds,
  };
}

function refusedText(job: Job, plan: Plan): string {
  return `run ${plan.runId} is approved, which is final, and nothing of it is published: correct the table, then run the same command again; or score again, as another run in its place: ${newRunCommand(job, plan)}`;
}

const refusals: ReadonlySet<string> = new Set(["OUTPUT_MISMATCH", "OUTPUT_REFUSED", "DUPLICATE_KEY"]);

export function isRefusal({ code, damage }: JobError): boolean {
  // OUTPUT_DAMAGED without a damaged run: a table that a trigger or rule of the target names is gone.
  return refusals.has(code) || (code === "OUTPUT_DAMAGED" && damage === undefined);
}

/** Adds to the hint of an error that the target does not take the rows of a run. @throws errors of `work` */
export async function addingHint<T>(added: string, work: () => Promise<T>): Promise<T> {
  const result = await orError(work, isRefusal);
  if (result instanceof JobError) {
    const { hint } = result;
    throw reworded(result, { hint: hint === undefined ? added : `${hint}\n    ${added}` });
  }
  return result;
}

/**
 * If the target has no verdict, this attempt makes one; the stored one counts. @param seconds undefined: it has not
 * scored
 */
async function verdictOn(
  opened: OpenedJob,
  run: RunSink,
  seconds: number | undefined,
): Promise<RunVerdict | undefined> {
  const { job, sink, input, models, attempt, reporter, queries } = opened;
  const { log, record } = reporter;
  const { checks } = job.spec;
  const { plan } = run;
  const isChecked = plan.checks !== null && checks !== undefined;
  const known = isChecked ? await sink.ledger.read(plan.runId, verdictDocument) : undefined;
  if (!isChecked || known !== undefined) {
    await reviewForReports(opened, run, known);
    return known;
  }

  const profile = await run.profile();
  const { baseline, profile: given } = plan.checks;
  warnOfSlices(log, profile);
  const runs = await readBaseline(job, sink, input, plan.checks);
  const judged = {
    run: runProfileOf(plan, { profile, ...countSpans(run.spans) }),
    earlier: earlierThan(logicalDateOf(plan) ?? "", runs, given !== undefined),
    limits: limitsOf(checks, plan),
    others: await otherResults(job, queries, run, profile),
  };
  if (checks.on_fail === "hold" && !plan.staged) {
    log.warn("the checks cannot hold this run: it was planned with on_fail: warn");
  }
  const day = plan.checks.day && (await input.chain?.readDay(plan.checks.day, judged.run));
  const dates =
    given === undefined
      ? [...baseline, ...(day?.earlier ?? [])].map(({ runId, date }) => [runId, date])
      : runs.map(({ runId }) => [runId, given.uri]);
  const own = day === undefined ? judge(judged) : judgeDay(judged, day);
  // If the model is new and an output did not pass, the model of the last run tells the cause.
  const asks = day === undefined && asksForPrevious(own, judged.run);
  const previous = asks ? await askPrevious(opened, plan, judged.earlier.nights.at(-1)) : undefined;
  const verdict = await sink.ledger.create(run, verdictDocument, {
    verdict: previous === undefined ? own : judgeWithPrevious(judged, own, previous),
    dates: Object.fromEntries(dates) as Record<string, string>,
    thresholds: { ...checks },
    writer: attempt.writer,
    ...(seconds === undefined ? {} : { seconds }),
    at: new Date(attempt.dateMs()).toISOString(),
  });
  // Kept for the verdict on the first run with the next model. A failure does not change the run.
  await models.earlierModels.keep(plan.model).catch((error: unknown) => {
    log.debug(`keeping the model for later verdicts: ${messageOf(error)}`);
  });
  record.setReview(
    await reviewOf(job.spec, sink, log, plan, {
      profile: judged.run,
      earlier: judged.earlier.nights,
      verdict,
    }),
  );
  return verdict;
}

/** Of a run that this attempt does not judge. A failure is only logged and does not change the run. */
async function reviewForReports(opened: OpenedJob, run: RunSink, verdict: RunVerdict | undefined): Promise<void> {
  const { job, sink, input, reporter } = opened;
  const { record, log } = reporter;
  const { plan } = run;
  const { html, metrics, openlineage } = job.spec.report;
  if (html === undefined && openlineage === undefined && (verdict === undefined || metrics === undefined)) {
    return;
  }
  try {
    const profile = runProfileOf(plan, { profile: await run.profile(), ...countSpans(run.spans) });
    const isCompared = verdict !== undefined && plan.checks !== null;
    const earlier = isCompared ? (await readBaseline(job, sink, input, plan.checks)).slice(-comparedNights) : [];
    record.setReview(await reviewOf(job.spec, sink, log, plan, { profile, earlier, verdict }));
  } catch (error) {
    log.debug(`reading the profiles for the reports: ${messageOf(error)}`);
  }
}

async function reviewOf(
  spec: JobSpec,
  sink: Sink,
  log: Log,
  plan: Plan,
  judged: Pick<RunReview, "profile" | "earlier" | "verdict">,
): Promise<RunReview> {
  const { verdict } = judged;
  const shown = verdict === undefined ? {} : await runsOfPage(spec, sink, log, plan, verdict);
  return {
    comparison: await sink.ledger.read(plan.runId, comparisonDocument),
    ...judged,
    plan: { params: plan.params, dateParam: plan.dateParam },
    reference: plan.checks?.profile?.uri,
    ...shown,
  };
}

async function otherResults(job: PlacedSpec, queries: Queries, run: RunSink, profile: SpanProfile): Promise<Finding[]> {
  const { unique } = job.spec.checks ?? {};
  requireCheckedColumns(job, run.plan.contract);
  const keys = unique === undefined ? [] : [checkKeys(unique, await run.countKeys(unique))];
  await using aggregates = await aggregatesOf(job, queries, run.plan);
  return [...keys, ...((await aggregates?.results(profile)) ?? [])];
}

/** Rows that are neighbours; the groups are spread over the run. */
const groupRows = 2048;
/** Rows of a run that the previous model scores, at most. */
const mostRows = 48 * groupRows;
/** Runs of up to so many rows are scored whole; of larger ones a tenth, if that is more. */
const wholeRows = 5 * groupRows;
/** A slow model scores fewer rows. */
const mostMs = 60_000;

/** The verdict then says whether the new model or the data changed the predictions. undefined: it cannot. */
async function askPrevious(
  opened: OpenedJob,
  plan: Plan,
  last: RunProfile | undefined,
): Promise<PreviousModel | undefined> {
  const { models, attempt, reporter } = opened;
  if (last === undefined) {
    return undefined;
  }
  const { log } = reporter;
  const unknown = "the verdict does not say whether the new model or the data changed the predictions";
  try {
    const found = await models.earlierModels.find({ ...last.model, sha256: last.modelSha256 });
    if (found === undefined) {
      log.warn(`${unknown}: the model of run ${last.runId} is gone`);
      return undefined;
    }
    const profile = await scoreSample(
      { ...opened, models: { ...models, openEngine: found.openEngine } },
      plan,
      found.model,
    );
    log.info(`the model of run ${last.runId} has scored ${count(profile.rows, "row")} of this run`);
    return { modelSha256: last.modelSha256, rows: profile.rows, outputs: profile.columns };
  } catch (error) {
    attempt.signal.throwIfAborted();
    log.warn(`${unknown}: scoring rows with the model of run ${last.runId}: ${messageOf(error).split("\n", 1)[0]}`);
    return undefined;
  }
}

async function scoreSample(opened: OpenedJob, plan: Plan, found: Model): Promise<SpanProfile> {
  const { input, models } = opened;
  const { spec } = opened.job;
  const job = { ...opened.job, spec: { ...spec, output: { ...spec.output, lineage: false } } };
  const model = "served" in found ? found : { ...found, tokenizers: await openTokenizers(job, models) };
  const { folders } = await listInput(job, input, plan);
  await using decoder = await input.openDecoder(folders);
  await using loading = loadEngine(models, model, { inputBytes: 0 });
  const engine = await loading.engine;
  // The previous model is bound as the spec binds the new one.
  const takenElsewhere = new Set(Object.keys(spec.input.columns));
  const [shard] = plan.input.shards;
  const seen = shard && (await readSchema(job.spec, input.source, shard, decoder));
  const bound = await bindFirstShard(job, input.source, seen, { decoder, engine, model, takenElsewhere });
  const contract = withUsedExpressions({ ...bound, passthrough: [] });
  const sample = samplePlan(plan, { contract, sha256: model.sha256, msPerRow: await timeRow(engine, contract) });
  const profiles: SpanProfile[] = [];
  await scoreWithoutPublishing({ ...opened, job }, { ...sample, engine, decoder }, (_span, { profile }) => {
    profiles.push(parseProfile(profile));
  });
  return profiles.reduce(mergeProfiles);
}

/** A plan whose spans are groups of rows, and the groups that are scored. */
function samplePlan(
  plan: Plan,
  { contract, sha256, msPerRow }: { readonly contract: Contract; readonly sha256: string; readonly msPerRow: number },
): { readonly plan: Plan; readonly ranges: readonly RowRange[] } {
  const { rows } = plan.input;
  const groups = { ...plan, contract, model: { ...plan.model, sha256 }, checks: null, commitRows: groupRows };
  const all = spanCount(groups);
  const inTime = msPerRow === 0 ? mostRows : mostMs / msPerRow;
  const wanted = Math.min(mostRows, Math.max(wholeRows, rows / 10), inTime);
  const scored = Math.max(1, Math.min(all, Math.floor(wanted / groupRows)));
  const ranges = Array.from({ length: scored }, (_, index) => spanAt(groups, Math.floor((index * all) / scored)));
  return { plan: groups, ranges };
}

/** Earlier runs in the small charts of a page. */
const shownRuns = 29;

type Shown = Pick<RunReview, "readers" | "history" | "seconds">;

/**
 * Runs before it, and what readers have if it is held. Nothing if the spec asks for no page; failures are only logged.
 */
async function runsOfPage(spec: JobSpec, sink: Sink, log: Log, plan: Plan, { verdict }: RunVerdict): Promise<Shown> {
  if (spec.report.html === undefined) {
    return {};
  }
  const readers = verdict.outcome === "hold" ? await readersOf(sink, log, plan) : undefined;
  try {
    const { job, params, dateParam } = plan;
    const date = logicalDateOf(plan);
    if (dateParam === null || date === undefined) {
      return { readers };
    }
    const nights = runsOfSeries(await sink.published("everywhere"), { job, params, dateParam });
    const latest = nights.findLast((night) => night.date !== date)?.date;
    const earlier = nights.filter((night) => night.date < date).slice(-shownRuns);
    const [own] = await sink.history({ job, runId: plan.runId, last: 1 });
    const took = await mapBounded(earlier, readsAtOnce, async (run) => ({
      runId: run.runId,
      seconds: await run.seconds(),
    }));
    return {
      readers: readers && { ...readers, latest },
      history: await profilesOf(sink, log, earlier),
      seconds: new Map(
        [...took, ...(own === undefined ? [] : [own])].flatMap(({ runId, seconds }) =>
          seconds === null ? [] : [[runId, seconds]],
        ),
      ),
    };
  } catch (error) {
    log.debug(`reading the published runs for report.html: ${messageOf(error)}`);
    return { readers };
  }
}

async function profilesOf(sink: Sink, log: Log, runs: readonly DatedRun[]): Promise<RunProfile[]> {
  const read = async (run: DatedRun): Promise<RunProfile[]> => {
    try {
      return [await readPinnedProfile(sink, run)];
    } catch (error) {
      log.debug(`reading a profile for report.html: ${messageOf(error)}`);
      return [];
    }
  };
  return (await mapBounded(runs, readsAtOnce, read)).flat();
}

/** Its spans are copies, without the erased rows, so that it cannot be scored; the next erasure or run replaces it. */
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

export function refusePlannedErasure({ runId, erasure }: Plan): void {
  if (erasure !== undefined) {
    throw new JobError(
      "PLAN_CHANGED",
      `planning run ${runId}: ${erasure.by} has planned it, to erase rows of ${erasure.of}`,
      { hint: "run the same command again when infer-batch erase has ended" },
    );
  }
}

/** With that run's verdict and decision. @throws JobError PLAN_CHANGED if it was superseded or discarded */
export async function finishErasure(sink: Sink, run: RunSink): Promise<void> {
  const { plan } = run;
  await approveErasure(sink, run);
  await stripRows(sink.ledger, plan.runId);
  await publishRun(sink, run, { started_at: plan.erasure?.at ?? null, erased_from: plan.erasure?.of ?? null });
}

/** From then on no other erasure supersedes it. @throws JobError PLAN_CHANGED if it was superseded or discarded */
export async function approveErasure(sink: Sink, run: RunSink): Promise<Decision> {
  const { runId, erasure } = run.plan;
  if (erasure === undefined) {
    throw new Error(`run ${runId} is no erasure`);
  }
  const { of, at, by } = erasure;
  const verdict = await sink.ledger.read(of as RunId, verdictDocument);
  if (verdict !== undefined) {
    await sink.ledger.create(run, verdictDocument, verdictWithoutRows(verdict));
  }
  const comparison = await sink.ledger.read(of as RunId, comparisonDocument);
  if (comparison !== undefined) {
    await sink.ledger.create(run, comparisonDocument, withoutRows(comparison));
  }
  const decided = await sink.ledger.read(of as RunId, decisionDocument);
  const { base, number } = splitRunId(of as RunId);
  const asBaseline = (await sink.find(base, number))?.plan.staged === false; // a staged run has a decision, which says so
  const own: Decision = { kind: "approved", by, at, reason: `without the erased rows of ${of}`, asBaseline };
  const decision = await sink.ledger.create(run, decisionDocument, decided ?? own);
  if (decision.kind !== "approved") {
    throw new JobError("PLAN_CHANGED", `publishing run ${runId}: it was ${decisionText(decision, true)}`, {
      hint: "run the same infer-batch erase again",
    });
  }
  return decision;
}
