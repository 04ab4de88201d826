import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { Source } from "../sources/source.js";
import { count } from "../base/shown-numbers.js";
import { type SpanProfile, mergeProfiles, parseProfile } from "../checks/profile/profile.js";
import { type Finding, type Verdict, comparedNights } from "../checks/check.js";
import {
  type Judged,
  type PreviousModel,
  asksForPrevious,
  earlierThan,
  judge,
  judgeWithPrevious,
} from "../checks/checks.js";
import type { Plan } from "./plan/plan.js";
import { runProfileOf } from "./lifecycle/profile-text.js";
import { type DatedRun, logicalDateOf, runsOfSeries } from "./lifecycle/published-run.js";
import type { OpenedJob, Log, PlacedSpec, Queries } from "../flow/context.js";
import { comparisonDocument, verdictDocument } from "../stores/ledger.js";
import type { RunSink, Sink } from "../targets/target.js";
import { messageOf } from "../base/errors.js";
import { aggregatesOf, requireColumns, warnOfSlices } from "./checked-output.js";
import { readBaseline, readPinned, readsAtOnce } from "./history.js";
import { rowsOf } from "./lifecycle/span-record.js";
import { type Contract, withUsedExpressions } from "../models/binding/contract.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import type { Decoder } from "../formats/format.js";
import type { Model } from "../models/places/place.js";
import { spanAt, spanCount } from "./plan/spans.js";
import type { RowRange } from "../columns/types.js";
import { timeRow } from "../flow/batch-size.js";
import { loadEngine, openTokenizers } from "./model.js";
import { bindFirstShard } from "./bind-model.js";
import { listInput } from "./input.js";
import { type SeenSchema, seenSchema } from "./read-shards.js";
import { scoreWithoutPublishing } from "./score-without-publishing.js";
import { mapBounded } from "../base/promises.js";
import { readersOf } from "./hints.js";
import { checkKeys } from "../checks/rules/spec.js";
import type { RunReview } from "../report/attempt-record.js";
import { limitsOf } from "./lifecycle/verdict-text.js";
import type { RunVerdict } from "./lifecycle/lifecycle.js";

/**
 * Returns the verdict on a run whose spans are all committed; undefined for a run without checks. If the target has
 * none, this attempt makes one; the stored verdict counts. The record receives what the reports show of the run.
 * @param seconds how long this attempt has scored; undefined: it has not
 */
export async function verdictOn(
  opened: OpenedJob,
  run: RunSink,
  seconds: number | undefined,
): Promise<RunVerdict | undefined> {
  const { job, sink, input, models, attempt, reporter, queries } = opened;
  const { writer } = attempt;
  const { log, record } = reporter;
  const { spec } = job;
  const { checks } = spec;
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
    run: runProfileOf(plan, { profile, ...rowsOf(run.spans) }),
    earlier: earlierThan(logicalDateOf(plan) ?? "", runs, given !== undefined),
    limits: limitsOf(checks, plan),
    others: await otherResults(job, queries, run, profile),
  };
  if (checks.on_fail === "hold" && !plan.staged) {
    log.warn("the checks cannot hold this run: it was planned with on_fail: warn");
  }
  const dates =
    given === undefined
      ? baseline.map(({ runId, date }) => [runId, date])
      : runs.map(({ runId }) => [runId, given.uri]);
  const verdict = await run.create(verdictDocument, {
    verdict: await judgeRun(opened, plan, judged),
    dates: Object.fromEntries(dates) as Record<string, string>,
    thresholds: { ...checks },
    writer,
    ...(seconds === undefined ? {} : { seconds }),
    at: new Date(attempt.dateMs()).toISOString(),
  });
  // Kept for the verdict on the first run with the next model. A failure does not change the run.
  await models.earlierModels.keep(plan.model).catch((error: unknown) => {
    log.debug(`keeping the model for later verdicts: ${messageOf(error)}`);
  });
  record.setReview(
    await reviewOf(spec, sink, log, plan, { profile: judged.run, earlier: judged.earlier.nights, verdict }),
  );
  return verdict;
}

/**
 * Reads the profiles that reports show for a run that this attempt does not judge, if the spec asks for reports. A
 * failure is only logged and does not change the run.
 */
export async function reviewForReports(
  opened: OpenedJob,
  run: RunSink,
  verdict: RunVerdict | undefined,
): Promise<void> {
  const { job, sink, input, reporter } = opened;
  const { spec } = job;
  const { record, log } = reporter;
  const { plan } = run;
  const { html, metrics, openlineage } = spec.report;
  if (html === undefined && openlineage === undefined && (verdict === undefined || metrics === undefined)) {
    return;
  }
  try {
    const profile = runProfileOf(plan, { profile: await run.profile(), ...rowsOf(run.spans) });
    const isCompared = verdict !== undefined && plan.checks !== null;
    const earlier = isCompared ? (await readBaseline(job, sink, input, plan.checks)).slice(-comparedNights) : [];
    record.setReview(await reviewOf(spec, sink, log, plan, { profile, earlier, verdict }));
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

/** Makes the checks that need more than profiles. */
async function otherResults(job: PlacedSpec, queries: Queries, run: RunSink, profile: SpanProfile): Promise<Finding[]> {
  const { unique } = job.spec.checks ?? {};
  requireColumns(job, run.plan.contract);
  const keys = unique === undefined ? [] : [checkKeys(unique, await run.countKeys(unique))];
  await using aggregates = await aggregatesOf(job, queries, run.plan);
  return [...keys, ...((await aggregates?.results(profile)) ?? [])];
}

/** Judges a run. If the model is new and an output did not pass, the model of the last run tells the cause. */
async function judgeRun(opened: OpenedJob, plan: Plan, judged: Judged): Promise<Verdict> {
  const verdict = judge(judged);
  if (!asksForPrevious(verdict, judged.run)) {
    return verdict;
  }
  const previous = await askPrevious(opened, plan, judged.earlier.nights.at(-1));
  return previous === undefined ? verdict : judgeWithPrevious(judged, verdict, previous);
}

/** Rows that are neighbours; the groups are spread over the run. */
const groupRows = 2048;
/** Rows of a run that the previous model scores, at most. */
const mostRows = 48 * groupRows;
/** Runs of up to so many rows are scored whole; of larger ones a tenth, if that is more. */
const wholeRows = 5 * groupRows;
/** A slow model scores fewer rows. */
const mostMs = 60_000;

/**
 * Has the model of the last run score rows of this run, whose spans are all committed: the verdict then says whether the new
 * model or the data changed the predictions. undefined, with a line in the log: it cannot.
 */
async function askPrevious(
  opened: OpenedJob,
  plan: Plan,
  last: RunProfile | undefined,
): Promise<PreviousModel | undefined> {
  const { models, attempt, reporter } = opened;
  if (last === undefined) {
    return undefined;
  }
  const { earlierModels } = models;
  const { signal } = attempt;
  const { log } = reporter;
  const unknown = "the verdict does not say whether the new model or the data changed the predictions";
  try {
    const found = await earlierModels.find({ ...last.model, sha256: last.modelSha256 });
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
    signal.throwIfAborted();
    log.warn(`${unknown}: scoring rows with the model of run ${last.runId}: ${messageOf(error).split("\n", 1)[0]}`);
    return undefined;
  }
}

async function scoreSample(opened: OpenedJob, plan: Plan, found: Model): Promise<SpanProfile> {
  const { input, models } = opened;
  const { spec } = opened.job;
  const job = { ...opened.job, spec: { ...spec, output: { ...spec.output, lineage: false } } };
  const model = "served" in found ? found : { ...found, tokenizers: await openTokenizers(job, models) };
  const { folders } = await listInput(job, input.source, plan);
  await using decoder = await input.openDecoder(folders);
  await using loading = loadEngine(models, model, { inputBytes: 0 });
  const engine = await loading.engine;
  // The previous model is bound as the spec binds the new one.
  const takenElsewhere = new Set(Object.keys(spec.input.columns));
  const seen = await firstSchema(job.spec, input.source, plan, decoder);
  const bound = await bindFirstShard(job, input.source, seen, { decoder, engine, model, takenElsewhere });
  const contract = withUsedExpressions({ ...bound, passthrough: [] });
  const sample = samplePlan(plan, { contract, sha256: model.sha256, msPerRow: await timeRow(engine, contract) });
  const profiles: SpanProfile[] = [];
  await scoreWithoutPublishing({ ...opened, job }, { ...sample, engine, decoder }, (_span, { profile }) => {
    profiles.push(parseProfile(profile));
  });
  return profiles.reduce(mergeProfiles);
}

async function firstSchema(
  spec: JobSpec,
  source: Source,
  plan: Plan,
  decoder: Decoder,
): Promise<SeenSchema | undefined> {
  const [shard] = plan.input.shards;
  if (shard === undefined) {
    return undefined;
  }
  await using file = await source.open(shard);
  for await (const footer of decoder.footers([file])) {
    return seenSchema(spec, { shard, file }, footer);
  }
  return undefined;
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
 * Finds what the page of a run shows of its series: the last published runs before it, how long these and the run itself
 * were scored, and what readers have if it is held. Nothing if the spec asks for no page. A failure is only logged.
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

/** Reads the profiles of runs, those that cannot be read excepted. */
async function profilesOf(sink: Sink, log: Log, runs: readonly DatedRun[]): Promise<RunProfile[]> {
  const read = async (run: DatedRun): Promise<RunProfile[]> => {
    try {
      return [await readPinned(sink, run)];
    } catch (error) {
      log.debug(`reading a profile for report.html: ${messageOf(error)}`);
      return [];
    }
  };
  return (await mapBounded(runs, readsAtOnce, read)).flat();
}
