import { JobError } from "../base/errors.js";
import { awaitedLater, ifOpened } from "../base/promises.js";
import { tokenizersOf } from "./find-model.js";
import type { SourceColumn } from "../columns/types.js";
import { atKey, type EngineNeed, type Models, type PlacedSpec, type ShardFiles } from "../flow/opened-job.js";
import { blankInputs } from "../flow/pack/packer.js";
import type { BoundExpression, Decoder } from "../formats/format.js";
import type { JobSpec } from "../job/jobfile/job-spec.js";
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
import { mixedRows } from "../models/binding/model-facts.js";
import { bytesPerRow } from "../models/binding/row-bytes.js";
import type { Engine } from "../models/engine.js";
import type { Model } from "../models/places/place.js";
import type { Listing } from "../sources/source.js";
import type { SeenSchema } from "./input.js";
import type { ListedShard } from "./plan/compare.js";

/* The model of a run: how it is loaded, and bound to columns. */

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

/** Binds the model to a shard's schema, and checks it. @throws JobError CONTRACT, or SPEC_INVALID for an expression */
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
 * A computed column replaces the shard's column of the same name; expressions use the shard's column.
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
