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
import type { Plan } from "../plan/plan.js";
import { runProfileOf } from "../publish/profile-text.js";
import { type DatedRun, logicalDateOf, runsOfSeries } from "../publish/published-run.js";
import type { JobContext } from "../scoring/context.js";
import { comparisonDocument, verdictDocument } from "../sink/ledger.js";
import type { RunSink, StoredPlan } from "../sink/port.js";
import { messageOf } from "../util/errors.js";
import { aggregatesOf, requireColumns, warnOfSlices } from "./checked-output.js";
import { readBaseline, readPinned, readsAtOnce } from "./baseline.js";
import { rowsOf } from "../publish/span-record.js";
import { type Contract, withUsedExpressions } from "../binding/contract.js";
import type { RunProfile } from "../checks/profile/run-profile.js";
import type { Engine } from "../engine/port.js";
import type { Decoder } from "../formats/port.js";
import type { Model } from "../models/port.js";
import { spanCount, spansOf } from "../plan/spans.js";
import { count } from "../report/report.js";
import { pendingRanges } from "../scoring/read.js";
import { timeRow } from "../scoring/batch-size.js";
import { loadEngine, openTokenizers } from "./model.js";
import { bindFirstShard } from "./bind-model.js";
import { listInput } from "./input.js";
import { type SeenSchema, seenSchema } from "./read-shards.js";
import { scoreWithoutPublishing } from "./score-without-publishing.js";
import { mapBounded } from "../util/promises.js";
import { readersOf } from "./hints.js";
import { checkKeys } from "../checks/rules/spec.js";
import type { RunReview } from "../report/attempt-record.js";
import { limitsOf } from "../publish/verdict-text.js";
import type { RunVerdict } from "../publish/lifecycle.js";

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

/** Judges a run. If the model is new and an output did not pass, the model of the last run tells the cause. */
async function judgeRun(context: JobContext, plan: Plan, judged: Judged): Promise<Verdict> {
  const verdict = judge(judged);
  if (!asksForPrevious(verdict, judged.run)) {
    return verdict;
  }
  const previous = await askPrevious(context, plan, judged.earlier.nights.at(-1));
  return previous === undefined ? verdict : judgeWithPrevious(judged, verdict, previous);
}

/** Keeps the model of a run for the verdict on the first run with the next model. A failure does not change the run. */
async function keepModel({ earlierModels, log }: JobContext, { model }: Plan): Promise<void> {
  await earlierModels.keep(model).catch((error: unknown) => {
    log.debug(`keeping the model for later verdicts: ${messageOf(error)}`);
  });
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
  context: JobContext,
  plan: Plan,
  last: RunProfile | undefined,
): Promise<PreviousModel | undefined> {
  if (last === undefined) {
    return undefined;
  }
  const { log, signal, earlierModels } = context;
  const unknown = "the verdict does not say whether the new model or the data changed the predictions";
  try {
    const found = await earlierModels.find({ ...last.model, sha256: last.modelSha256 });
    if (found === undefined) {
      log.warn(`${unknown}: the model of run ${last.runId} is gone`);
      return undefined;
    }
    const profile = await scoreSample({ ...context, openEngine: found.openEngine }, plan, found.model);
    log.info(`the model of run ${last.runId} has scored ${count(profile.rows, "row")} of this run`);
    return { modelSha256: last.modelSha256, rows: profile.rows, outputs: profile.columns };
  } catch (error) {
    signal.throwIfAborted();
    log.warn(`${unknown}: scoring rows with the model of run ${last.runId}: ${messageOf(error).split("\n", 1)[0]}`);
    return undefined;
  }
}

async function scoreSample(context: JobContext, plan: Plan, found: Model): Promise<SpanProfile> {
  const { spec } = context;
  const model = "served" in found ? found : { ...found, tokenizers: await openTokenizers(context) };
  const { folders } = await listInput(context);
  await using decoder = await context.openDecoder(folders);
  await using loading = loadEngine(context, model, { inputBytes: 0 });
  const engine = await loading.engine;
  const own = { ...context, spec: { ...spec, output: { ...spec.output, lineage: false } } };
  const bound = await bindTo(own, { plan, decoder, engine, model });
  const contract = withUsedExpressions({ ...bound, passthrough: [] });
  const sample = samplePlan(plan, { contract, sha256: model.sha256, msPerRow: await timeRow(engine, contract) });
  const profiles: SpanProfile[] = [];
  const share = { from: 0, to: spanCount(sample.plan) };
  const ranges = pendingRanges(spansOf(sample.plan), { has: (group) => !sample.scored.has(group) }, share);
  await scoreWithoutPublishing(own, { plan: sample.plan, engine, decoder, ranges }, (_span, { profile }) => {
    profiles.push(parseProfile(profile));
  });
  return profiles.reduce(mergeProfiles);
}

interface BindingTools {
  readonly plan: Plan;
  readonly decoder: Decoder;
  readonly engine: Engine;
  readonly model: Model;
}

/** Binds the previous model as the spec binds the new one. */
async function bindTo(context: JobContext, { plan, ...tools }: BindingTools): Promise<Contract> {
  const takenElsewhere = new Set(Object.keys(context.spec.input.columns));
  const seen = await firstSchema(context, plan, tools.decoder);
  return await bindFirstShard(context, seen, { ...tools, takenElsewhere });
}

async function firstSchema(
  { source, spec }: JobContext,
  plan: Plan,
  decoder: Decoder,
): Promise<SeenSchema | undefined> {
  const [shard] = plan.input.shards;
  if (shard === undefined) {
    return undefined;
  }
  await using file = await source.open(shard);
  for await (const footer of decoder.footers([file])) {
    return seenSchema(spec, { shard, name: file.name }, footer);
  }
  return undefined;
}

interface Sample {
  readonly plan: Plan;
  /** The groups of rows that are scored. */
  readonly scored: ReadonlySet<number>;
}

/** A plan whose spans are groups of rows, and which of them are scored. */
function samplePlan(
  plan: Plan,
  { contract, sha256, msPerRow }: { readonly contract: Contract; readonly sha256: string; readonly msPerRow: number },
): Sample {
  const { rows } = plan.input;
  const model = { ...plan.model, sha256 };
  const groups = { ...plan, contract, model, checks: null, commitRows: groupRows };
  const all = spanCount(groups);
  const inTime = msPerRow === 0 ? mostRows : mostMs / msPerRow;
  const wanted = Math.min(mostRows, Math.max(wholeRows, rows / 10), inTime);
  const groupsScored = Math.max(1, Math.min(all, Math.floor(wanted / groupRows)));
  const scored = new Set(Array.from({ length: groupsScored }, (_, index) => Math.floor((index * all) / groupsScored)));
  return { plan: groups, scored };
}

/** Earlier runs in the small charts of a page. */
const shownRuns = 29;

type Shown = Pick<RunReview, "readers" | "history" | "seconds">;

/**
 * Finds what the page of a run shows of its series: the last published runs before it, how long these and the run itself
 * were scored, and what readers have if it is held. Nothing if the spec asks for no page. A failure is only logged.
 */
async function runsOfPage(
  context: JobContext,
  { plan, verdict }: { readonly plan: Plan; readonly verdict: RunVerdict },
): Promise<Shown> {
  if (context.spec.report.html === undefined) {
    return {};
  }
  const readers = verdict.verdict.outcome === "hold" ? await readersOf(context, plan) : undefined;
  try {
    const { job, params, dateParam } = plan;
    const date = logicalDateOf(plan);
    if (dateParam === null || date === undefined) {
      return { readers };
    }
    const nights = runsOfSeries(await context.sink.published("everywhere"), { job, params, dateParam });
    const latest = nights.findLast((night) => night.date !== date)?.date;
    const earlier = nights.filter((night) => night.date < date).slice(-shownRuns);
    const [own] = await context.sink.history({ job, runId: plan.runId, last: 1 });
    const took = await mapBounded(earlier, readsAtOnce, async (run) => ({
      runId: run.runId,
      seconds: await run.seconds(),
    }));
    return {
      readers: readers && { ...readers, latest },
      history: await profilesOf(context, earlier),
      seconds: new Map(
        [...took, ...(own === undefined ? [] : [own])].flatMap(({ runId, seconds }) =>
          seconds === null ? [] : [[runId, seconds]],
        ),
      ),
    };
  } catch (error) {
    context.log.debug(`reading the published runs for report.html: ${messageOf(error)}`);
    return { readers };
  }
}

/** Reads the profiles of runs, those that cannot be read excepted. */
async function profilesOf(context: JobContext, runs: readonly DatedRun[]): Promise<RunProfile[]> {
  const read = async (run: DatedRun): Promise<RunProfile[]> => {
    try {
      return [await readPinned(context, run)];
    } catch (error) {
      context.log.debug(`reading a profile for report.html: ${messageOf(error)}`);
      return [];
    }
  };
  return (await mapBounded(runs, readsAtOnce, read)).flat();
}
