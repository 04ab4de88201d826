import { bindContract } from "../../binding/bind-contract.js";
import { type Contract, outputColumns, usedColumns } from "../../binding/contract.js";
import { signatureDifferences } from "../../binding/declared-signature.js";
import { lostOutputs } from "../../binding/model-traits.js";
import { bytesPerRow } from "../../binding/row-bytes.js";
import type { ModelSignature } from "../../columnar/tensor.js";
import type { Decoder } from "../../formats/port.js";
import type { Engine } from "../../engine/port.js";
import type { FoundModel, Model } from "../../models/port.js";
import { JobError } from "../../util/errors.js";
import { makePlan } from "../../plan/make-plan.js";
import type { ListedShard } from "../../plan/compare.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import { refuseDrift, withTypesOf } from "./drift.js";
import { bindExpressions } from "./expressions.js";
import type { JobContext, ScoringContext, ShardFiles } from "../../scoring/context.js";
import { both } from "../loading.js";
import { warnOfNulls } from "./null-features.js";
import { planChecks } from "./plan-checks.js";
import { probeRows } from "./probe-rows.js";
import { readShards, type SeenSchema, type SeenShards } from "./read-shards.js";
import { timeRow } from "../../scoring/warm-up.js";

/** Each span is a file, and a byte of memory. */
const spansLimit = 2 ** 24;

export interface PlanningInput {
  readonly runId: RunId;
  readonly listed: readonly ListedShard[];
  readonly decoder: Decoder;
  readonly resolved: FoundModel;
  /** The engine, which is being opened while footers are read. */
  readonly engine: Promise<Engine>;
  /** Footers that are already read. Default: they are read while the engine is opened. */
  readonly shards?: SeenShards | undefined;
}

/** Reads footers, binds the model to their schema and makes the plan. Writes nothing. */
export async function planRun(
  context: JobContext,
  { runId, listed, decoder, resolved, engine: loading, ...read }: PlanningInput,
): Promise<Plan> {
  const { spec } = context;
  const { model, version, origin } = resolved;
  const [engine, seen] = await both(
    loading,
    read.shards === undefined ? readBeside(context, loading, { decoder, listed }) : Promise.resolve(read.shards),
  );
  const { shards, rows, schemas, encrypted } = seen;
  const [first, ...others] = schemas;
  const typed = first === undefined ? [] : [withTypesOf(others, first), ...others];
  const contract = await bindShards(context, typed, { decoder, model, engine });
  warnOfModel(context, resolved, engine.signature);
  const used = new Set(usedColumns(contract));
  for (const other of schemas) {
    refuseDrift(contract, typed[0], other);
  }
  refuseEncrypted(used, encrypted);
  warnOfNulls(context, contract, seen);
  const { planTarget: target } = context.sink;
  const msPerRow = spec.commit_rows === "auto" ? await timeRow(engine, contract) : 0;
  const pinned = { shards, uniform: schemas.length === 1, model: { sha256: model.sha256, version, origin } };
  const { dateParam, program: createdBy } = context;
  const checks = await planChecks(context, { modelSha256: model.sha256, contract });
  const made = {
    runId,
    spec,
    ...pinned,
    contract,
    msPerRow,
    target,
    dateParam,
    checks,
    mostRows: context.limited?.rows,
  };
  const plan = makePlan({ ...made, createdBy });
  if (spanCount(plan) > spansLimit) {
    const parts = `${count(rows, "row")} in spans of ${count(plan.commitRows, "row")} would be ${count(spanCount(plan), "part")}`;
    throw new JobError("SPEC_INVALID", `planning ${spec.name}: ${parts}, at most ${spansLimit} can be kept`, {
      hint: "raise commit_rows; if the number of rows is wrong, `infer-batch inspect` tells what a shard claims",
    });
  }
  return plan;
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

/** Refuses two output columns of one name: outputs of the model may have the names that lineage adds. */
function refuseDoubleNames(contract: Contract): void {
  const seen = new Set<string>();
  for (const { name } of outputColumns(contract)) {
    if (seen.has(name.toLowerCase())) {
      throw new JobError("CONTRACT", `planning: two output columns are called \`${name}\``, {
        hint: "give them names of their own in model.outputs; output.lineage adds run_id, model_sha256 and scored_at",
      });
    }
    seen.add(name.toLowerCase());
  }
}

interface BindingInput {
  readonly decoder: Decoder;
  readonly model: Model;
  readonly engine: Engine;
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
 * Binds the model to a shard's schema, and checks the bound model.
 * @throws JobError CONTRACT, or SPEC_INVALID for an expression
 */
export async function bindFirstShard(
  context: Pick<ScoringContext, "spec" | "where"> & { readonly source: ShardFiles },
  seen: SeenSchema | undefined,
  { decoder, model, engine }: BindingInput,
): Promise<Contract> {
  const { spec } = context;
  const { columns, expressions } = await bindExpressions(context, decoder, seen);
  const bound = bindContract({
    model: model.name,
    signature: engine.signature,
    shard: seen?.name ?? "no shard",
    columns,
    expressions,
    inputs: spec.model.inputs,
    outputs: spec.model.outputs,
    passthrough: spec.output.columns,
    cast: spec.model.cast,
    missing: spec.model.missing,
  });
  const contract: Contract = spec.output.lineage ? { ...bound, lineage: true } : bound;
  refuseDoubleNames(contract);
  refuseLargeBatches(context, contract);
  await probeRows(engine, contract);
  return contract;
}

/** Threads cannot send each other 4 GiB at once; this is a safe limit below. */
const batchBytesLimit = 2 ** 30;

/** Refuses an `engine.batch_size` whose batches would be too large. @throws JobError SPEC_INVALID */
function refuseLargeBatches({ spec, where }: Pick<ScoringContext, "spec" | "where">, contract: Contract): void {
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

/** Reads footers while the engine is opened, and stops if that fails, since there may be many. */
async function readBeside(
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
