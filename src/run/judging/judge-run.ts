import { type Contract, withUsedExpressions } from "../../binding/contract.js";
import type { Verdict } from "../../checks/check.js";
import { asksForPrevious, judge, type Judged, judgeWithPrevious, type PreviousModel } from "../../checks/checks.js";
import { mergeProfiles, parseProfile, type SpanProfile } from "../../checks/profile/profile.js";
import type { RunProfile } from "../../checks/profile/run-profile.js";
import type { Engine } from "../../engine/port.js";
import type { Decoder } from "../../formats/port.js";
import type { Model } from "../../models/port.js";
import type { Plan } from "../../plan/plan.js";
import { spanCount, spansOf } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import type { JobContext } from "../../scoring/context.js";
import { pendingRanges } from "../../scoring/read-ranges.js";
import { timeRow } from "../../scoring/warm-up.js";
import { messageOf } from "../../util/errors.js";
import { loadEngine } from "../loading.js";
import { openTokenizers } from "../model.js";
import { bindFirstShard } from "../planning/bind-model.js";
import { listInput } from "../planning/input.js";
import { seenSchema, type SeenSchema } from "../planning/read-shards.js";
import { scoreWithoutPublishing } from "../score-without-publishing.js";

/** Judges a run. If the model is new and an output did not pass, the model of the last run tells the cause. */
export async function judgeRun(context: JobContext, plan: Plan, judged: Judged): Promise<Verdict> {
  const verdict = judge(judged);
  if (!asksForPrevious(verdict, judged.run)) {
    return verdict;
  }
  const previous = await askPrevious(context, plan, judged.earlier.nights.at(-1));
  return previous === undefined ? verdict : judgeWithPrevious(judged, verdict, previous);
}

/** Keeps the model of a run for the verdict on the first run with the next model. A failure does not change the run. */
export async function keepModel({ earlierModels, log }: JobContext, { model }: Plan): Promise<void> {
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
