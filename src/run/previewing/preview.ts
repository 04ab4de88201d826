import type { Contract } from "../../binding/contract.js";
import { batchDependence, type ModelTraits } from "../../binding/model-facts.js";
import type { ModelSignature } from "../../columnar/tensor.js";
import type { SourceColumn } from "../../columnar/types.js";
import type { Decoder } from "../../formats/port.js";
import type { Engine } from "../../engine/port.js";
import type { FoundModel, Model } from "../../models/port.js";
import { JobError } from "../../util/errors.js";
import { nextRunId, runIdOf } from "../../plan/identity.js";
import type { ListedShard } from "../../plan/compare.js";
import type { Plan, RunId } from "../../plan/plan.js";
import type { PlanEstimate } from "../../report/plan-text.js";
import type { JobContext } from "../../scoring/context.js";
import type { StoredPlan } from "../../sink/port.js";
import { checkGolden } from "../golden/golden.js";
import { pinGolden } from "../golden/golden-file.js";
import { estimateRun, openTokenCounter } from "../paid/estimate.js";
import type { StoredRunCheck } from "../check-target.js";
import { openPinnedModel, plannedModel } from "../model.js";
import { type Failure, orFailure } from "./or-failure.js";
import { listInput, requireListed, requireWhole, warnOfUnmatched, wholeInput } from "../planning/input.js";
import { bindFirstShard } from "../planning/bind-model.js";
import { pinProfile } from "../judging/baseline.js";
import { requireFitting } from "../planning/plan-checks.js";
import { type PlannedRuns, planRun, warnOfFolders, warnOfModel } from "../planning/planning.js";
import { type SeenSchema, seenSchema } from "../planning/read-shards.js";

/**
 * Makes the plan that `run` would make now, whether or not the target has one. Where `run` does not need that plan, as
 * the run that is there needs neither input nor model, what prevents it is a line of `untried`. Writes nothing.
 */
export async function previewPlan(context: JobContext, check: StoredRunCheck): Promise<Preview> {
  if (check.next === "plan" || check.next === "resume") {
    return await previewNew(context, check);
  }
  const made = await orFailure(context, () => previewNew(context, check));
  return "failed" in made ? { untried: [planFailed(made)] } : made;
}

function planFailed({ failed }: Failure): string {
  return `the plan of a new run: ${failed}`;
}

/** A run that is resumed is planned with its own model, and although its input is not whole. */
async function previewNew(context: JobContext, { next, stored }: StoredRunCheck): Promise<PreviewedPlan> {
  const { spec } = context;
  const runId =
    stored === undefined || next === "end" ? runIdOf(spec.name, spec.params, context.sha256) : idOfNext(stored, next);
  const resumed = next === "resume" ? stored : undefined;
  const listing = resumed === undefined ? await wholeInput(context) : await listInput(context);
  warnOfUnmatched(context, listing);
  const resolved = await openPinnedModel(context, resumed && plannedModel(context, resumed.plan));
  await using opened = await openForPlan(context, resolved.model);
  const { engine, untried } = opened;
  await using decoder = await context.openDecoder(listing.folders);
  const tools = { decoder, resolved, engine: Promise.resolve(engine) };
  const make = async (): Promise<PreviewedPlan> => {
    const { plan, second } = await planRun(context, { runId, listed: listing.shards, ...tools });
    return { plan, second, ...(await estimateRun(context, { plan, engine, decoder })) };
  };
  const made = resumed === undefined ? await make() : await madeOrStored(context, resumed.plan, make);
  const { plan, second, estimate } = made;
  if (spec.model.server === undefined) {
    await checkGolden(context, { plan: resumed?.plan ?? plan, engine });
  }
  const all = [...untried, ...made.untried, ...untriedAtServer(plan, engine)];
  return { plan, second, estimate, untried: all };
}

/** The id of the run that `run` goes on with, or of the one that it begins after the stored one. */
function idOfNext({ plan: { runId } }: StoredPlan, next: StoredRunCheck["next"]): RunId {
  return next === "resume" || next === "finish" ? runId : nextRunId(runId);
}

/** Makes the plan of a new run; the stored plan, which `run` goes on with, takes its place where none can be made. */
async function madeOrStored(
  context: JobContext,
  plan: Plan,
  make: () => Promise<PreviewedPlan>,
): Promise<PreviewedPlan> {
  const made = await orFailure(context, make);
  return "failed" in made ? { plan, second: undefined, estimate: undefined, untried: [planFailed(made)] } : made;
}

interface OpenForPlan extends AsyncDisposable {
  readonly engine: Engine;
  readonly untried: readonly string[];
}

/**
 * Opens an engine on the providers of the spec, as a run does: where one is missing, a run would end with 64. Where a
 * GPU fails, which another attempt may not meet, the model is opened on the CPU.
 */
async function openForPlan(context: JobContext, model: Model): Promise<OpenForPlan> {
  try {
    return openedForPlan(await context.openEngine(model, { inputBytes: 0 }), []);
  } catch (error) {
    if (error instanceof JobError && error.code === "DEVICE") {
      return openedForPlan(await context.openEngine(model, { inputBytes: 0, preview: true }), [
        `whether the model runs on the GPU: ${error.message}; this plan was made on the CPU`,
      ]);
    }
    throw error;
  }
}

function openedForPlan(engine: Engine, untried: readonly string[]): OpenForPlan {
  return { engine, untried, [Symbol.asyncDispose]: () => engine[Symbol.asyncDispose]() };
}

const scoredByServer = "the golden rows, which a server would score";

/**
 * Checks that the file of `checks.golden` is there, for a command that does not score its rows. Returns a line that says
 * so.
 * @throws JobError FILE_MISSING
 */
export async function untriedGolden(context: JobContext): Promise<string[]> {
  const golden = await pinGolden(context);
  if (golden === undefined) {
    return [];
  }
  return [
    context.spec.model.server === undefined
      ? `the golden rows of ${golden.uri}; infer-batch plan scores them`
      : scoredByServer,
  ];
}

/** What is not asked of a model's server, which may charge for it. */
function untriedAtServer({ checks }: Plan, { paid, traffic }: Engine): string[] {
  return [
    ...(traffic !== undefined && checks?.golden !== undefined ? [scoredByServer] : []),
    ...(paid === undefined ? [] : ["prompts, which cost money"]),
  ];
}

/** A preview; without a plan where none can be made, and `run` needs none. */
export type Preview = PreviewedPlan | { readonly plan?: undefined; readonly untried: readonly string[] };

/** A plan, and what its run will take. */
export interface PreviewedPlan extends PlannedRuns {
  /** undefined: predictions are free. */
  readonly estimate: PlanEstimate | undefined;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/** The signature of the model, and the columns of the first shard including those of its folder names. */
export interface SchemaPreview {
  /** Model and shard as messages name them. */
  readonly model: string;
  readonly shard: string;
  readonly sha256: string;
  readonly signature: ModelSignature;
  readonly traits: ModelTraits;
  readonly resolved: FoundModel;
  readonly columns: readonly SourceColumn[];
}

/** Reads what a binding is made from. @throws JobError FILE_MISSING if there is no shard */
export async function previewSchema(context: JobContext): Promise<SchemaPreview> {
  const found = await lookAtFirst(context, async ({ resolved, engine, seen }) => ({
    model: resolved.model.name,
    shard: seen.name,
    sha256: resolved.model.sha256,
    signature: engine.signature,
    traits: resolved.model.traits,
    resolved,
    columns: seen.columns,
  }));
  if (found === undefined) {
    throw new JobError(
      "FILE_MISSING",
      `looking for input files: no file matches ${context.spec.input.path.join(", ")}`,
      {
        hint: "infer-batch reads the columns of one file; name existing files, such as those of an earlier day",
      },
    );
  }
  return found;
}

/** Binds the model to the first shard, as `run` would; undefined if there is no shard. Writes nothing. */
export async function previewContract(context: JobContext): Promise<Contract | undefined> {
  return await lookAtFirst(context, async (first) => await bindFirst(context, first));
}

async function bindFirst(context: JobContext, { seen, decoder, engine, resolved }: FirstShard): Promise<Contract> {
  const { model } = resolved;
  const contract = await bindFirstShard(context, seen, { decoder, model, engine });
  warnOfModel(context, resolved, engine.signature);
  warnOfFolders(context, contract);
  const dependence = batchDependence(model.traits);
  if (dependence !== undefined) {
    context.log.warn(dependence);
  }
  return contract;
}

/**
 * Plans a run over the first shard alone, to check the target with; undefined if there is no shard. How many rows there
 * are, and how old they are, does not matter. Writes nothing.
 */
export async function previewFirst(context: JobContext): Promise<PlannedRuns | undefined> {
  const { name, params, input } = context.spec;
  const spec = { ...context.spec, checks: undefined, input: { ...input, min_rows: 0, freshness: undefined } };
  const silent = { ...context, spec, log: { info() {}, warn() {}, debug() {} } };
  await openTokenCounter(context); // whether its file is there
  return await lookAtFirst(context, async (first) => {
    await bindFirst(context, first);
    const { decoder, resolved, engine, shard } = first;
    const runId = runIdOf(name, params, context.sha256);
    const opened = Promise.resolve(engine);
    const planned = await planRun(silent, { runId, listed: [shard], decoder, resolved, engine: opened });
    await requireFitting(context, planned.plan.contract);
    await pinProfile(context); // whether the file of `checks.baseline` is a profile
    return planned;
  });
}

interface FirstShard {
  readonly shard: ListedShard;
  readonly decoder: Decoder;
  readonly resolved: FoundModel;
  readonly engine: Engine;
  readonly seen: SeenSchema;
}

async function lookAtFirst<T>(context: JobContext, look: (first: FirstShard) => Promise<T>): Promise<T | undefined> {
  const { spec, source } = context;
  const resolved = await openPinnedModel(context);
  const listing = await listInput(context);
  const [shard] = listing.shards;
  // A folder that does not exist yet is no fault of the spec.
  await (shard === undefined ? requireListed(context, listing) : requireWhole(context, listing));
  warnOfUnmatched(context, listing);
  await using engine = await context.openEngine(resolved.model, { inputBytes: 0, preview: true });
  if (shard === undefined) {
    return undefined;
  }
  await using decoder = await context.openDecoder(listing.folders);
  await using opened = await source.open(shard);
  for await (const footer of decoder.footers([opened])) {
    return await look({
      shard,
      decoder,
      resolved,
      engine,
      seen: seenSchema(spec, { shard, name: opened.name }, footer),
    });
  }
  return undefined;
}
