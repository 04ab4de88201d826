import { count } from "../base/shown-numbers.js";
import {
  type Contract,
  type InputBinding,
  type Projection,
  computedColumns,
  inputColumns,
  outputColumns,
  usedColumns,
  withUsedExpressions,
} from "../models/binding/contract.js";
import type { ModelSignature } from "../columns/tensor.js";
import { type SourceColumn, showType } from "../columns/types.js";
import type { Decoder } from "../formats/format.js";
import type { Engine } from "../models/engine.js";
import type { FoundModel } from "../models/places/place.js";
import { JobError, messageOf } from "../base/errors.js";
import { makePlan } from "./plan/make-plan.js";
import type { ListedShard } from "./plan/compare.js";
import { twiceText } from "./plan/partitions.js";
import type { PinnedTable, Plan, PlannedChecks, PlannedModel, RunId, Slice } from "./plan/plan.js";
import { spanCount, spansOf } from "./plan/spans.js";
import { type SeenSchema, type SeenShards, readShards, refuseDrift, withTypesOf } from "./read-shards.js";
import { type BindingInput, bindFirstShard } from "./bind-model.js";
import { type JobContext, type ScoringContext, atKey } from "../flow/context.js";
import { forSecond, openSecondJob } from "./second-job.js";
import { both, loadEngine, openPinnedModel, pinnedTokenizers } from "./model.js";
import { planReuse } from "./reuse.js";
import { timeRow } from "../flow/batch-size.js";
import { sampleEvery } from "../checks/profile/features.js";
import { shortDigest } from "./plan/identity.js";
import {
  chooseBaseline,
  leftOutText,
  logicalDateOf,
  nameWithVersion,
  normalAndOthers,
  olderModelText,
  whyNotCompared,
} from "./lifecycle/published-run.js";
import { aggregatesOf, requireColumns } from "./checked-output.js";
import { modelUri } from "../job/jobfile/model-spec.js";
import { pinGolden } from "./golden.js";
import { pinProfile, requireProfiles } from "./history.js";
import { allowedRejects, nullRowsText } from "../flow/rejects.js";
import { type ReadyWindow, type SliceOfRun, coalesceSlices, windowsAhead } from "../flow/read.js";
import { signatureDifferences } from "../models/binding/signatures.js";
import { lostOutputs } from "../models/binding/model-facts.js";
import { type SampledSum, leastSum } from "../base/sampling.js";

/** Each span is a file, and a byte of memory. */
const spansLimit = 2 ** 24;

export interface PlanningInput {
  readonly runId: RunId;
  readonly listed: readonly ListedShard[];
  /** The table whose files are listed; default: they are files that `input.path` names. */
  readonly table?: PinnedTable | undefined;
  readonly decoder: Decoder;
  readonly resolved: FoundModel;
  /** The engine, which is being opened while footers are read. */
  readonly engine: Promise<Engine>;
  /** Footers that are already read. Default: they are read while the engine is opened. */
  readonly shards?: SeenShards | undefined;
}

export interface PlannedRuns {
  readonly plan: Plan;
  /** The plan of the run that scores the same rows with a second model; undefined: the spec has none. */
  readonly second: Plan | undefined;
}

/** Reads footers, binds the models to their schema and makes the plans. Writes nothing. */
export async function planRun(
  context: JobContext,
  { runId, listed, table, decoder, resolved, engine: loading, ...read }: PlanningInput,
): Promise<PlannedRuns> {
  const { spec } = context;
  const { model, version, origin } = resolved;
  const wanted = await withoutFiltered(context, decoder, listed);
  const [engine, all] = await both(
    loading,
    read.shards === undefined
      ? readWhileOpening(context, loading, { decoder, listed: wanted })
      : Promise.resolve(read.shards),
  );
  const seen = ofShards(all, wanted);
  const { shards, rows, schemas } = seen;
  const bind = (takenElsewhere?: ReadonlySet<string>): Promise<Contract> =>
    bindModel(context, seen, { decoder, model, engine, takenElsewhere });
  const second = await planSecond(context, { runId, listed, table, decoder, shards: seen }, bind);
  const contract = await bind(second && computedColumns(second.contract));
  warnOfModel(context, resolved, engine.signature);
  warnOfVersion(context, resolved);
  warnOfFolders(context, contract);
  warnOfNulls(context, contract, seen);
  warnOfLegacyDates(context, contract, schemas);
  const { planTarget: target } = context.sink;
  const msPerRow = spec.commit_rows === "auto" ? await timeRow(engine, contract) : 0;
  const pinnedModel = { sha256: model.sha256, version, origin, tokenizers: pinnedTokenizers(model) };
  const removedRows = wanted.reduce((sum, { ofTable }) => sum + (ofTable?.removedRows ?? 0), 0);
  const pinned = {
    shards,
    table: table && { ...table, removedRows },
    uniform: schemas.length === 1,
    model: pinnedModel,
  };
  const { dateParam, program: createdBy } = context;
  const checks = await planChecks(context, { resolved, contract });
  const reuseFrom = await planReuse(context, { contract, resolved });
  const made = {
    runId,
    spec,
    ...pinned,
    contract,
    msPerRow,
    target,
    dateParam,
    checks,
    reuseFrom,
    mostRows: context.limited?.rows,
  };
  const plan = makePlan({ ...made, createdBy });
  if (spanCount(plan) > spansLimit) {
    const parts = `${count(rows, "row")} in spans of ${count(plan.commitRows, "row")} would be ${count(spanCount(plan), "part")}`;
    throw new JobError("SPEC_INVALID", `planning ${spec.name}: ${parts}, at most ${spansLimit} can be kept`, {
      hint: "raise commit_rows; if the number of rows is wrong, `infer-batch inspect` shows the rows that a shard states",
    });
  }
  return { plan, second };
}

/** Plans the run of the second model, so that one that does not fit is found before a row is scored. */
async function planSecond(
  context: JobContext,
  input: Omit<PlanningInput, "resolved" | "engine">,
  bind: (takenElsewhere: ReadonlySet<string>) => Promise<Contract>,
): Promise<Plan | undefined> {
  if (context.spec.challenger === undefined) {
    return undefined;
  }
  await using job = await openSecondJob(context);
  try {
    return await forSecond(async () => {
      const resolved = await openPinnedModel(job);
      await using loading = loadEngine(job, resolved.model, { inputBytes: 0, preview: true });
      await loading.engine;
      return await atKey(job, ["model"], async () => {
        return (await planRun(job, { ...input, resolved, engine: loading.engine })).plan;
      });
    });
  } catch (error) {
    // If the input does not fit the model either, the input is what is wrong, and not the second one.
    await bind(new Set(Object.keys(context.spec.input.columns)));
    throw error;
  }
}

/** Warns if nothing would show that a server has another model than the planned one. */
function warnOfVersion({ spec: { model, checks }, log }: JobContext, { version }: FoundModel): void {
  const isOnServer = model.server !== undefined && model.prompt === undefined; // answers of language models name theirs
  if (isOnServer && version === undefined && checks?.golden === undefined) {
    log.warn(
      "the server names no version of its model, so that a changed model is not noticed: add checks.golden, rows whose predictions are known and compared when each attempt starts",
    );
  }
}

/**
 * Binds the model to the columns of all shards. Of computed columns that another model takes, only those that this one
 * takes are read.
 * @throws JobError CONTRACT, SCHEMA_MISMATCH, SHARD_CORRUPT
 */
async function bindModel(
  { spec, ...context }: JobContext,
  { schemas, encrypted }: Pick<SeenShards, "schemas" | "encrypted">,
  tools: BindingInput,
): Promise<Contract> {
  const [first, ...others] = schemas;
  const typed = first === undefined ? [] : [withTypesOf(others, first), ...others];
  const takenElsewhere =
    spec.output.numbered === true ? new Set(Object.keys(spec.input.columns)) : tools.takenElsewhere;
  const bound = await bindShards({ spec, ...context }, typed, { ...tools, takenElsewhere });
  const contract = takenElsewhere === undefined ? bound : withUsedExpressions(bound);
  for (const other of schemas) {
    refuseDrift(contract, typed[0], other);
  }
  refuseEncrypted(new Set(usedColumns(contract)), encrypted);
  return contract;
}

const someDate = /\d{4}-?\d{2}-?\d{2}/;

/**
 * Warns when a run is planned: of output columns that the names of the output's folders give, too; and of a folder without
 * the date of the run, which refuses the run of the next day.
 */
export function warnOfFolders(
  { spec, log, dateParam, limited }: Pick<JobContext, "spec" | "log" | "dateParam" | "limited">,
  contract: Contract,
): void {
  const { parquet } = spec.output;
  const date = dateParam === undefined || limited !== undefined ? undefined : spec.params[dateParam];
  const columns = outputColumns(contract).map(({ name }) => name);
  const twice = parquet === undefined ? undefined : twiceText(columns, parquet.path);
  if (twice !== undefined) {
    log.warn(twice);
  }
  if (parquet !== undefined && date !== undefined && !parquet.path.includes(date) && !someDate.test(parquet.path)) {
    log.warn(
      `output.parquet.path, ${parquet.path}, is the same every day: a folder belongs to one run, and the next date would be refused. Write \${${dateParam}} into it, as in ${parquet.path.replace(/\/$/, "")}/dt=\${${dateParam}}`,
    );
  }
}

/** Warns of columns that Spark wrote in the calendar of Spark 2, each once. Old dates in them are read as other ones. */
function warnOfLegacyDates(
  { log }: Pick<ScoringContext, "log">,
  contract: Contract,
  schemas: readonly SeenSchema[],
): void {
  const left = new Set(usedColumns(contract));
  for (const { name, legacyDates } of schemas) {
    for (const { column, key, timeZone } of legacyDates) {
      if (left.delete(column)) {
        const zone = timeZone === "" ? "" : `, org.apache.spark.timeZone = ${timeZone}`;
        log.warn(
          `column \`${column}\` of ${name} is in Spark's legacy calendar (${key}${zone}): ` +
            "dates before 1582-10-15 and timestamps before 1900 are read as other ones; " +
            "write the file again with Spark's datetimeRebaseModeInWrite and int96RebaseModeInWrite = CORRECTED",
        );
      }
    }
  }
}

/** Warns when a run is planned, and not in each attempt. */
export function warnOfModel(
  { spec, log }: Pick<ScoringContext, "spec" | "log">,
  { model, signature }: FoundModel,
  actual: ModelSignature,
): void {
  for (const text of lostOutputs(model.traits, spec.model.outputs)) {
    log.warn(text);
  }
  const differences = signature === undefined ? [] : signatureDifferences(signature, actual);
  if (differences.length > 0) {
    log.warn(`${model.name} has another signature than its registry declares: ${differences.join("; ")}`);
  }
}

/**
 * Binds the model to the first shard's schema. If only another shard's schema fits, the error says how the two differ.
 * @throws JobError CONTRACT, SCHEMA_MISMATCH
 */
async function bindShards(
  context: JobContext,
  [first, ...others]: readonly SeenSchema[],
  tools: BindingInput,
): Promise<Contract> {
  try {
    return await bindFirstShard(context, first, tools);
  } catch (error) {
    for (const other of others) {
      const contract = await contractOrUndefined(() => bindFirstShard(context, other, tools));
      if (contract !== undefined) {
        refuseDrift(contract, other, first);
      }
    }
    throw error;
  }
}

async function contractOrUndefined(act: () => Promise<Contract>): Promise<Contract | undefined> {
  try {
    return await act();
  } catch (error) {
    if (error instanceof JobError) {
      return undefined;
    }
    throw error;
  }
}

/**
 * Leaves out the shards of a table whose partitions have no row that `input.where` keeps; one stays in any case, which
 * has the columns.
 */
async function withoutFiltered(
  { spec, source }: JobContext,
  decoder: Decoder,
  listed: readonly ListedShard[],
): Promise<readonly ListedShard[]> {
  const { where } = spec.input;
  const partitions = listed.flatMap(({ ofTable }) => (ofTable === undefined ? [] : [ofTable.partition]));
  const [first] = listed;
  if (where === undefined || first === undefined || partitions.length < listed.length) {
    return listed;
  }
  await using opened = await source.open(first);
  const columns = (opened.table?.columns ?? []).flatMap(({ name, type }): SourceColumn[] =>
    type !== undefined && partitions.every((partition) => partition.has(name))
      ? [{ name, sourceType: showType(type), type, partition: true }]
      : [],
  );
  const distinct = new Map(partitions.map((partition) => [JSON.stringify([...partition]), partition]));
  // An expression that cannot be used is refused where it is bound.
  const answers = await decoder.mayKeep({ text: where, columns, partitions: [...distinct.values()] }).catch(() => []);
  const filtered = new Set([...distinct.keys()].filter((_, index) => answers[index] === false));
  const wanted = listed.filter((_, index) => !filtered.has(JSON.stringify([...(partitions[index] ?? [])])));
  return wanted.length === 0 ? [first] : wanted;
}

/** What was seen of some of the shards. */
function ofShards(seen: SeenShards, wanted: readonly ListedShard[]): SeenShards {
  if (wanted.length === seen.shards.length) {
    return seen;
  }
  const uris = new Set(wanted.map(({ uri }) => uri));
  const shards = seen.shards.filter(({ uri }) => uris.has(uri));
  return { ...seen, shards, rows: shards.reduce((sum, shard) => sum + shard.rows, 0) };
}

/** Reads footers while the engine is opened, and stops if that fails, since there may be many. */
async function readWhileOpening(
  context: JobContext,
  loading: Promise<Engine>,
  { decoder, listed }: Pick<PlanningInput, "decoder" | "listed">,
): Promise<SeenShards> {
  const refused = new AbortController();
  loading.catch((error: unknown) => {
    refused.abort(error);
  });
  const signal = AbortSignal.any([context.signal, refused.signal]);
  return await readShards({ ...context, signal }, decoder, listed);
}

/** Refuses encrypted columns that the job uses; others are not read. */
function refuseEncrypted(used: ReadonlySet<string>, encrypted: ReadonlyMap<string, string>): void {
  for (const [column, path] of encrypted) {
    if (used.has(column)) {
      throw new JobError("SHARD_CORRUPT", `planning: column \`${column}\` of ${path} is encrypted`, {
        hint: "encrypted columns are not supported; write the shard without encryption",
      });
    }
  }
}

/**
 * Adds to the plan of a run with checks how many rows are sampled for the profiles of features, if `input.where` leaves
 * out so many that a sample of the planned rows would be too small. The sample must be the same for all attempts and
 * workers, so its rate is planned. If the kept rows cannot be counted, the plan stays as it is:
 * a rate that is far too fine would cost all workers CPU time, without a message.
 */
export async function planSample(
  context: JobContext,
  { plan, decoder }: { readonly plan: Plan; readonly decoder: Decoder },
): Promise<Plan> {
  const { checks, request, input } = plan;
  const ofPlanned = sampleEvery(input.rows);
  if (checks === null || request.where === null || ofPlanned === 1) {
    return plan;
  }
  const kept = await fewestKept(context, plan, decoder);
  const every = kept === undefined ? ofPlanned : sampleEvery(kept);
  return every === ofPlanned ? plan : { ...plan, checks: { ...checks, sampleEvery: every } };
}

/**
 * Finds the published runs that a run is compared with, and pins the file of `checks.golden`. Returns undefined without
 * `checks`.
 * @throws JobError USAGE for a target that cannot hold a run; SPEC_INVALID, FILE_MISSING
 */
async function planChecks(
  context: JobContext,
  { resolved, contract }: { readonly resolved: FoundModel; readonly contract: Contract },
): Promise<PlannedChecks | undefined> {
  const { spec } = context;
  if (spec.checks === undefined) {
    return undefined;
  }
  await requireFitting(context, contract);
  const golden = await pinGolden(context);
  const { slices, sql } = spec.checks;
  const profile = await pinProfile(context);
  const { isNewModel, ...compared } =
    profile === undefined ? await planComparisons(context, resolved) : { isNewModel: false, baseline: [], profile };
  if (isNewModel && golden === undefined) {
    warnOfNoGoldenRows(context, resolved, compared);
  }
  return {
    ...compared,
    ...(golden === undefined ? {} : { golden }),
    ...(slices === undefined ? {} : { slices }),
    ...(sql === undefined ? {} : { sql }),
  };
}

/**
 * Checks that the columns and the conditions of `checks` fit the output.
 * @throws JobError SPEC_INVALID
 */
export async function requireFitting(context: JobContext, contract: Contract): Promise<void> {
  requireColumns(context, contract);
  await using _ = await aggregatesOf(context, { contract, checks: { sql: context.spec.checks?.sql } });
}

/** Finds the published runs that a run is compared with. */
async function planComparisons(
  { spec, sink, dateParam, log }: Pick<JobContext, "spec" | "sink" | "dateParam" | "log">,
  resolved: FoundModel,
): Promise<Pick<PlannedChecks, "baseline" | "leftOut" | "olderModel"> & { readonly isNewModel: boolean }> {
  const modelSha256 = resolved.model.sha256;
  const ordered = { params: spec.params, dateParam: dateParam ?? null };
  const date = logicalDateOf(ordered);
  const warning = `the checks cannot compare this run with earlier runs: ${whyNotCompared(ordered)}`;
  if (dateParam === undefined || date === undefined) {
    log.warn(warning);
    return { baseline: [], isNewModel: false }; // or the warning would come with every run
  }
  const series = { job: spec.name, params: spec.params, dateParam, date };
  const found = normalAndOthers(await sink.published("everywhere"), series);
  const chosen = await chooseBaseline(found, { modelSha256 });
  if (chosen.baseline.length === 0) {
    log.warn(warning);
  }
  const leftOut = leftOutText(chosen);
  if (leftOut !== undefined) {
    log.info(`checks: ${leftOut}`);
  }
  const older = olderModelText(namedModel(spec, resolved), chosen);
  if (older !== undefined) {
    log.warn(older);
  }
  // A profile that cannot be read is reported before rows are scored in vain.
  await requireProfiles({ sink }, chosen.baseline);
  return { ...chosen, isNewModel: !found.some((run) => run.modelSha256 === modelSha256) };
}

/** Warns, in the first run of a version of the model, that its predictions are compared with earlier runs at most. */
function warnOfNoGoldenRows(
  { spec, log }: Pick<JobContext, "spec" | "log">,
  resolved: FoundModel,
  { baseline }: Pick<PlannedChecks, "baseline">,
): void {
  if (spec.model.server?.protocol === "openai") {
    return; // `checks.golden` is refused for it
  }
  const model = namedModel(spec, resolved);
  const named =
    model.version === undefined ? `${model.uri} (sha256 ${shortDigest(model.sha256)})` : nameWithVersion(model);
  const compared = baseline.length === 0 ? "with nothing" : "with earlier runs only";
  log.warn(
    `first run with ${named}, and without known predictions: its predictions are compared ${compared}, so a wrong model or wrong preprocessing may not be noticed; name rows with known predictions in checks.golden, which are scored first`,
  );
}

/** The model as a plan names it. */
function namedModel(
  { model }: JobContext["spec"],
  { model: { sha256 }, version }: FoundModel,
): Pick<PlannedModel, "uri" | "sha256" | "version"> {
  return { uri: modelUri(model), sha256, version };
}

/** Columns that one warning names. */
const namedColumns = 5;

/**
 * Warns of features that the shards' statistics state to be NULL in more rows than the job accepts, before hours of
 * scoring end there. Not of a feature that `input.where` uses: most conditions leave its NULLs out.
 */
function warnOfNulls(
  { spec, log, record }: Pick<ScoringContext, "spec" | "log" | "record">,
  contract: Contract,
  { nulls, rows }: Pick<SeenShards, "nulls" | "rows">,
): void {
  record.nullFeatures = undefined; // those of a plan that this attempt has made before
  const where = contract.expressions?.list.find(({ kind }) => kind === "where");
  const found = new Map(
    contract.inputs
      .filter((binding) => contract.missing !== "nan" || !isOfFloats(binding))
      .flatMap((binding) => inputColumns(binding))
      .flatMap(({ path, computed, partition }) => {
        const isLeft = path.length > 1 || computed || partition || where?.uses.includes(path[0] ?? "") === true;
        const stated = isLeft ? undefined : nulls.get(path[0] ?? "");
        return stated === undefined ? [] : [[path[0] ?? "", stated] as const];
      })
      .toSorted(([, left], [, right]) => right - left),
  );
  const [first] = found;
  if (first === undefined) {
    return;
  }
  const [column, most] = first;
  const allowed = allowedRejects({ limit: spec.max_rejects, rows });
  const rejects = spec.on_bad_row === "reject";
  if (rejects && most <= allowed) {
    return;
  }
  const isFloat = contract.inputs.some(
    (binding) => isOfFloats(binding) && inputColumns(binding).some(({ name }) => name === column),
  );
  const nan = isFloat ? "model.missing: nan if the model takes NaN, " : "";
  const outcome = rejects
    ? `max_rejects (${spec.max_rejects}) allows ${count(allowed, "rejected row")}`
    : "on_bad_row: fail ends the run at the first one";
  const before = where === undefined ? "" : " before input.where";
  const other = rejects ? "a larger max_rejects" : "on_bad_row: reject";
  const text = `features are NULL${before}: ${namedText([...found], rows)}; a row with a NULL feature cannot be scored, and ${outcome}. Correct the input and run the same command again; or, if NULL is right there, write ${nan}\`${column}: coalesce(${column}, …)\` under input.columns, or ${other}`;
  record.nullFeatures = { text, nulls: found, rows };
  log.warn(text);
}

/** "temp_c in all 8,831 rows, age in 12 of 8,831 rows". */
function namedText(found: readonly (readonly [string, number])[], rows: number): string {
  const named = found.slice(0, namedColumns).map(([name, nullRows]) => `${name} in ${nullRowsText(nullRows, rows)}`);
  const more = found.length > namedColumns ? [count(found.length - namedColumns, "more feature")] : [];
  return [...named, ...more].join(", ");
}

/** Whether an input has a NaN in place of a NULL with `model.missing: nan`. */
function isOfFloats(binding: InputBinding): boolean {
  return binding.kind === "matrix" && ["float32", "float64", "float16"].includes(binding.dtype);
}

/** An input of at most so many rows and shards is counted whole: in about 0.2 s of CPU time. */
const mostWhole = { rows: 2 ** 22, shards: 128 };
/** A larger input is counted in so many places, of so many rows each. */
const places = { count: 64, rows: 2 ** 14 };
/** If fewer places than these are counted, and not all rows, they say too little about the input. */
const fewestPlaces = 16;
/** Rows that one query counts. The time limit is checked after each query. */
const queryRows = 2 ** 20;
/** No more is counted after this time, nor fetched from a store beyond these bytes. */
const most = { ms: 5000, bytes: 64 * 1024 * 1024 };

/**
 * Counts the rows of a run that `input.where` keeps: all of them, or if the run is large, those in places that are spread
 * over it. Returns how many the run has at least; undefined if an error ended the count, or if too few places were
 * counted: the estimate would be so low that almost every row would be sampled. The log then says so.
 * @public so that tests call it
 */
export async function fewestKept(context: JobContext, plan: Plan, decoder: Decoder): Promise<number | undefined> {
  const { source, signal, nowMs, log } = context;
  const { contract, input } = plan;
  const { rows } = input;
  const unused = (why: string): undefined => {
    log.info(
      `the number of rows that input.where keeps is unknown, because ${why}: features are sampled as if it kept all ${rows} rows, and if it keeps few, the sample may be too small for some checks`,
    );
  };
  const list = contract.expressions?.list.filter(({ kind }) => kind === "where") ?? [];
  const expressions = contract.expressions && { ...contract.expressions, list };
  const projection: Projection = { ...contract, inputs: [], passthrough: [], expressions };
  const isWhole = isCountedWhole(plan);
  const coalesced = {
    uniform: input.uniform === true,
    // The error of an estimate is computed over places, so each place is counted alone.
    shards: isWhole ? source.readAhead.coalescedFiles : 1,
    rows: queryRows,
    bytes: Number.POSITIVE_INFINITY,
  };
  const slices = slicesToCount(plan);
  const sinceMs = nowMs();
  const limited = withinBytes(decoder);
  const isLate = (): boolean => nowMs() - sinceMs > most.ms;
  // In an order in which the first ones are spread over the run, too.
  const groups = until(coalesceSlices(numbered(spread(slices)), coalesced), () => isLate() || limited.isSpent());

  const byPlace = new Map<string, SampledSum>();
  try {
    for await (const window of windowsAhead({ source, decoder: limited.decoder, projection }, groups)) {
      signal.throwIfAborted();
      try {
        await window.there;
        const kept = await decoder.countKept(window.requests);
        const place = placeOf(window);
        const { read, sum } = byPlace.get(place) ?? { read: 0, sum: 0 };
        byPlace.set(place, { read: read + window.rowEnd - window.rowStart, sum: sum + kept });
      } finally {
        await window.done();
      }
      if (isLate()) {
        break;
      }
    }
  } catch (error) {
    signal.throwIfAborted();
    return unused(`an error ended the count (${messageOf(error)})`);
  }

  const counted = [...byPlace.values()];
  // Even one place of a small input will do, if rows of it are kept.
  const wanted = isWhole && counted.some(({ sum }) => sum > 0) ? 1 : Math.min(fewestPlaces, slices.length);
  if (counted.reduce((sum, { read }) => sum + read, 0) < rows && counted.length < wanted) {
    const limits = `${most.ms / 1000} s and ${most.bytes / 2 ** 20} MiB`;
    return unused(`only ${counted.length} of ${slices.length} places could be counted within ${limits}`);
  }
  const fewest = leastSum(counted, rows);
  const took = ((nowMs() - sinceMs) / 1000).toFixed(2);
  log.debug(`input.where keeps at least ${fewest} of ${rows} rows; counting took ${took} s`);
  return fewest;
}

/** Names the place that a window belongs to: a store may give the rows of one place in several windows. */
function placeOf({ requests: [first] }: ReadyWindow): string {
  return JSON.stringify([first?.file.name, Math.floor((first?.rowStart ?? 0) / places.rows)]);
}

/** Items up to the first one before which `isOver` says that no more is wanted. */
function* until<T>(items: Iterable<T>, isOver: () => boolean): Generator<T> {
  for (const item of items) {
    if (isOver()) {
      return;
    }
    yield item;
  }
}

function isCountedWhole({ input: { rows, shards } }: Plan): boolean {
  return rows <= mostWhole.rows && shards.length <= mostWhole.shards;
}

/** All rows of a run, or those in places that are spread over it. */
function slicesToCount(plan: Plan): Slice[] {
  const { rows } = plan.input;
  const spans = spansOf(plan);
  if (isCountedWhole(plan)) {
    return spans.slices({ rowStart: 0, rowEnd: rows }).flatMap(inGoes);
  }
  const found = new Map<string, Slice>();
  for (let place = 0; place < places.count; place += 1) {
    const { shard, row } = spans.locate(Math.floor((rows * (place + 0.5)) / places.count));
    const rowStart = Math.floor(row / places.rows) * places.rows;
    const rowEnd = Math.min(rowStart + places.rows, shard.rows);
    found.set(JSON.stringify([shard.uri, rowStart]), { shard, rowStart, rowEnd });
  }
  return [...found.values()];
}

function inGoes({ shard, rowStart, rowEnd }: Slice): Slice[] {
  return Array.from({ length: Math.ceil((rowEnd - rowStart) / queryRows) }, (_, go) => {
    const from = rowStart + go * queryRows;
    return { shard, rowStart: from, rowEnd: Math.min(from + queryRows, rowEnd) };
  });
}

/** Sorts by the reversed bits of the index: the first ones of any number are spread over the whole. */
function spread<T>(all: readonly T[]): T[] {
  return [...all.entries()].toSorted(([one], [other]) => reversed(one) - reversed(other)).map(([, item]) => item);
}

function reversed(index: number): number {
  let bits = 0;
  for (let bit = 0; bit < 16; bit += 1) {
    bits = bits * 2 + ((index >>> bit) & 1);
  }
  return bits;
}

/** Numbers the rows of slices as if there were no others, so that they can be read together. */
function* numbered(slices: readonly Slice[]): Generator<SliceOfRun> {
  let rowStart = 0;
  for (const slice of slices) {
    yield { slice, rowStart };
    rowStart += slice.rowEnd - slice.rowStart;
  }
}

/** A decoder that leaves out the windows of shards in a store that would need more bytes; `isSpent` once it would do so. */
function withinBytes(decoder: Decoder): { readonly decoder: Decoder; isSpent(): boolean } {
  let bytes = 0;
  const isSpent = (): boolean => bytes >= most.bytes;
  return {
    isSpent,
    decoder: {
      ...decoder,
      async windows(slice, windowBytes) {
        const windows = await decoder.windows(slice, windowBytes);
        return windows.filter(({ ranges }) => {
          const isWanted = !isSpent();
          bytes += isWanted ? ranges.reduce((sum, { start, end }) => sum + end - start, 0) : 0;
          return isWanted;
        });
      },
    },
  };
}
