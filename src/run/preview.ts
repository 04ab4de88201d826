import type { Source } from "../sources/source.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
import { count } from "../base/shown-numbers.js";
import { type Contract, type ColumnRef, featureColumns } from "../models/binding/contract.js";
import { type ModelTraits, batchDependence } from "../models/binding/model-facts.js";
import type { ModelSignature } from "../columns/tensor.js";
import type { SourceColumn, OutputRows, RejectedRow } from "../columns/types.js";
import type { Decoder } from "../formats/format.js";
import { type CountTokens, type Engine, type PaidEngine, costOf } from "../models/engine.js";
import type { FoundModel, Model } from "../models/places/place.js";
import { JobError, assertNever, reworded, orError } from "../base/errors.js";
import { nextRunId } from "./plan/identity.js";
import type { ListedShard } from "./plan/compare.js";
import type { Plan, PlannedChecks } from "./plan/plan.js";
import type { PlanEstimate } from "../report/plan-text.js";
import {
  atKey,
  type OpenedJob,
  type Models,
  type PlacedSpec,
  type Input,
  type Job,
  type Log,
  silentLog,
} from "../flow/opened-job.js";
import type { RunSink, StoredPlan, Sink } from "../targets/target.js";
import { checkGolden, pinGolden, pinProfile } from "./checks.js";
import { openPinnedModel, plannedModel } from "./find-model.js";
import { bindFirstShard, loadEngine } from "./model.js";
import {
  listInput,
  listPublished,
  noShards,
  requireListed,
  requireWhole,
  warnOfUnmatched,
  wholeInput,
  type SeenSchema,
  readSchema,
} from "./input.js";
import { type PlannedRuns, planRun, requireFitting, warnOfFolders, warnOfModel } from "./planning.js";
import { runStep } from "./lifecycle/lifecycle.js";
import { unfinishedErasure, checkRejects, decidedError } from "./conclude.js";
import { checkPublished, hasOnlyFailed, latestRun, refuseElsewhere, refusePruned } from "./resume.js";
import { checkResumable } from "./score-run.js";
import { spellOut } from "./hints.js";
import { type DescribedRun, runState } from "./status.js";
import { comparedNights, enoughNights } from "../checks/check.js";
import { limitsOf } from "./lifecycle/verdict-text.js";
import { datesText, leftOutText, olderModelText } from "./lifecycle/published-run.js";
import { featurePlanOf, keyColumns } from "../flow/features.js";
import { type RowSample, type SampledPlace, sampleRows, scoreWithoutPublishing } from "./score-without-publishing.js";
import { type SampledSum, samplingError, randomNumbers } from "../base/sampling.js";
import { rowsOfSpans, spanCount } from "./plan/spans.js";
import type { ShownRows } from "../report/preview-text.js";
import { rangesOfRows } from "../flow/read.js";
import { jsonOf } from "../columns/value-text.js";

/* What `run` would do, without writing anything: its plan, its estimate, its first rows. */

/**
 * Makes the plan that `run` would make now, whether or not the target has one. Where `run` does not need that plan, as
 * the run that is there needs neither input nor model, what prevents it is a line of `untried`. Writes nothing.
 */
export async function previewPlan(opened: OpenedJob, check: StoredRunCheck): Promise<Preview> {
  const make = (): Promise<Preview> => previewNew(opened, check);
  const isNeeded = check.next === "plan" || check.next === "resume";
  return isNeeded ? await make() : await orUntried(newPlan, make, unlessStopped(opened.attempt.signal));
}

const newPlan = "the plan of a new run";

/** A run that is resumed is planned with its own model, and although its input is not whole. */
async function previewNew(opened: OpenedJob, { next, stored }: StoredRunCheck): Promise<Preview> {
  const { job, input, models, attempt, reporter } = opened;
  const isSame = next === "resume" || next === "finish";
  const runId =
    stored === undefined || next === "end" ? job.base : isSame ? stored.plan.runId : nextRunId(stored.plan.runId);
  const resumed = next === "resume" ? stored : undefined;
  const listing = resumed === undefined ? await wholeInput(job, input) : await listInput(job, input, resumed.plan);
  if (input.chain !== undefined && listing.shards.length === 0) {
    return { untried: ["nothing is new since the last run, so that no run is planned"] };
  }
  warnOfUnmatched(reporter.log, listing);
  const resolved = await openPinnedModel(job, models, resumed && plannedModel(job.spec, resumed.plan));
  const { engine: open, untried } = await openForPlan(models, resolved.model);
  await using engine = open;
  await using decoder = await input.openDecoder(listing.folders);
  const tools = { decoder, resolved, engine: Promise.resolve(engine) };
  const make = async (): Promise<PreviewedPlan> => {
    const { plan, second } = await planRun(opened, {
      runId,
      listed: listing.shards,
      table: listing.table,
      changes: listing.changes,
      ...tools,
    });
    return { plan, second, ...(await estimateRun(opened, { plan, engine, decoder })) };
  };
  // The stored plan, which `run` goes on with, takes the place of a new one where none can be made.
  const made: PreviewedPlan =
    resumed === undefined
      ? await make()
      : {
          plan: resumed.plan,
          second: undefined,
          estimate: undefined,
          ...(await orUntried(newPlan, make, unlessStopped(attempt.signal))),
        };
  const { plan, second, estimate } = made;
  if (job.spec.model.server === undefined) {
    await checkGolden(opened, { plan: resumed?.plan ?? plan, engine });
  }
  const all = [...untried, ...made.untried, ...untriedAtServer(plan, engine)];
  return { plan, second, estimate, untried: all };
}

/**
 * Opens an engine on the providers of the spec, as a run does: where one is missing, a run would end with 64. Where a
 * GPU fails, which another attempt may not meet, the model is opened on the CPU, and a line says so.
 */
async function openForPlan(
  models: Models,
  model: Model,
): Promise<{ readonly engine: Engine; readonly untried: readonly string[] }> {
  try {
    return { engine: await models.openEngine(model, { inputBytes: 0 }), untried: [] };
  } catch (error) {
    if (error instanceof JobError && error.code === "DEVICE") {
      const engine = await models.openEngine(model, { inputBytes: 0, preview: true });
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
export async function untriedGolden(job: PlacedSpec, input: Input, signal: AbortSignal): Promise<string[]> {
  const golden = await pinGolden(job, input, signal);
  if (golden === undefined) {
    return [];
  }
  return [
    job.spec.model.server === undefined
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

interface SchemaPreview {
  readonly model: string;
  readonly shard: string;
  readonly sha256: string;
  readonly signature: ModelSignature;
  readonly traits: ModelTraits;
  readonly resolved: FoundModel;
  readonly columns: readonly SourceColumn[];
}

/** Reads what a binding is made from. @throws JobError FILE_MISSING if there is no shard */
export async function previewSchema(opened: OpenedJob): Promise<SchemaPreview> {
  const { job } = opened;
  const found = await lookAtFirst(opened, async ({ resolved, engine, seen }) => ({
    model: resolved.model.name,
    shard: seen.name,
    sha256: resolved.model.sha256,
    signature: engine.signature,
    traits: resolved.model.traits,
    resolved,
    columns: seen.columns,
  }));
  if (found === undefined) {
    throw new JobError("FILE_MISSING", `looking for input files: ${noShards(job.spec)}`, {
      hint: "infer-batch reads the columns of one file; name existing files, such as those of an earlier day",
    });
  }
  return found;
}

/** Binds the model to the first shard, as `run` would; undefined if there is no shard. Writes nothing. */
export async function previewContract(opened: OpenedJob): Promise<Contract | undefined> {
  const { job, input, reporter } = opened;
  return await lookAtFirst(opened, async (first) => await bindFirst(job, input.source, reporter.log, first));
}

async function bindFirst(
  job: Job,
  source: Source,
  log: Log,
  { seen, decoder, engine, resolved }: FirstShard,
): Promise<Contract> {
  const { model } = resolved;
  const contract = await bindFirstShard(job, source, seen, { decoder, model, engine });
  warnOfModel(job.spec, log, resolved, engine.signature);
  warnOfFolders(job, log, contract);
  const dependence = batchDependence(model.traits);
  if (dependence !== undefined) {
    log.warn(dependence);
  }
  return contract;
}

/**
 * Plans a run over the first shard alone, to check the target with; undefined if there is no shard. How many rows there
 * are, and how old they are, does not matter. Writes nothing.
 */
export async function previewFirst(opened: OpenedJob): Promise<PlannedRuns | undefined> {
  const { job, input, models, reporter, queries } = opened;
  const spec = { ...job.spec, checks: undefined, input: { ...job.spec.input, min_rows: 0, freshness: undefined } };
  const silent = {
    ...opened,
    job: { ...job, spec },
    reporter: { ...reporter, log: silentLog },
  };
  await openTokenCounter(job, models); // whether its file is there
  return await lookAtFirst(opened, async (first) => {
    await bindFirst(job, input.source, reporter.log, first);
    const { decoder, resolved, shard } = first;
    const engine = Promise.resolve(first.engine);
    const planned = await planRun(silent, { runId: job.base, listed: [shard], decoder, resolved, engine });
    await requireFitting(job, queries, planned.plan.contract);
    await pinProfile(job, input); // whether the file of `checks.baseline` is a profile
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

async function lookAtFirst<T>(opened: OpenedJob, look: (first: FirstShard) => Promise<T>): Promise<T | undefined> {
  const { job, input, models, reporter } = opened;
  const { source } = input;
  const resolved = await openPinnedModel(job, models);
  const listing = await listInput(job, input);
  const [shard] = listing.shards;
  // A folder that does not exist yet is no fault of the spec.
  await (shard === undefined ? requireListed(job, listing) : requireWhole(job, source, listing));
  warnOfUnmatched(reporter.log, listing);
  await using engine = await models.openEngine(resolved.model, { inputBytes: 0, preview: true });
  if (shard === undefined) {
    return undefined;
  }
  await using decoder = await input.openDecoder(listing.folders);
  const seen = await readSchema(job.spec, source, shard, decoder);
  return seen && (await look({ shard, decoder, resolved, engine, seen }));
}

interface TargetCheck {
  /** The state of the run; undefined: the target could not be reached. */
  readonly state?: DescribedRun;
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
export async function checkTarget(
  job: Job,
  sink: Sink,
  log: Log,
  plan: Plan | undefined,
  isNew = false,
): Promise<TargetCheck> {
  return await orUntried("the target", async () => {
    const state = await runState(job, sink, log);
    const { status } = state;
    if (state.error !== undefined && status !== "held") {
      throw state.error;
    }
    const isPlanned = !isNew && (status === "unfinished" || status === "approved");
    const isRehearsed = plan !== undefined && (isNew || isPlanned || status === "not_planned");
    try {
      return { state, untried: isRehearsed ? await sink.rehearse(plan, isPlanned) : [] };
    } catch (error) {
      throw error instanceof JobError && error.code === "OUTPUT_NEWER" ? atRun(job, error, isPlanned) : error;
    }
  });
}

/** A dry run has no `--allow-older`: its hint names the command that has it, and no rows that are committed yet. */
function atRun({ command, spec }: Job, error: JobError, isPlanned: boolean): JobError {
  const hint = error.hint?.replace("run the same command with", () => command(spec.params));
  return reworded(error, {
    hint: isPlanned ? hint : hint?.replace(", and so do the rows that this run has committed", ""),
  });
}

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
  readonly isReached: boolean;
  readonly untried: readonly string[];
}

/**
 * Compares the run that the target has with spec, input and model, as `run` does before it plans or scores, and looks at
 * what was decided on it. Changes nothing.
 * @throws JobError that `run` ends with before it knows which run the target has, unless a retry may succeed
 */
export async function checkStoredRun(opened: OpenedJob): Promise<StoredRunCheck> {
  const { job, sink } = opened;
  const none = { next: "plan", isReached: true, untried: [] } as const;
  const found = await orUntried("the target", async () => ({
    stored: await sink.find(job.base),
  }));
  if ("untried" in found) {
    return { ...none, isReached: false, ...found };
  }
  const { stored } = found;
  if (stored === undefined) {
    return none;
  }
  const next = await orError(
    () => nextOf(opened, stored),
    () => true,
  );
  if (!(next instanceof JobError)) {
    return { ...none, stored, next };
  }
  return next.exitCode === 75
    ? { ...none, stored, untried: [`the run that the target has: ${next.message}`] }
    : { ...none, stored, next: "end", refusal: spellOut(job, next) };
}

async function nextOf(opened: OpenedJob, stored: StoredPlan): Promise<StoredRunCheck["next"]> {
  const { job, sink, input, attempt, reporter } = opened;
  if (stored.pruned !== undefined) {
    refusePruned(job, attempt, stored.pruned);
  }
  const run = await sink.open(stored);
  refuseElsewhere(job, sink, run);
  const step = runStep(latestRun(run), false);
  switch (step.kind) {
    case "refuse":
      throw unfinishedErasure(job, run.plan);
    case "report":
      throw await decidedError(job, sink, reporter.log, run, step.state);
    case "compare with plan":
      await checkPublished(opened, run, await listPublished(job, input, run.plan));
      return "end";
    case "score":
      return await nextOfUnfinished(opened, run);
    case "publish":
      return "finish";
    case "open next":
      return "plan";
    default:
      return assertNever(step);
  }
}

/** @throws JobError if it cannot go on, and `run` would not begin another one in its place */
async function nextOfUnfinished(opened: OpenedJob, run: RunSink): Promise<StoredRunCheck["next"]> {
  const { job, sink, input, attempt } = opened;
  try {
    const { model } = await checkResumable(opened, run, await listInput(job, input, run.plan));
    checkRejects(job.spec, run);
    return model === undefined ? "finish" : "resume";
  } catch (error) {
    const isChange = error instanceof JobError && error.exitCode === 66;
    if (isChange && (await hasOnlyFailed(job.spec, sink, attempt, run))) {
      return "plan";
    }
    throw error;
  }
}

/** Returns a line of what was not carried out, if `work` fails with an error that a dry run can do without. */
async function orUntried<T>(
  what: string,
  work: () => Promise<T>,
  canDoWithout: (error: JobError) => boolean = ({ exitCode }) => exitCode === 75,
): Promise<T | { readonly untried: readonly string[] }> {
  const done = await orError(work, canDoWithout);
  return done instanceof JobError ? { untried: [`${what}: ${done.message}`] } : done;
}

const unlessStopped = (signal: AbortSignal) => (): boolean => !signal.aborted;

/**
 * Says what the checks of a run look at and what becomes of a run that fails one, then what it is compared with; nothing
 * without `checks`. A plan that was made without them has the first line only.
 */
export function plannedChecks(spec: JobSpec, plan: Plan): string[] {
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

function comparedLines(
  checks: NonNullable<JobSpec["checks"]>,
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

interface RunEstimate {
  /** undefined: predictions are free. */
  readonly estimate: PlanEstimate | undefined;
  readonly untried: readonly string[];
}

/** Asks nothing. Where the tokenizer of the spec cannot be loaded, which no run needs, bytes are counted. */
async function estimateRun(opened: OpenedJob, { plan, engine, decoder }: EstimateOptions): Promise<RunEstimate> {
  const { job, models, attempt } = opened;
  const { paid } = engine;
  const all = plan.input.rows;
  if (paid === undefined || all === 0) {
    return { estimate: undefined, untried: [] };
  }
  const ranges = [{ rowStart: 0, rowEnd: plan.input.rows }];
  const tools = { plan, engine, decoder };
  const sample = await sampleRows(opened, { ...tools, ranges, count: measuredRows });
  const { rows, read, places } = sample;
  const found = await orUntried(
    "tokens were not counted",
    () => openTokenCounter(job, models),
    unlessStopped(attempt.signal),
  );
  const [countTokens, untried] = found !== undefined && "untried" in found ? [undefined, found.untried] : [found, []];
  const tokens = await tokensOf(paid, sample, countTokens);
  const inTexts = tokens.reduce((sum, size) => sum + size, 0) / Math.max(1, rows.length);
  const requests = Math.round((all * rows.length) / Math.max(1, read));
  const prompt = Math.round((inTexts + paid.templateTokens) * requests);
  const tokenizer = countTokens && job.spec.model.prompt?.tokenizer;
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

/** @param tokens of each row that can be scored, in the order of the places */
function sumsOf(places: readonly SampledPlace[], tokens: readonly number[]): SampledSum[] {
  let from = 0;
  return places.map(({ read, rows }) => {
    const own = tokens.slice(from, from + rows);
    from += rows;
    return { read, sum: own.reduce((sum, size) => sum + size, 0) };
  });
}

/** Those that `countTokens` counts, or one for every four bytes. */
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

async function openTokenCounter(job: PlacedSpec, models: Models): Promise<CountTokens | undefined> {
  return models.loadTokenCounter && (await atKey(job, ["model", "prompt", "tokenizer"], models.loadTokenCounter));
}

interface PreviewOptions {
  readonly limit: number;
  readonly where?: string | undefined;
  readonly features: number;
  /** Rows drawn at random in place of the first ones, in the order of the input. */
  readonly sample?: Sampling | undefined;
}

interface Sampling {
  readonly rows: number;
  readonly seed: number;
}

/** The first rows of a job with their predictions. */
export interface PreviewedRows extends ShownRows {
  /** The rows that cannot be scored, among the rows that were read. */
  readonly rejects: readonly RejectedRow[];
  /** How many rows of how many were drawn; undefined: the first rows were read. */
  readonly drawn: { readonly rows: number; readonly of: number } | undefined;
}

/** The number of rows that are read at once if a condition may leave out most of them. */
const filteredSpanRows = 16_384;
/** Where conditions leave out most rows, so many are drawn for a sample at most: each may cost a query of 11 ms. */
const mostDraws = 2000;
/** Of a large sample so many for each of its rows. */
const drawsPerRow = 4;

/** Scores the first rows of the input as a run does. Writes nothing. @throws JobError of planning and scoring */
export async function previewRows(opened: OpenedJob, options: PreviewOptions): Promise<PreviewedRows> {
  const job = narrowed(opened.job, options.where);
  const previewed = { ...opened, job };
  const { input, models } = opened;
  const listing = await wholeInput(job, input);
  warnOfUnmatched(opened.reporter.log, listing);
  const resolved = await openPinnedModel(job, models);
  await using loading = loadEngine(models, resolved.model, { inputBytes: 0 });
  await using decoder = await input.openDecoder(listing.folders);
  const { engine } = loading;
  const { plan: planned } = await planRun(previewed, {
    runId: job.base,
    listed: listing.shards,
    table: listing.table,
    decoder,
    resolved,
    engine,
  });
  const { contract, features } = withFeatures(planned.contract, options.features);
  const plan: Plan = { ...planned, contract };
  const tools = { plan, engine: await engine, decoder };
  const { spans, limit, drawn } =
    options.sample === undefined
      ? { spans: await firstRows(previewed, tools, options.limit), limit: options.limit, drawn: undefined }
      : await sampledRows(previewed, tools, options.sample);
  const found = [...spans].toSorted(([one], [other]) => one - other).map(([, span]) => span);
  return {
    carried: planned.contract.passthrough.map(({ column }) => column),
    features: features.map(({ name }) => name),
    predictions: contract.outputs.map(({ column }) => column),
    featureCount: featureColumns(contract).length,
    rows: found.flatMap(({ rows }) => rows).slice(0, limit),
    rejects: found.flatMap(({ rejects }) => rejects),
    drawn,
  };
}

interface PreviewTools {
  readonly plan: Plan;
  readonly engine: Engine;
  readonly decoder: Decoder;
}

async function firstRows(opened: OpenedJob, tools: PreviewTools, limit: number): Promise<Spans> {
  const { job } = opened;
  const { where } = job.spec.input;
  const commitRows = where === undefined || isPaid(job.spec) ? limit : Math.max(limit, filteredSpanRows);
  const plan = { ...tools.plan, commitRows };
  const spans: Spans = new Map();
  const allSpans = spanCount(plan);
  // Each step reads twice as many spans, because rows that match a condition may be anywhere.
  for (let from = 0, to = 1; from < allSpans && rowsIn(spans) < limit; from = to, to = Math.min(allSpans, 2 * to + 1)) {
    const ranges = [rowsOfSpans(plan, { from, to })];
    await scoreWithoutPublishing(opened, { ...tools, plan, ranges }, ({ index }, output) => {
      spans.set(index, { rows: rowsOf(output.rows, limit), rejects: output.rejects });
    });
  }
  return spans;
}

/**
 * Scores rows that are drawn one by one from the whole input, each with the same chance. Rows that a condition leaves
 * out are replaced by others, until the sample is complete or too many were drawn: what is read has a limit that does
 * not depend on the size of the input.
 */
async function sampledRows(
  opened: OpenedJob,
  tools: PreviewTools,
  { rows: wanted, seed }: Sampling,
): Promise<{ readonly spans: Spans; readonly limit: number; readonly drawn: PreviewedRows["drawn"] }> {
  const { job } = opened;
  const plan = { ...tools.plan, commitRows: 1 };
  const { rows: all } = plan.input;
  const draw = drawRows(all, seed);
  const most = Math.min(all, Math.max(mostDraws, drawsPerRow * wanted));
  // A condition takes a query for each range of rows: a small input is read whole.
  const readsAll = job.spec.input.where !== undefined && all <= filteredSpanRows && !isPaid(job.spec);
  const spans: Spans = new Map();
  for (let found = 0; found < wanted && draw.rows.length < most; found = rowsIn(spans)) {
    const { length } = draw.rows;
    const missing = wanted - found;
    const likely = isPaid(job.spec) || length === 0 ? missing : Math.ceil((missing * (length + 1)) / (found + 1));
    const drawn = draw.more(readsAll ? all : Math.min(likely, most - length));
    const ranges = rangesOfRows(drawn);
    await scoreWithoutPublishing(opened, { ...tools, plan, ranges }, ({ index }, { rows, rejects }) => {
      if (rows.rowCount + rejects.length > 0) {
        spans.set(index, { rows: rowsOf(rows, 1), rejects });
      }
    });
  }
  // In the order of the draw: the first ones in the order of the input would rather be rows from its beginning.
  const kept = draw.rows.filter((row) => spans.has(row)).slice(0, wanted);
  const sample: Spans = new Map(kept.map((row) => [row, spans.get(row) ?? { rows: [], rejects: [] }]));
  return { spans: sample, limit: wanted, drawn: { rows: draw.rows.length, of: all } };
}

function isPaid(spec: JobSpec): boolean {
  return spec.model.prompt !== undefined;
}

type Spans = Map<number, { readonly rows: readonly (readonly string[])[]; readonly rejects: readonly RejectedRow[] }>;

function rowsIn(spans: Spans): number {
  return [...spans.values()].reduce((sum, { rows, rejects }) => sum + rows.length + rejects.length, 0);
}

function narrowed(job: Job, where: string | undefined): Job {
  const { spec } = job;
  const own = spec.input.where;
  const joined = where === undefined || own === undefined ? (where ?? own) : `(${own}\n) and (${where}\n)`;
  const option = own === undefined ? "--where" : "--where and input.where";
  return {
    ...job,
    spec: { ...spec, checks: undefined, input: { ...spec.input, where: joined } },
    where: (path) => (where !== undefined && path.join(".") === "input.where" ? option : job.where(path)),
  };
}

/** With names that no output column can have. */
function withFeatures(
  contract: Contract,
  most: number,
): { readonly contract: Contract; readonly features: readonly ColumnRef[] } {
  const carried = new Set(contract.passthrough.map(({ source }) => source.path.join(".")));
  const features = featureColumns(contract)
    .filter(({ path }) => !carried.has(path.join(".")))
    .slice(0, most);
  const passthrough = features.map((source) => ({ column: `feature ${source.name}`, source }));
  return {
    contract: {
      ...contract,
      lineage: undefined,
      reuse: undefined,
      passthrough: [...contract.passthrough, ...passthrough],
    },
    features,
  };
}

function rowsOf({ columns, rowCount }: OutputRows, most: number): string[][] {
  return Array.from({ length: Math.min(rowCount, most) }, (_, row) =>
    columns.map(({ type, column }) => jsonOf(type, column, row)),
  );
}

/** Draws rows of a table at random, each at most once, and each of those that are left with the same chance. */
interface RowDraw {
  /** All rows that were drawn, in the order of the draw. */
  readonly rows: readonly number[];
  /** Fewer where the table has no more. */
  more(wanted: number): readonly number[];
}

/** @param all the number of rows of the table @param seed the same one draws the same rows @public so that tests call it */
export function drawRows(all: number, seed: number): RowDraw {
  const random = randomNumbers(seed);
  const rows: number[] = [];
  // A shuffle (Fisher and Yates) that stores only the places that were swapped: a table may have 100 million rows.
  const swapped = new Map<number, number>();
  return {
    rows,
    more(wanted) {
      const from = rows.length;
      for (let at = from; at < Math.min(all, from + wanted); at += 1) {
        const other = at + Math.floor(random() * (all - at));
        rows.push(swapped.get(other) ?? other);
        swapped.set(other, swapped.get(at) ?? at);
      }
      return rows.slice(from);
    },
  };
}
