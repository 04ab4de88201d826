import type { SpanProfile } from "../checks/profile/profile.js";
import { comparedNights, type Finding } from "../checks/check.js";
import { earlierThan } from "../checks/checks.js";
import { checkKeys } from "../checks/rules/unique.js";
import type { Plan } from "../plan/plan.js";
import { limitsOf } from "../publish/verdict-text.js";
import { runProfileOf } from "../publish/profile-text.js";
import { logicalDateOf } from "../publish/published-run.js";
import type { RunVerdict } from "../publish/lifecycle.js";
import type { RunReview } from "../report/run-review.js";
import type { JobContext } from "../scoring/context.js";
import { comparisonDocument, verdictDocument } from "../sink/ledger.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import { messageOf } from "../util/errors.js";
import { aggregatesOf } from "./aggregates.js";
import { readBaseline } from "./judging/baseline.js";
import { judgeRun, keepModel } from "./judging/judge-run.js";
import { runsOfPage } from "./judging/page-runs.js";
import { requireColumns } from "./judging/require-columns.js";
import { warnOfSlices } from "./slices.js";
import { rowsOf } from "../publish/span-record.js";

/** A run whose spans are all committed. */
interface CommittedRun {
  readonly stored: StoredPlan;
  readonly run: RunSink;
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
  const known =
    plan.checks === null || checks === undefined
      ? undefined
      : await context.sink.ledger.read(plan.runId, verdictDocument);
  if (plan.checks === null || checks === undefined || known !== undefined) {
    await reviewForReports(context, committed, known);
    return known;
  }
  const profile = await run.profile();
  const { baseline, profile: given } = plan.checks;
  warnOfSlices(context, profile);
  const runs = await readBaseline(context, plan.checks);
  const judged = {
    run: runProfileOf(plan, { profile, ...rowsOf(run.spans) }),
    earlier: earlierThan(logicalDateOf(plan) ?? "", runs, given !== undefined),
    limits: limitsOf(checks, plan),
    others: await otherResults(context, { plan, run, profile }),
  };
  if (checks.on_fail === "hold" && !plan.staged) {
    context.log.warn("the checks cannot hold this run: it was planned with on_fail: warn");
  }
  const verdict = await run.create(verdictDocument, {
    verdict: await judgeRun(context, plan, judged),
    dates: {
      ...Object.fromEntries(baseline.map(({ runId, date }) => [runId, date])),
      ...(given === undefined ? {} : Object.fromEntries(runs.map(({ runId }) => [runId, given.uri]))),
    },
    thresholds: { ...checks },
    writer: context.writer,
    ...(seconds === undefined ? {} : { seconds }),
    at: new Date(context.dateMs()).toISOString(),
  });
  await keepModel(context, plan);
  context.record.setReview(
    await reviewOf(context, committed, { profile: judged.run, earlier: judged.earlier.nights, verdict }),
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
    const earlier =
      verdict === undefined || plan.checks === null
        ? []
        : (await readBaseline(context, plan.checks)).slice(-comparedNights);
    const profile = runProfileOf(plan, { profile: found, ...rowsOf(run.spans) });
    record.setReview(await reviewOf(context, committed, { profile, earlier, verdict }));
  } catch (error) {
    log.debug(`reading the profiles for the reports: ${messageOf(error)}`);
  }
}

/** What the reports show of a run and of the runs that it is compared with. */
async function reviewOf(
  context: JobContext,
  { stored }: CommittedRun,
  { verdict, ...found }: Pick<RunReview, "profile" | "earlier" | "verdict">,
): Promise<RunReview> {
  const { plan } = stored;
  const shown = verdict === undefined ? {} : await runsOfPage(context, { plan, verdict });
  return {
    comparison: await context.sink.ledger.read(plan.runId, comparisonDocument),
    ...found,
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
): Promise<Finding[]> {
  const { unique } = context.spec.checks ?? {};
  requireColumns(context, plan.contract);
  const keys = unique === undefined ? [] : [checkKeys(unique, await run.countKeys(unique))];
  await using aggregates = await aggregatesOf(context, plan);
  return [...keys, ...((await aggregates?.results(profile)) ?? [])];
}
