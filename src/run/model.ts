import type { JobSpec } from "../job/jobfile/job-spec.js";
import type { FoundModel, Model, TokenizerFile } from "../models/places/place.js";
import type { PinnedFile, PinnedTokenizer, Plan, PlannedModel } from "./plan/plan.js";
import { atKey, type EngineNeed, type PlacedSpec, type Models, type ShardFiles } from "../flow/opened-job.js";
import { modelUri, tokenizerUris } from "../job/jobfile/model-spec.js";
import { isRegistryUri } from "../job/jobfile/uri.js";
import { JobError, orError } from "../base/errors.js";
import type { Engine } from "../models/engine.js";
import type { Listing } from "../sources/source.js";
import { awaitedLater, ifOpened } from "../base/promises.js";
import { bindContract, textsOf } from "../models/binding/bind-contract.js";
import {
  type Contract,
  type Expression,
  type Expressions,
  columnRefs,
  folderColumns,
  outputColumns,
  outputTensors,
} from "../models/binding/contract.js";
import { bytesPerRow } from "../models/binding/row-bytes.js";
import type { BoundExpression, Decoder } from "../formats/format.js";
import type { SeenSchema } from "./input.js";
import { blankInputs } from "../flow/pack/packer.js";
import type { SourceColumn } from "../columns/types.js";
import type { ListedShard } from "./plan/compare.js";
import { mixedRows } from "../models/binding/model-facts.js";

/* The model of a run: how it is found, loaded, and bound to columns. */

/**
 * Finds the model of the spec with its tokenizers, and checks it against `model.sha256`.
 * @param planned the model that the plan of an unfinished run pins
 * @throws JobError MODEL_PIN when the spec pins another digest; MODEL_CHANGED when the planned version is gone
 */
export async function openPinnedModel(job: PlacedSpec, models: Models, planned?: PlannedModel): Promise<FoundModel> {
  const found = await findModel(job, models, planned);
  return "served" in found.model
    ? found
    : { ...found, model: { ...found.model, tokenizers: await openTokenizers(job, models, planned) } };
}

async function findModel(job: PlacedSpec, models: Models, planned?: PlannedModel): Promise<FoundModel> {
  return await atKey(job, ["model", job.spec.model.server === undefined ? "path" : "server"], async () => {
    const resolved = await models.resolveModel(planned).catch((error: unknown) => {
      throw planned === undefined ? error : goneError(error, planned);
    });
    const { model } = resolved;
    const pinned = job.spec.model.sha256;
    if (pinned !== undefined && pinned !== model.sha256) {
      throw new JobError(
        "MODEL_PIN",
        `loading model ${model.name}: its sha256 is ${model.sha256}, but model.sha256 is ${pinned}`,
        { hint: "deploy the pinned model, or change the pin" },
      );
    }
    return resolved;
  });
}

/**
 * Finds the tokenizers of the spec; undefined: it has none.
 * @param planned the model that the plan of an unfinished run pins
 * @throws JobError MODEL_CHANGED when the planned version of one is gone
 */
export async function openTokenizers(
  job: PlacedSpec,
  models: Models,
  planned?: PlannedModel,
): Promise<TokenizerFile[] | undefined> {
  const found: TokenizerFile[] = [];
  for (const [uri, input] of tokenizerUris(job.spec.model)) {
    const pin = planned?.tokenizers?.find((one) => one.uri === uri);
    const resolve = async (): Promise<TokenizerFile> =>
      await models.resolveTokenizer(uri, pin).catch((error: unknown) => {
        throw pin === undefined ? error : goneError(error, pin);
      });
    found.push(await atKey(job, ["model", "inputs", input, "tokenizer"], resolve));
  }
  return found.length === 0 ? undefined : found;
}

/** The tokenizers of a model's inputs. */
function tokenizersOf(model: Model): readonly TokenizerFile[] {
  return "served" in model ? [] : (model.tokenizers ?? []);
}

/** The tokenizers of a model's inputs as a plan pins them; undefined: it has none. */
export function pinnedTokenizers(model: Model): PinnedTokenizer[] | undefined {
  const all = tokenizersOf(model).map(({ uri, sha256, version }) => ({ uri, sha256, version }));
  return all.length === 0 ? undefined : all;
}

/** The error for a planned version that the registry no longer has. */
function goneError(error: unknown, { uri, version }: Pick<PlannedModel, "uri" | "version">): unknown {
  if (version === undefined || !(error instanceof JobError) || error.code !== "FILE_MISSING") {
    return error;
  }
  return new JobError("MODEL_CHANGED", `${error.message}; this run was planned with version ${version}`, {
    hint: `restore that version and run again; or abandon this run: --new-run scores with the version that ${uri} resolves to now`,
    cause: error,
  });
}

/** Returns the model that a plan pins, if the spec names the same model. */
export function plannedModel(spec: JobSpec, { model }: { readonly model: PlannedModel }): PlannedModel | undefined {
  return model.uri === modelUri(spec.model) ? model : undefined;
}

/**
 * Returns the model of the stored plan. It differs from the model that this attempt found if an alias moved while two
 * attempts were planning.
 */
export async function modelOfPlan(job: PlacedSpec, models: Models, plan: Plan, found: Model): Promise<Model> {
  const planned = plannedModel(job.spec, plan);
  const isPlanned =
    planned === undefined ||
    (planned.sha256 === found.sha256 && tokenizerDifference(planned, tokenizersOf(found)) === undefined);
  return isPlanned ? found : (await openPinnedModel(job, models, planned)).model;
}

/** How a tokenizer differs from the planned one, as its URI and a text; undefined: none does. */
export function tokenizerDifference(
  { tokenizers = [] }: PlannedModel,
  found: readonly PinnedFile[],
): readonly [uri: string, difference: string] | undefined {
  const planned = new Map(tokenizers.map(({ uri, sha256 }) => [uri, sha256]));
  const differing = found.find(({ uri, sha256 }) => (planned.get(uri) ?? sha256) !== sha256);
  return differing && [differing.uri, `its sha256 is ${differing.sha256}, planned ${planned.get(differing.uri)}`];
}

/** The digests of a model and of its tokenizers, as far as they are known. */
export interface FoundDigests {
  readonly modelSha256: string | undefined;
  readonly tokenizers: readonly PinnedFile[];
}

export function digestsOf(model: Model): FoundDigests {
  return { modelSha256: model.sha256, tokenizers: tokenizersOf(model) };
}

/**
 * Returns the digests of model and tokenizers for a run that no longer needs them, without those that are gone, and
 * without those that only a registry or a server knows. A finished run asks neither, because a moved alias does not
 * concern its rows.
 */
export async function digestsIfThere(job: PlacedSpec, models: Models, planned?: PlannedModel): Promise<FoundDigests> {
  const { path = "", server, sha256 } = job.spec.model;
  const isElsewhere = server !== undefined || isRegistryUri(path);
  const modelSha256 = isElsewhere
    ? sha256
    : await unlessGone(async () => (await findModel(job, models, planned)).model);
  const tokenizers: PinnedFile[] = [];
  for (const uri of tokenizerUris(job.spec.model).keys()) {
    const pin = planned?.tokenizers?.find((one) => one.uri === uri);
    const found = isRegistryUri(uri) ? undefined : await unlessGone(() => models.resolveTokenizer(uri, pin));
    tokenizers.push(...(found === undefined ? [] : [{ uri, sha256: found }]));
  }
  return { modelSha256, tokenizers };
}

/** The digest of a model or tokenizer; undefined: it is gone. All rows are scored, so that it is not needed. */
async function unlessGone(find: () => Promise<{ readonly sha256: string }>): Promise<string | undefined> {
  const found = await orError(find, ({ code }) => code === "FILE_MISSING" || code === "MODEL_CHANGED");
  return found instanceof JobError ? undefined : found.sha256;
}

/** An engine that other threads open while this one continues. */
export interface LoadingEngine extends AsyncDisposable {
  /** Rejects if the engine cannot be opened. */
  readonly engine: Promise<Engine>;
}

/** Begins to open an engine. Disposing waits until it is open, and closes it; a second time does nothing. */
export function loadEngine(models: Models, model: Model, need: EngineNeed): LoadingEngine {
  const engine = awaitedLater(models.openEngine(model, need));
  let closed: Promise<void> | undefined;
  const close = async (): Promise<void> => {
    await (await ifOpened(engine))?.[Symbol.asyncDispose]();
  };
  return {
    engine,
    async [Symbol.asyncDispose]() {
      closed ??= close();
      await closed;
    },
  };
}

/** Begins to load the model of a run. */
export function beginLoading(
  models: Models,
  { listing, model }: { readonly listing: Listing; readonly model: Model },
): LoadingEngine {
  const inputBytes = listing.shards.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0);
  return loadEngine(models, model, { inputBytes });
}

/** Waits for both, then returns both results. If both fail, throws the error of the first. */
export async function both<A, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([first, second]);
  return [await first, await second];
}

export interface BindingInput {
  readonly decoder: Decoder;
  readonly model: Model;
  readonly engine: Engine;
  /** Computed columns that another model takes; default: none. */
  readonly takenElsewhere?: ReadonlySet<string> | undefined;
}

/**
 * Binds the model to a shard's schema, and checks the bound model.
 * @throws JobError CONTRACT, or SPEC_INVALID for an expression
 */
export async function bindFirstShard(
  job: PlacedSpec,
  source: ShardFiles,
  seen: SeenSchema | undefined,
  { decoder, model, engine, takenElsewhere }: BindingInput,
): Promise<Contract> {
  const { spec } = job;
  const { columns, expressions } = await bindExpressions(job, source, decoder, seen);
  const bound = bindContract({
    model: model.name,
    signature: engine.signature,
    traits: model.traits,
    shard: seen?.name ?? "no shard",
    columns,
    expressions,
    takenElsewhere,
    inputs: spec.model.inputs,
    isPrompted: spec.model.prompt !== undefined,
    outputs: spec.model.outputs,
    passthrough: spec.output.columns,
    cast: spec.model.cast,
    missing: spec.model.missing,
    tokenizers: new Map(tokenizersOf(model).map(({ uri, facts }) => [uri, facts])),
  });
  const contract: Contract = {
    ...bound,
    ...(spec.output.lineage ? { lineage: true } : {}),
    ...(spec.output.numbered === true ? { numbered: true } : {}),
    ...(spec.reuse === undefined ? {} : { reuse: { key: spec.reuse.key } }),
  };
  refuseDoubleNames(contract);
  refuseLargeBatches(job, contract);
  await probeRows(engine, contract);
  return contract;
}

/** Threads cannot send each other 4 GiB at once; this is a safe limit below. */
const batchBytesLimit = 2 ** 30;

/** Refuses an `engine.batch_size` whose batches would be too large. @throws JobError SPEC_INVALID */
function refuseLargeBatches({ spec, where }: PlacedSpec, contract: Contract): void {
  const given = spec.engine.batch_size;
  const bytes = bytesPerRow(contract);
  if (given !== "auto" && contract.fixedBatchRows === null && given * bytes > batchBytesLimit) {
    const most = Math.max(1, Math.floor(batchBytesLimit / bytes));
    const place = where(["engine", "batch_size"]);
    throw new JobError("SPEC_INVALID", `reading ${place}: ${given} rows of ${bytes} bytes are more than 1 GiB`, {
      hint: `give the model ${most} rows at once at most, or leave the batch size to auto`,
    });
  }
}

/** Refuses two output columns of one name: outputs of the model may have the names that lineage adds. */
function refuseDoubleNames(contract: Contract): void {
  const seen = new Set<string>();
  for (const { name } of outputColumns(contract)) {
    if (seen.has(name.toLowerCase())) {
      throw new JobError("CONTRACT", `planning: two output columns are called \`${name}\``, {
        hint: "give them names of their own in model.outputs; output.lineage adds run_id, model_sha256 and scored_at, and reuse adds reuse_hash",
      });
    }
    seen.add(name.toLowerCase());
  }
}

/** A small number that is rarely the size of a dimension. */
const probedRows = 7;

/**
 * Calls the model on a few blank rows and checks that each output has as many rows. The shapes that a model declares
 * are often wrong, and a batch of one row shows nothing. A model that refuses blank rows is checked with its first
 * batch, and so is a model on TensorRT, which would build an engine for this number of rows.
 * @throws JobError CONTRACT
 */
async function probeRows(engine: Engine, contract: Contract): Promise<void> {
  if (engine.provider === "tensorrt") {
    return;
  }
  const rows = contract.fixedBatchRows ?? Math.min(probedRows, engine.mostRows ?? probedRows);
  const outputs = outputTensors(contract);
  const response = await engine.run({ inputs: blankInputs(contract, rows), outputs, isBlank: true });
  if (response.kind !== "done") {
    return;
  }
  for (const [index, tensor] of response.outputs.entries()) {
    if (tensor.dims[0] !== rows) {
      throw mixedRows(outputs[index] ?? "", tensor, rows);
    }
  }
}

interface ShardColumns {
  readonly shard: ListedShard;
  readonly columns: readonly SourceColumn[];
}

/**
 * Binds `input.where` and `input.columns` to a shard's columns. A computed column replaces the shard's column of the
 * same name; expressions use the shard's column.
 * @throws JobError SPEC_INVALID with the place of the expression in the spec
 */
async function bindExpressions(
  job: PlacedSpec,
  source: ShardFiles,
  decoder: Decoder,
  seen: ShardColumns | undefined,
): Promise<{ columns: readonly SourceColumn[]; expressions: Expressions | null }> {
  const { columns, where } = job.spec.input;
  const texts = promptTexts(job.spec, seen);
  if (seen === undefined || (where === undefined && Object.keys(columns).length + texts.length === 0)) {
    return { columns: seen?.columns ?? [], expressions: null };
  }
  await using file = await source.open(seen.shard);
  const bind = async (text: string, check: (bound: BoundExpression) => void): Promise<BoundExpression> => {
    const { partitions } = file;
    const bound = await decoder.bindExpression({ file, text, columns: seen.columns, partitions });
    check(bound);
    return bound;
  };
  const list: Expression[] = [];
  const computed: SourceColumn[] = [];
  if (where !== undefined) {
    const { uses } = await atKey(job, ["input", "where"], () => bind(where, requireBoolean));
    list.push({ kind: "where", name: "input.where", text: where, uses });
  }
  for (const [name, text] of Object.entries(columns)) {
    const { uses, sourceType, type } = await atKey(job, ["input", "columns", name], () => bind(text, requireType));
    list.push({ kind: "column", name, text, uses });
    computed.push({ name, sourceType: `${sourceType}, from input.columns`, type, computed: true });
  }
  for (const [name, text] of texts) {
    const { uses } = await bind(text, requireType);
    list.push({ kind: "column", name, text, uses });
    computed.push({ name, sourceType: "VARCHAR", type: "utf8", computed: true });
  }
  const used = new Set(list.flatMap(({ uses }) => uses));
  const sources = seen.columns.filter(({ name }) => used.has(name));
  return {
    columns: overlay(seen.columns, computed),
    expressions: { list, folders: folderColumns(sources), columns: columnRefs(sources) },
  };
}

/** The texts of columns that a prompt names and that are no texts; expressions use the shard's columns only. */
function promptTexts(
  { input: { columns }, model: { prompt, inputs = {} } }: JobSpec,
  seen: ShardColumns | undefined,
): [name: string, sql: string][] {
  const own = new Set(Object.keys(columns).map((name) => name.toLowerCase()));
  const names = Object.keys(inputs).filter((name) => !own.has(name.toLowerCase()));
  return prompt === undefined || seen === undefined ? [] : textsOf(names, seen.columns);
}

function requireBoolean({ sourceType, type }: BoundExpression): void {
  if (type !== "bool") {
    throw new JobError("SPEC_INVALID", `binding the row filter: it gives ${sourceType}, expected BOOLEAN`, {
      hint: "write a condition, such as amount is not null",
    });
  }
}

function requireType({ sourceType, type }: BoundExpression): void {
  if (type === undefined) {
    throw new JobError("SPEC_INVALID", `binding a computed column: it gives ${sourceType}, which is not supported`, {
      hint: "cast it, such as (…)::BIGINT or (…)::DOUBLE",
    });
  }
}

function overlay(columns: readonly SourceColumn[], computed: readonly SourceColumn[]): SourceColumn[] {
  const byName = new Map(computed.map((column) => [column.name.toLowerCase(), column]));
  const placed = columns.map((column) => {
    const over = byName.get(column.name.toLowerCase());
    byName.delete(column.name.toLowerCase());
    return over ?? column;
  });
  return [...placed, ...byName.values()];
}
