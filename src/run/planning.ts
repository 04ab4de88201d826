import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { Source } from "../sources/source.js";
import { count } from "../base/shown-numbers.js";
import {
  type Contract,
  type InputBinding,
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
import { JobError, orError } from "../base/errors.js";
import { makePlan } from "./plan/make-plan.js";
import type { ListedShard } from "./plan/compare.js";
import { twiceText } from "./plan/partitions.js";
import type { Changes, PinnedTable, Plan, PlannedChecks, PlannedModel, RunId } from "./plan/plan.js";
import { spanCount } from "./plan/spans.js";
import { type SeenSchema, type SeenShards, readShards, refuseDrift, withTypesOf } from "./input.js";
import { type BindingInput, bindFirstShard, both, loadEngine } from "./model.js";
import { openPinnedModel, pinnedTokenizers } from "./find-model.js";
import {
  atKey,
  type OpenedJob,
  type Log,
  type PlacedSpec,
  type Job,
  type Queries,
  type Reporter,
} from "../flow/opened-job.js";
import { forSecond, openSecondJob } from "./second-job.js";
import { planReuse } from "./reuse.js";
import { timeRow } from "../flow/batch-size.js";
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
import { aggregatesOf, requireCheckedColumns, pinGolden, pinProfile, requireProfiles } from "./checks.js";
import { modelUri } from "../job/jobfile/model-spec.js";
import { allowedRejects, nullRowsText } from "../flow/rejects.js";
import { signatureDifferences } from "../models/binding/signatures.js";
import { lostOutputs } from "../models/binding/model-facts.js";

/** Each span is a file, and a byte of memory. */
const spansLimit = 2 ** 24;

export interface PlanningInput {
  readonly runId: RunId;
  readonly listed: readonly ListedShard[];
  /** The table whose files are listed; default: they are files that `input.path` names. */
  readonly table?: PinnedTable | undefined;
  readonly changes?: Changes | undefined;
  readonly decoder: Decoder;
  readonly resolved: FoundModel;
  /** The engine, which is being opened while footers are read. */
  readonly engine: Promise<Engine>;
  /** Footers that are already read. Default: they are read while the engine is opened. */
  readonly shards?: SeenShards | undefined;
}

export interface PlannedRuns {
  readonly plan: Plan;
  readonly second: Plan | undefined;
}

/** Reads footers, binds the models to their schema and makes the plans. Writes nothing. */
export async function planRun(
  opened: OpenedJob,
  { runId, listed, table, changes, decoder, resolved, engine: loading, ...read }: PlanningInput,
): Promise<PlannedRuns> {
  const { job, sink, input, attempt, reporter } = opened;
  const { spec } = job;
  const { model, version, origin } = resolved;
  const wanted = await withoutFiltered(spec, input.source, decoder, listed);
  const [engine, all] = await both(
    loading,
    read.shards === undefined
      ? readWhileOpening(opened, loading, { decoder, listed: wanted })
      : Promise.resolve(read.shards),
  );
  const seen = ofShards(all, wanted);
  const { shards, rows, schemas } = seen;
  const bind = (takenElsewhere?: ReadonlySet<string>): Promise<Contract> =>
    bindModel(job, input.source, seen, { decoder, model, engine, takenElsewhere });
  const second = await planSecond(opened, { runId, listed, table, decoder, shards: seen }, bind);
  const contract = await bind(second && computedColumns(second.contract));
  warnOfModel(spec, reporter.log, resolved, engine.signature);
  warnOfVersion(spec, reporter.log, resolved);
  if (second !== undefined && model.sha256 === second.model.sha256 && spec.challenger?.inputs === undefined) {
    reporter.log.warn("the challenger is the model itself, and takes its time: remove it from the spec");
  }
  warnOfFolders(job, reporter.log, contract);
  warnOfNulls(spec, reporter, contract, seen);
  warnOfLegacyDates(reporter.log, contract, schemas);
  const { planTarget: target } = sink;
  const msPerRow = spec.commit_rows === "auto" ? await timeRow(engine, contract) : 0;
  const pinnedModel = { sha256: model.sha256, version, origin, tokenizers: pinnedTokenizers(model) };
  const removedRows = wanted.reduce((sum, { ofTable }) => sum + (ofTable?.removedRows ?? 0), 0);
  const pinned = {
    shards,
    table: table && { ...table, removedRows },
    changes,
    uniform: schemas.length === 1,
    model: pinnedModel,
  };
  const checks = await planChecks(opened, { resolved, contract });
  const scoresAll = attempt.newRun && attempt.reuse !== true;
  const reuseFrom = await planReuse(job, sink, reporter.log, { contract, resolved, scoresAll });
  const made = {
    runId,
    spec,
    ...pinned,
    contract,
    msPerRow,
    target,
    dateParam: job.dateParam,
    checks,
    reuseFrom,
    mostRows: job.limited?.rows,
  };
  const plan = makePlan({ ...made, createdBy: attempt.program });
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
  opened: OpenedJob,
  input: Omit<PlanningInput, "resolved" | "engine">,
  bind: (takenElsewhere: ReadonlySet<string>) => Promise<Contract>,
): Promise<Plan | undefined> {
  const { spec } = opened.job;
  if (spec.challenger === undefined) {
    return undefined;
  }
  await using second = await openSecondJob(opened);
  const { job, models } = second;
  try {
    return await forSecond(async () => {
      const resolved = await openPinnedModel(job, models);
      await using loading = loadEngine(models, resolved.model, { inputBytes: 0, preview: true });
      await loading.engine;
      return await atKey(job, ["model"], async () => {
        return (await planRun(second, { ...input, resolved, engine: loading.engine })).plan;
      });
    });
  } catch (error) {
    // If the input does not fit the model either, the input is what is wrong, and not the second one.
    await bind(new Set(Object.keys(spec.input.columns)));
    throw error;
  }
}

function warnOfVersion({ model, checks }: JobSpec, log: Log, { version }: FoundModel): void {
  const isOnServer = model.server !== undefined && model.prompt === undefined; // answers of language models name theirs
  if (isOnServer && version === undefined && checks?.golden === undefined) {
    log.warn(
      "the server names no version of its model, so that a changed model is not noticed: add checks.golden, rows whose predictions are known and compared when each attempt starts",
    );
  }
}

/** Of computed columns that another model takes, only those that this one takes are read. */
async function bindModel(
  job: PlacedSpec,
  source: Source,
  { schemas, encrypted }: Pick<SeenShards, "schemas" | "encrypted">,
  tools: BindingInput,
): Promise<Contract> {
  const [first, ...others] = schemas;
  const typed = first === undefined ? [] : [withTypesOf(others, first), ...others];
  const takenElsewhere =
    job.spec.output.numbered === true ? new Set(Object.keys(job.spec.input.columns)) : tools.takenElsewhere;
  const bound = await bindShards(job, source, typed, { ...tools, takenElsewhere });
  const contract = takenElsewhere === undefined ? bound : withUsedExpressions(bound);
  for (const other of schemas) {
    refuseDrift(contract, typed[0], other);
  }
  refuseEncrypted(new Set(usedColumns(contract)), encrypted);
  return contract;
}

const someDate = /\d{4}-?\d{2}-?\d{2}/;

/**
 * Warns of columns that folders' names give, too; and of a folder without the date, which refuses the next day's run.
 */
export function warnOfFolders({ spec, dateParam, limited }: Job, log: Log, contract: Contract): void {
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
function warnOfLegacyDates(log: Log, contract: Contract, schemas: readonly SeenSchema[]): void {
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
export function warnOfModel(spec: JobSpec, log: Log, { model, signature }: FoundModel, actual: ModelSignature): void {
  for (const text of lostOutputs(model.traits, spec.model.outputs)) {
    log.warn(text);
  }
  const differences = signature === undefined ? [] : signatureDifferences(signature, actual);
  if (differences.length > 0) {
    log.warn(`${model.name} has another signature than its registry declares: ${differences.join("; ")}`);
  }
}

/**
 * If only another shard's schema fits, the error says how the two differ. @throws JobError CONTRACT, SCHEMA_MISMATCH
 */
async function bindShards(
  job: PlacedSpec,
  source: Source,
  [first, ...others]: readonly SeenSchema[],
  tools: BindingInput,
): Promise<Contract> {
  try {
    return await bindFirstShard(job, source, first, tools);
  } catch (error) {
    for (const other of others) {
      const contract = await orError(
        () => bindFirstShard(job, source, other, tools),
        () => true,
      );
      if (!(contract instanceof JobError)) {
        refuseDrift(contract, other, first);
      }
    }
    throw error;
  }
}

/** One shard stays in any case, which has the columns. */
async function withoutFiltered(
  spec: JobSpec,
  source: Source,
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
  opened: OpenedJob,
  loading: Promise<Engine>,
  { decoder, listed }: Pick<PlanningInput, "decoder" | "listed">,
): Promise<SeenShards> {
  const { attempt } = opened;
  const refused = new AbortController();
  loading.catch((error: unknown) => {
    refused.abort(error);
  });
  const signal = AbortSignal.any([attempt.signal, refused.signal]);
  return await readShards({ ...opened, attempt: { ...attempt, signal } }, decoder, listed);
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

/** Finds the runs to compare with, and pins `checks.golden`. @throws JobError USAGE; SPEC_INVALID, FILE_MISSING */
async function planChecks(
  opened: OpenedJob,
  { resolved, contract }: { readonly resolved: FoundModel; readonly contract: Contract },
): Promise<PlannedChecks | undefined> {
  const { job, input, attempt, reporter, queries } = opened;
  const { spec } = job;
  if (spec.checks === undefined) {
    return undefined;
  }
  await requireFitting(job, queries, contract);
  const golden = await pinGolden(job, input, attempt.signal);
  const { slices, sql } = spec.checks;
  const profile = await pinProfile(job, input);
  const { isNewModel, ...compared } =
    profile === undefined ? await planComparisons(opened, resolved) : { isNewModel: false, baseline: [], profile };
  if (isNewModel && golden === undefined) {
    warnOfNoGoldenRows(spec, reporter.log, resolved, compared);
  }
  return {
    ...compared,
    ...(golden === undefined ? {} : { golden }),
    ...(slices === undefined ? {} : { slices }),
    ...(sql === undefined ? {} : { sql }),
  };
}

/** @throws JobError SPEC_INVALID when columns or conditions of `checks` do not fit the output */
export async function requireFitting(job: PlacedSpec, queries: Queries, contract: Contract): Promise<void> {
  requireCheckedColumns(job, contract);
  await using _ = await aggregatesOf(job, queries, { contract, checks: { sql: job.spec.checks?.sql } });
}

async function planComparisons(
  { job: { spec, dateParam }, sink, input, attempt, reporter: { log } }: OpenedJob,
  resolved: FoundModel,
): Promise<Pick<PlannedChecks, "baseline" | "day" | "leftOut" | "olderModel"> & { readonly isNewModel: boolean }> {
  const modelSha256 = resolved.model.sha256;
  const ordered = { params: spec.params, dateParam: dateParam ?? null };
  const date = logicalDateOf(ordered);
  const warning = `the checks cannot compare this run with earlier runs: ${whyNotCompared(ordered)}`;
  if (spec.input.since !== undefined) {
    return { baseline: [], day: await input.chain?.planDay(new Date(attempt.dateMs())), isNewModel: false };
  }
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
  await requireProfiles(sink, chosen.baseline);
  return { ...chosen, isNewModel: !found.some((run) => run.modelSha256 === modelSha256) };
}

/** Warns, in the first run of a version of the model, that its predictions are compared with earlier runs at most. */
function warnOfNoGoldenRows(
  spec: JobSpec,
  log: Log,
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

function namedModel(
  { model }: JobSpec,
  { model: { sha256 }, version }: FoundModel,
): Pick<PlannedModel, "uri" | "sha256" | "version"> {
  return { uri: modelUri(model), sha256, version };
}

const namedColumns = 5;

/** Before hours of scoring end there. Not of a feature in `input.where`: most conditions leave its NULLs out. */
function warnOfNulls(
  spec: JobSpec,
  { log, record }: Reporter,
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
