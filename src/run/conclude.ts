import { firstError, JobError } from "../util/errors.js";
import { reuseCostText } from "../report/reuse-cost.js";
import type { Plan } from "../plan/plan.js";
import { spanCount } from "../plan/spans.js";
import {
  byChecks,
  comparedFile,
  isRolledBack,
  requireApproved,
  type RunState,
  type RunVerdict,
} from "../publish/lifecycle.js";
import { columnNotes, resultLines } from "../publish/verdict-text.js";
import { idleReport } from "../report/idle-report.js";
import { attemptJson } from "../report/attempt-json.js";
import { rounded, type RunReport, type ScoreAgain } from "../report/report.js";
import { secondsByStage } from "../report/stage-times.js";
import { replacedBy } from "../publish/published-run.js";
import type { JobContext } from "../scoring/context.js";
import { createRejectBudget, runRejectLimit } from "../scoring/reject-budget.js";
import { comparisonDocument, decisionDocument, verdictDocument } from "../sink/ledger.js";
import type { RunSink, RunWriter, StoredPlan } from "../sink/port.js";
import { comparisonLines } from "../report/agreement/comparison-text.js";
import { countCommitted } from "./attempt.js";
import { rolledBackReport } from "./judging/readers.js";
import { addingHint, decidedReport, refusedText, verdictReport } from "./held-or-discarded.js";
import { verdictOn } from "./review.js";
import { rowsOf } from "../publish/span-record.js";

/** A run whose share of this worker is committed. */
export interface EndingRun {
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
