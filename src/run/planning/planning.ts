import {
  computedColumns,
  withUsedExpressions,
  type Contract,
  outputColumns,
  usedColumns,
} from "../../binding/contract.js";
import { signatureDifferences } from "../../binding/signatures.js";
import { lostOutputs } from "../../binding/model-facts.js";
import type { ModelSignature } from "../../columnar/tensor.js";
import type { Decoder } from "../../formats/port.js";
import type { Engine } from "../../engine/port.js";
import type { FoundModel } from "../../models/port.js";
import { JobError } from "../../util/errors.js";
import { makePlan } from "../../plan/make-plan.js";
import type { ListedShard } from "../../plan/compare.js";
import { twiceText } from "../../plan/partitions.js";
import type { Plan, RunId } from "../../plan/plan.js";
import { spanCount } from "../../plan/spans.js";
import { count } from "../../report/report.js";
import { refuseDrift, withTypesOf } from "./drift.js";
import { bindFirstShard, type BindingInput } from "./bind-model.js";
import { atKey, type JobContext, type ScoringContext } from "../../scoring/context.js";
import { forSecond, openSecondJob } from "../second-job.js";
import { both, loadEngine } from "../loading.js";
import { openPinnedModel, pinnedTokenizers } from "../model.js";
import { warnOfNulls } from "./null-features.js";
import { planChecks } from "./plan-checks.js";
import { planReuse } from "./plan-reuse.js";
import { readShards, type SeenSchema, type SeenShards } from "./read-shards.js";
import { timeRow } from "../../scoring/warm-up.js";
import { sampleEvery } from "../../checks/profile/features.js";
import { fewestKept } from "./kept-rows.js";

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

export interface PlannedRuns {
  readonly plan: Plan;
  /** The plan of the run that scores the same rows with a second model; undefined: the spec has none. */
  readonly second: Plan | undefined;
}

/** Reads footers, binds the models to their schema and makes the plans. Writes nothing. */
export async function planRun(
  context: JobContext,
  { runId, listed, decoder, resolved, engine: loading, ...read }: PlanningInput,
): Promise<PlannedRuns> {
  const { spec } = context;
  const { model, version, origin } = resolved;
  const [engine, seen] = await both(
    loading,
    read.shards === undefined ? readWhileOpening(context, loading, { decoder, listed }) : Promise.resolve(read.shards),
  );
  const { shards, rows, schemas } = seen;
  const bind = (takenElsewhere?: ReadonlySet<string>): Promise<Contract> =>
    bindModel(context, seen, { decoder, model, engine, takenElsewhere });
  const second = await planSecond(context, { runId, listed, decoder, shards: seen }, bind);
  const contract = await bind(second && computedColumns(second.contract));
  warnOfModel(context, resolved, engine.signature);
  warnOfVersion(context, resolved);
  warnOfFolders(context, contract);
  warnOfNulls(context, contract, seen);
  warnOfLegacyDates(context, contract, schemas);
  const { planTarget: target } = context.sink;
  const msPerRow = spec.commit_rows === "auto" ? await timeRow(engine, contract) : 0;
  const pinnedModel = { sha256: model.sha256, version, origin, tokenizers: pinnedTokenizers(model) };
  const pinned = { shards, uniform: schemas.length === 1, model: pinnedModel };
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
