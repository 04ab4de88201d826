import { count } from "../base/shown-numbers.js";
import type { Contract } from "../models/binding/contract.js";
import { type ModelTraits, batchDependence } from "../models/binding/model-facts.js";
import type { ModelSignature } from "../columns/tensor.js";
import type { SourceColumn } from "../columns/types.js";
import type { Decoder } from "../formats/format.js";
import { type CountTokens, type Engine, type PaidEngine, costOf } from "../models/engine.js";
import type { FoundModel, Model } from "../models/places/place.js";
import { JobError, assertNever, reworded } from "../base/errors.js";
import { nextRunId } from "./plan/identity.js";
import type { ListedShard } from "./plan/compare.js";
import type { Plan, PlannedChecks, RunId } from "./plan/plan.js";
import type { PlanEstimate } from "../report/plan-text.js";
import { type JobContext, type ScoringContext, atKey } from "../flow/context.js";
import type { RunSink, StoredPlan } from "../targets/target.js";
import { checkGolden, pinGolden } from "./golden.js";
import { openPinnedModel, plannedModel } from "./model.js";
import {
  listInput,
  listPublished,
  noShards,
  requireListed,
  requireWhole,
  warnOfUnmatched,
  wholeInput,
} from "./input.js";
import { bindFirstShard } from "./bind-model.js";
import { pinProfile } from "./history.js";
import { type PlannedRuns, planRun, requireFitting, warnOfFolders, warnOfModel } from "./planning.js";
import { type SeenSchema, seenSchema } from "./read-shards.js";
import { runStep } from "./lifecycle/lifecycle.js";
import { unfinishedErasure } from "./erasure.js";
import { checkPublished, checkResumable, hasOnlyFailed, latestRun, refuseElsewhere } from "./resume.js";
import { checkRejects, decidedError, refusePruned } from "./conclude.js";
import { spellOut } from "./hints.js";
import { type RunState, runState } from "./state.js";
import { comparedNights, enoughNights } from "../checks/check.js";
import { limitsOf } from "./lifecycle/verdict-text.js";
import { datesText, leftOutText, olderModelText } from "./lifecycle/published-run.js";
import { featurePlanOf, keyColumns } from "../flow/features.js";
import { type RowSample, type SampledPlace, sampleRows } from "./score-without-publishing.js";
import { type SampledSum, samplingError } from "../base/sampling.js";

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
async function previewNew(context: JobContext, { next, stored }: StoredRunCheck): Promise<Preview> {
  const { spec } = context;
  const runId = stored === undefined || next === "end" ? context.base : idOfNext(stored, next);
  const resumed = next === "resume" ? stored : undefined;
  const listing = resumed === undefined ? await wholeInput(context) : await listInput(context, resumed.plan);
  if (context.chain !== undefined && listing.shards.length === 0) {
    return { untried: ["nothing is new since the last run, so that no run is planned"] };
  }
  warnOfUnmatched(context, listing);
  const resolved = await openPinnedModel(context, resumed && plannedModel(context, resumed.plan));
  const { engine: opened, untried } = await openForPlan(context, resolved.model);
  await using engine = opened;
  await using decoder = await context.openDecoder(listing.folders);
  const tools = { decoder, resolved, engine: Promise.resolve(engine) };
  const make = async (): Promise<PreviewedPlan> => {
    const { plan, second } = await planRun(context, {
      runId,
      listed: listing.shards,
      table: listing.table,
      changes: listing.changes,
      ...tools,
    });
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

/**
 * Opens an engine on the providers of the spec, as a run does: where one is missing, a run would end with 64. Where a
 * GPU fails, which another attempt may not meet, the model is opened on the CPU, and a line says so.
 */
async function openForPlan(
  context: JobContext,
  model: Model,
): Promise<{ readonly engine: Engine; readonly untried: readonly string[] }> {
  try {
    return { engine: await context.openEngine(model, { inputBytes: 0 }), untried: [] };
  } catch (error) {
    if (error instanceof JobError && error.code === "DEVICE") {
      const engine = await context.openEngine(model, { inputBytes: 0, preview: true });
      const why = `whether the model runs on the GPU: ${error.message}; this plan was made on the CPU`;
      return { engine, untried: [why] };
    }
    throw error;
  }
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
interface SchemaPreview {
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
    throw new JobError("FILE_MISSING", `looking for input files: ${noShards(context.spec)}`, {
      hint: "infer-batch reads the columns of one file; name existing files, such as those of an earlier day",
    });
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
  const { input } = context.spec;
  const spec = { ...context.spec, checks: undefined, input: { ...input, min_rows: 0, freshness: undefined } };
  const silent = { ...context, spec, log: { info() {}, warn() {}, debug() {} } };
  await openTokenCounter(context); // whether its file is there
  return await lookAtFirst(context, async (first) => {
    await bindFirst(context, first);
    const { decoder, resolved, engine, shard } = first;
    const opened = Promise.resolve(engine);
    const planned = await planRun(silent, { runId: context.base, listed: [shard], decoder, resolved, engine: opened });
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
      seen: seenSchema(spec, { shard, file: opened }, footer),
    });
  }
  return undefined;
}

/** The findings of a dry run at the target. */
interface TargetCheck {
  /** The state of the run; undefined: the target could not be reached. */
  readonly state?: RunState;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Checks the target as a run does before it scores: the target is reachable and belongs to this job, and a run that is
 * not planned yet could begin. Changes nothing.
 * @param plan the plan to rehearse; undefined: nothing would be written
 * @param isNew whether it is the plan of a new run, also where the target has a run before it
 * @throws JobError the error that `run` would end with. Not thrown: transient errors, and errors of a held run, which
 * `checkStoredRun` returns
 */
export async function checkTarget(context: JobContext, plan: Plan | undefined, isNew = false): Promise<TargetCheck> {
  return await orUntried("the target", async () => {
    const state = await runState(context);
    const { status } = state;
    if (state.error !== undefined && status !== "held") {
      throw state.error;
    }
    const isPlanned = !isNew && (status === "unfinished" || status === "approved");
    const isRehearsed = plan !== undefined && (isNew || isPlanned || status === "not_planned");
    try {
      return { state, untried: isRehearsed ? await context.sink.rehearse(plan, isPlanned) : [] };
    } catch (error) {
      throw error instanceof JobError && error.code === "OUTPUT_NEWER" ? atRun(context, error, isPlanned) : error;
    }
  });
}

/** A dry run has no `--allow-older`: its hint names the command that has it, and no rows that are committed yet. */
function atRun({ command, spec }: JobContext, error: JobError, isPlanned: boolean): JobError {
  const hint = error.hint?.replace("run the same command with", () => command(spec.params));
  return reworded(error, {
    hint: isPlanned ? hint : hint?.replace(", and so do the rows that this run has committed", ""),
  });
}

/** What a dry run finds of the run that the target has. */
interface StoredRunCheck {
  /**
   * What `run` does with that run. plan: it plans a run, because there is none that goes on. resume: it scores the rows
   * that are left. finish: no row is left, and it publishes them. end: the run is complete, or `run` refuses it.
   */
  readonly next: "plan" | "resume" | "finish" | "end";
  /** The plan of that run; undefined: there is none, or it is not known. */
  readonly stored?: StoredPlan | undefined;
  /** The error that `run` ends with because of that run; undefined: it ends with none. */
  readonly refusal?: JobError | undefined;
  /** Whether the target answered. */
  readonly isReached: boolean;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Compares the run that the target has with spec, input and model, as `run` does before it plans or scores, and looks at
 * what was decided on it. Changes nothing.
 * @throws JobError that `run` ends with before it knows which run the target has, unless a retry may succeed
 */
export async function checkStoredRun(context: JobContext): Promise<StoredRunCheck> {
  const { sink, base } = context;
  const none = { next: "plan", isReached: true, untried: [] } as const;
  const found = await orUntried("the target", async () => ({
    stored: await sink.find(base),
  }));
  if ("untried" in found) {
    return { ...none, isReached: false, ...found };
  }
  const { stored } = found;
  if (stored === undefined) {
    return none;
  }
  const offered = await orUntried("the run that the target has", async () => {
    try {
      return { next: await nextOf(context, stored) };
    } catch (error) {
      if (error instanceof JobError && error.exitCode !== 75) {
        return { next: "end", refusal: spellOut(context, error) } as const;
      }
      throw error;
    }
  });
  return { ...none, stored, ...offered };
}

/** What `run` does with a run that the target has. @throws JobError that it ends with because of that run */
async function nextOf(context: JobContext, stored: StoredPlan): Promise<StoredRunCheck["next"]> {
  if (stored.pruned !== undefined) {
    refusePruned(context, stored.pruned);
  }
  const run = await context.sink.open(stored);
  refuseElsewhere(context, run);
  const step = runStep(latestRun(run), false);
  switch (step.kind) {
    case "refuse":
      throw unfinishedErasure(context, run.plan);
    case "report":
      throw await decidedError(context, run, step.state);
    case "compare with plan":
      await checkPublished(context, run, await listPublished(context, run.plan));
      return "end";
    case "score":
      return await nextOfUnfinished(context, run);
    case "publish":
      return "finish";
    case "open next":
      return "plan";
    default:
      return assertNever(step);
  }
}

/** What `run` does with an unfinished run. @throws JobError if it cannot go on, and `run` would not begin another one in its place */
async function nextOfUnfinished(context: JobContext, run: RunSink): Promise<StoredRunCheck["next"]> {
  try {
    const { model } = await checkResumable(context, run, await listInput(context, run.plan));
    checkRejects(context, run);
    return model === undefined ? "finish" : "resume";
  } catch (error) {
    const isChange = error instanceof JobError && error.exitCode === 66;
    if (isChange && (await hasOnlyFailed(context, run))) {
      return "plan";
    }
    throw error;
  }
}

/** Returns a line that says what was not carried out, if `work` fails and a retry may succeed. */
async function orUntried<T>(
  what: string,
  work: () => Promise<T>,
): Promise<T | { readonly untried: readonly string[] }> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && error.exitCode === 75) {
      return { untried: [`${what}: ${error.message}`] };
    }
    throw error;
  }
}

/**
 * Says what the checks of a run look at and what becomes of a run that fails one, then what it is compared with; nothing
 * without `checks`. A plan that was made without them has the first line only.
 */
export function plannedChecks({ spec }: Pick<ScoringContext, "spec">, plan: Plan): string[] {
  const { checks } = spec;
  if (checks === undefined) {
    return [];
  }
  const { unique = [], sql = {}, golden, slices = [] } = checks;
  const checked = { ...plan, checks: plan.checks ?? { baseline: [] } };
  const { columns, left } = featurePlanOf(checked, keyColumns(spec)) ?? { columns: [], left: [] };
  const features = count(columns.length + left.length, "feature");
  const conditions = Object.keys(sql).length;
  const looked = [
    ...(checks.baseline === "published" ? ["rows"] : []),
    "rejects",
    count(plan.contract.outputs.length, "output"),
    left.length === 0 ? features : `the first ${columns.length} of ${features}`,
    ...(slices.length === 0 ? [] : [`slices by ${slices.join(", ")}`]),
    ...(unique.length === 0 ? [] : [`keys of ${unique.join(", ")}`]),
    ...(conditions === 0 ? [] : [count(conditions, "SQL condition")]),
  ];
  const end = checks.on_fail === "hold" ? "holds the run" : "only warns";
  return [
    `${looked.join(", ")}; a failed check ${end}`,
    ...(golden === undefined
      ? []
      : ["golden rows, before any other; if one differs, the attempt ends with exit code 65"]),
    ...(plan.checks === null ? [] : comparedLines(checks, { ...plan, checks: plan.checks })),
  ];
}

/** Says what a planned run is compared with, and where comparisons only warn, a line each. */
function comparedLines(
  checks: NonNullable<ScoringContext["spec"]["checks"]>,
  plan: Pick<Plan, "params" | "dateParam" | "staged" | "model"> & { readonly checks: PlannedChecks },
): string[] {
  const canHold = checks.on_fail === "hold";
  const notes = [leftOutText(plan.checks), olderModelText(plan.model, plan.checks)];
  const { expected } = limitsOf(checks, plan);
  return [
    comparedLine(plan.checks, canHold),
    ...(expected === undefined
      ? []
      : [`expected to differ (${expected.reason})${canHold ? ": comparisons only warn" : ""}`]),
    ...notes.filter((line) => line !== undefined),
  ];
}

function comparedLine({ baseline, profile }: PlannedChecks, canHold: boolean): string {
  const dates = baseline.map(({ date }) => date);
  const runs = count(dates.length, "earlier run");
  if (profile !== undefined) {
    return `compared with ${profile.uri}`;
  }
  if (dates.length === 0) {
    return `compared with no earlier run${canHold ? ": only checks that need none can hold this one" : ""}`;
  }
  const latest = dates.slice(-comparedNights);
  const few = canHold && dates.length < enoughNights ? `; ${dates.length} of ${enoughNights} nights known` : "";
  return dates.length > comparedNights
    ? `compared with the last ${comparedNights} of ${runs}, from ${latest[0]} to ${latest.at(-1)}`
    : `compared with ${runs}, ${datesText(dates)}${few}`;
}

/** Rows whose prompts are measured. */
const measuredRows = 200;
/** UTF-8 bytes of a token: English prose has about four, code and other languages have fewer. */
const bytesPerToken = 4;
/** Estimates by bytes are wrong by up to this share of themselves. */
const errorOfBytes = 0.4;

interface EstimateOptions {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
}

/** What a run will take. */
interface RunEstimate {
  /** undefined: predictions are free. */
  readonly estimate: PlanEstimate | undefined;
  /** Checks that were not carried out, a line each. */
  readonly untried: readonly string[];
}

/**
 * Estimates what a run will take, from the prompts of some rows that are spread over its table. Nothing is asked. Where
 * the tokenizer of the spec cannot be loaded, which no run needs, bytes are counted.
 */
async function estimateRun(context: JobContext, { plan, engine, decoder }: EstimateOptions): Promise<RunEstimate> {
  const { paid } = engine;
  const all = plan.input.rows;
  if (paid === undefined || all === 0) {
    return { estimate: undefined, untried: [] };
  }
  const ranges = [{ rowStart: 0, rowEnd: plan.input.rows }];
  const tools = { plan, engine, decoder };
  const sample = await sampleRows(context, { ...tools, ranges, count: measuredRows });
  const { rows, read, places } = sample;
  const found = await orFailure(context, () => openTokenCounter(context));
  const [countTokens, untried] =
    found !== undefined && "failed" in found ? [undefined, [`tokens were not counted: ${found.failed}`]] : [found, []];
  const tokens = await tokensOf(paid, sample, countTokens);
  const inTexts = tokens.reduce((sum, size) => sum + size, 0) / Math.max(1, rows.length);
  const requests = Math.round((all * rows.length) / Math.max(1, read));
  const prompt = Math.round((inTexts + paid.templateTokens) * requests);
  const tokenizer = countTokens && context.spec.model.prompt?.tokenizer;
  const ofTokens = tokenizer === undefined ? errorOfBytes : paid.templateTokens / (inTexts + paid.templateTokens || 1);
  const most = paid.mostCompletionTokens;
  const completion = most === undefined ? undefined : most * requests;
  const { price } = paid.spending;
  const cost =
    price === undefined || completion === undefined ? undefined : costOf({ prompt, cached: 0, completion }, price);
  const estimate = {
    requests,
    promptTokens: prompt,
    error: ofTokens + samplingError(sumsOf(places, tokens), all),
    tokenizer,
    measuredRows: rows.length,
    templateTokens: paid.templateTokens,
    mostCompletionTokens: completion,
    mostCost: cost,
    limits: paid.limits,
  };
  return { estimate, untried };
}

/** The tokens of each place. @param tokens of each row that can be scored, in the order of the places */
function sumsOf(places: readonly SampledPlace[], tokens: readonly number[]): SampledSum[] {
  let from = 0;
  return places.map(({ read, rows }) => {
    const own = tokens.slice(from, from + rows);
    from += rows;
    return { read, sum: own.reduce((sum, size) => sum + size, 0) };
  });
}

/** The tokens of each row's texts: those that `countTokens` counts, or one for every four bytes. */
async function tokensOf(
  paid: PaidEngine,
  { rows }: RowSample,
  countTokens: CountTokens | undefined,
): Promise<number[]> {
  const texts = rows.map((inputs) => paid.promptTexts(inputs));
  const sizes =
    countTokens === undefined
      ? texts.flat().map((text) => Buffer.byteLength(text) / bytesPerToken)
      : await countTokens(texts.flat(), { withSpecial: paid.addsSpecialTokens });
  let from = 0;
  return texts.map((own) => {
    const sum = sizes.slice(from, from + own.length).reduce((one, other) => one + other, 0);
    from += own.length;
    return sum;
  });
}

/** Loads the tokenizer that the spec names for estimates; undefined: it names none. @throws JobError of its file */
async function openTokenCounter(context: ScoringContext): Promise<CountTokens | undefined> {
  const { loadTokenCounter } = context;
  return loadTokenCounter && (await atKey(context, ["model", "prompt", "tokenizer"], loadTokenCounter));
}

/** What could not be done, in place of its result. */
interface Failure {
  /** The message of the error. */
  readonly failed: string;
}

/** Does what a dry run can do without: returns the message of the JobError that `work` ends with, unless a signal ended it. */
async function orFailure<T>({ signal }: Pick<JobContext, "signal">, work: () => Promise<T>): Promise<T | Failure> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof JobError && !signal.aborted) {
      return { failed: error.message };
    }
    throw error;
  }
}
