import type { SpanProfile } from "../checks/span-profile.js";
import { checkKeys } from "../checks/verdicts/key-check.js";
import { asPredictedBy } from "../checks/verdicts/model-cause.js";
import type { CheckResult } from "../checks/verdicts/verdict.js";
import type { Plan } from "../plan/plan.js";
import { checkOptionsOf } from "../publish/check-options.js";
import { fewSampledText } from "../publish/compared-text.js";
import { runProfileOf } from "../publish/profile-text.js";
import { logicalDateOf } from "../publish/published-run.js";
import { comparedFile, type RunVerdict } from "../publish/run-verdict.js";
import type { RunReview } from "../report/run-review.js";
import type { JobContext } from "../scoring/context.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import { messageOf } from "../util/errors.js";
import { aggregatesOf } from "./aggregates.js";
import { resultOf } from "./challenger/challenger-result.js";
import { readBaseline, readPinned } from "./judging/baseline.js";
import { judgeRun, keepModel } from "./judging/judge-run.js";
import { runsOfPage } from "./judging/page-runs.js";
import { requireColumns } from "./judging/require-columns.js";
import { warnOfSlices } from "./slices.js";

/** A run whose spans are all committed. */
interface CommittedRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
  /** Where its challenger's predictions are kept; undefined: they are not. */
  readonly kept?: string | undefined;
  /** How long this attempt has scored; undefined: it has not. */
  readonly seconds?: number | undefined;
}

/**
 * Returns the verdict on a run whose spans are all committed; undefined for a run without checks. If the target has
 * none, this attempt makes one; the stored verdict counts. The record receives what the reports show of the run.
 */
export async function verdictOn(context: JobContext, committed: CommittedRun): Promise<RunVerdict | undefined> {
  const { checks } = context.spec;
  const { run, seconds } = committed;
  const { plan } = committed.stored;
  const known = plan.checks === null || checks === undefined ? undefined : await run.verdict();
  if (plan.checks === null || checks === undefined || known !== undefined) {
    await reviewForReports(context, committed, known);
    return known;
  }
  const found = await run.profile();
  const { profile } = found;
  const { baseline, first, profile: given } = plan.checks;
  warnOfSlices(context, profile);
  const judged = {
    run: runProfileOf(plan, { ...found, ...leftRows(run) }),
    baseline: await readBaseline(context, plan.checks),
    isReference: given !== undefined,
    first: first === null ? undefined : await readPinned(context, first),
    others: await otherResults(context, { plan, run, profile }),
  };
  if (checks.on_fail === "hold" && !plan.staged) {
    context.log.warn("the checks cannot hold this run: it was planned with on_fail: warn");
  }
  const verdict = await run.judge({
    verdict: await judgeRun(context, plan, {
      judged,
      options: checkOptionsOf(checks, plan, logicalDateOf(plan) ?? ""),
    }),
    dates: {
      ...Object.fromEntries([...baseline, ...(first === null ? [] : [first])].map(({ runId, date }) => [runId, date])),
      ...(given === undefined ? {} : Object.fromEntries(judged.baseline.map(({ runId }) => [runId, given.uri]))),
    },
    thresholds: { ...checks },
    challenger: resultOf(plan, profile),
    writer: context.writer,
    ...(seconds === undefined ? {} : { seconds }),
    at: new Date(context.dateMs()).toISOString(),
  });
  warnOfSample(context, verdict);
  await keepModel(context, plan);
  context.record.setReview(
    await reviewOf(context, committed, { profile: judged.run, earlier: judged.baseline, verdict }),
  );
  return verdict;
}

/**
 * Reads the profiles that reports show for a run that this attempt does not judge, if the spec asks for reports. A
 * failure is only logged and does not change the run.
 */
export async function reviewForReports(
  context: JobContext,
  committed: CommittedRun,
  verdict: RunVerdict | undefined,
): Promise<void> {
  const { record, log, spec } = context;
  const { run } = committed;
  const { plan } = committed.stored;
  const { html, metrics, openlineage } = spec.report;
  if (html === undefined && openlineage === undefined && (verdict === undefined || metrics === undefined)) {
    return;
  }
  try {
    const found = await run.profile();
    const earlier = verdict === undefined || plan.checks === null ? [] : await readBaseline(context, plan.checks);
    const profile = runProfileOf(plan, { ...found, ...leftRows(run) });
    const challenger = verdict?.challenger ?? resultOf(plan, found.profile);
    record.setReview(await reviewOf(context, committed, { profile, earlier, verdict, challenger }));
  } catch (error) {
    log.debug(`reading the profiles for the reports: ${messageOf(error)}`);
  }
}

/** Warns that features were not compared because a sample is too small. */
function warnOfSample({ log }: JobContext, verdict: RunVerdict): void {
  const { fewSampled } = verdict.verdict;
  if (fewSampled !== undefined) {
    log.warn(fewSampledText(fewSampled, comparedFile(verdict)));
  }
}

/** Counts the rows of a run that have no prediction. */
export function leftRows({ rejectedRows, filteredRows }: RunSink): { rejected: number; filtered: number } {
  return { rejected: rejectedRows, filtered: filteredRows };
}

/** What the reports show of a run and of the runs that it is compared with. */
async function reviewOf(
  context: JobContext,
  { stored, run, kept }: CommittedRun,
  { verdict, earlier, ...found }: Pick<RunReview, "profile" | "earlier" | "verdict" | "challenger">,
): Promise<RunReview> {
  const { plan } = stored;
  const shown = verdict === undefined ? {} : await runsOfPage(context, { plan, run, verdict });
  return {
    kept,
    challenger: verdict?.challenger,
    ...found,
    earlier: asPredictedBy(plan.model.sha256, earlier),
    verdict,
    plan: { params: plan.params, dateParam: plan.dateParam },
    reference: plan.checks?.profile?.uri,
    ...shown,
  };
}

/** Makes the checks that need more than profiles. */
async function otherResults(
  context: JobContext,
  { plan, run, profile }: { readonly plan: Plan; readonly run: RunSink; readonly profile: SpanProfile },
): Promise<CheckResult[]> {
  const { unique } = context.spec.checks ?? {};
  requireColumns(context, plan.contract);
  const keys = unique === undefined ? [] : [checkKeys(unique, await run.countKeys(unique))];
  await using aggregates = await aggregatesOf(context, plan);
  return [...keys, ...((await aggregates?.results(profile)) ?? [])];
}
