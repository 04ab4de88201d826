import type { Agreement } from "../checks/agreement.js";
import type { OutputRows } from "../columns/types.js";
import type { FoundModel, ModelFile } from "../models/places/place.js";
import type { Plan } from "./plan/plan.js";
import { spanAt, spanCount, spansOf } from "./plan/spans.js";
import { timeRow } from "../flow/batch-size.js";
import type { OpenedJob } from "../flow/opened-job.js";
import { JobError, reworded } from "../base/errors.js";
import { wholeInput, type SeenShards, readShards } from "./input.js";
import { type PlanningInput, planRun } from "./planning.js";
import { openUnpublished } from "./score-without-publishing.js";
import { predictedColumns, rowNumberColumn } from "../models/binding/contract.js";
import { compareColumns } from "./two-sets.js";

/** The comparison of two models on the same rows; what JSON has is under its names. */
export interface Comparison extends Agreement {
  /** The number of rows of the input, and of its first rows, which were read. */
  readonly rows_input: number;
  readonly rows_read: number;
  readonly a: ModelSpeed;
  readonly b: ModelSpeed;
  readonly placeOf: (row: number) => { readonly shard: string; readonly row: number };
}

export interface ModelSpeed {
  readonly model: string;
  readonly sha256: string;
  readonly size_bytes: number;
  readonly provider: string;
  readonly batch_rows: number;
  /** The speed of all sessions together, from the median time of a batch inside the model; null: no batch was scored. */
  readonly rows_per_second: number | null;
}

const spanRows = 16_384;
/** An input of one span is scored again, repeatedly, for so long. */
const measuredMs = 500;
const bindingHint =
  "compare binds each model by model.inputs and model.outputs of the spec; for a model with other inputs or outputs: name it under challenger, with inputs and outputs of its own, and each run compares the two";
const defaultBatchRows = { cpu: 1024, others: 4096 };

/**
 * Scores the first `limit` rows of the job's input with two models, one after the other, and compares the predictions. Both
 * may not fit into the memory of a GPU, and a process can have only one session on WebGPU.
 */
export async function compareModels(
  opened: OpenedJob,
  models: readonly [ComparedModel, ComparedModel],
  { limit, tolerance }: { readonly limit: number; readonly tolerance: number },
): Promise<Comparison> {
  const comparing = withoutChecks(opened);
  const { folders, shards: listed } = await wholeInput(comparing.job, comparing.input);
  await using decoder = await comparing.input.openDecoder(folders);
  await using joiner = await opened.queries.openRowJoiner([]);
  const shards = await readShards(comparing, decoder, listed);
  const input = { decoder, shards, listed, limit };
  const a = await scoreModel(comparing, input, models[0], (rows) => joiner.add("a", rows));
  const b = await scoreModel(comparing, input, models[1], (rows) => joiner.add("b", rows));

  const spans = spansOf(a.plan);
  const agreement = await compareColumns(
    joiner,
    [a, b].map(({ plan }) => predictedColumns(plan.contract)),
    {
      key: [rowNumberColumn.name],
      shown: a.plan.contract.passthrough.map(({ column }) => column),
      tolerance,
    },
  );
  return {
    rows_input: shards.rows,
    rows_read: Math.min(limit, shards.rows),
    a: a.speed,
    b: b.speed,
    ...agreement,
    placeOf(row) {
      const { shard, row: inShard } = spans.locate(row);
      return { shard: shard.uri, row: inShard };
    },
  };
}

function withoutChecks(opened: OpenedJob): OpenedJob {
  const { job } = opened;
  const { checks: _checks, reuse: _reuse, challenger: _challenger, ...spec } = job.spec;
  const output = { ...spec.output, lineage: false };
  const compared = { ...spec, on_bad_row: "reject", max_rejects: "100%", commit_rows: spanRows, output } as const;
  return { ...opened, job: { ...job, spec: compared } };
}

interface ComparedInput extends Pick<PlanningInput, "decoder" | "listed"> {
  readonly shards: SeenShards;
  readonly limit: number;
}

/** Takes the rows with their numbers, without those that cannot be scored. */
async function scoreModel(
  opened: OpenedJob,
  { limit, ...input }: ComparedInput,
  compared: ComparedModel,
  take: (rows: OutputRows) => Promise<void>,
): Promise<{ readonly plan: Plan; readonly speed: ModelSpeed }> {
  const { job, models, attempt } = opened;
  const { signal, nowMs } = attempt;
  await using engine = await models.openEngine(compared.model, { inputBytes: Number.POSITIVE_INFINITY });
  await engine.local?.opened(); // all sessions have compiled their trees, as in a run of many rows
  const planning = { ...input, runId: job.base, resolved: compared, engine: Promise.resolve(engine) };
  const { plan: whole } = await planRun(opened, planning).catch((error: unknown) => {
    // The bindings are those of the spec's own model, and must not be changed for one that an option names.
    const isOther = compared.isGiven && error instanceof JobError && error.code === "CONTRACT";
    throw isOther ? reworded(error, { hint: bindingHint }) : error;
  });
  const contract = { ...whole.contract, numbered: true } as const;
  const plan = { ...whole, contract, input: { ...whole.input, rows: Math.min(whole.input.rows, limit) } };

  const { batch_size: given } = job.spec.engine;
  const standard = engine.provider === "cpu" ? defaultBatchRows.cpu : defaultBatchRows.others;
  const batchRows = contract.fixedBatchRows ?? Math.min(plan.commitRows, given === "auto" ? standard : given);
  const batches: { readonly rows: number; readonly ms: number }[] = [];
  const sizer = { rows: batchRows, took: (rows: number, ms: number) => void batches.push({ rows, ms }) };
  await timeRow(engine, contract); // asks each session for the outputs
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1);
  const spans: OutputRows[] = [];
  await using scorer = await openUnpublished(
    opened,
    { plan, engine, decoder: input.decoder, sizer },
    (_, { rows }) => void spans.push(rows),
  );
  const score = async (index: number): Promise<OutputRows> => {
    signal.throwIfAborted();
    await scorer.score([spanAt(plan, index)], 0);
    return spans.pop() as OutputRows;
  };

  const all = Array.from({ length: spanCount(plan) }, (_, index) => index);
  for (const index of all) {
    await take(await score(index));
  }
  if (all.length === 1) {
    batches.length = 0; // of a model that has just begun
    for (const startedMs = nowMs(); nowMs() - startedMs < measuredMs; ) {
      await score(0);
    }
  }

  // The median batch, which a few delayed ones, and those of the slower beginning, do not change.
  const perRow = batches.map(({ rows, ms }) => ms / rows).toSorted((left, right) => left - right);
  const msPerRow = perRow[Math.floor(perRow.length / 2)] ?? 0;
  const { name: model, sha256, sizeBytes: size_bytes } = compared.model;
  const rows_per_second = msPerRow === 0 ? null : Math.round(((engine.local?.sessions ?? 1) * 1000) / msPerRow);
  const { provider } = engine;
  return { plan, speed: { model, sha256, size_bytes, provider, batch_rows: batchRows, rows_per_second } };
}

/** A model on this machine. */
export interface ComparedModel extends FoundModel {
  readonly model: ModelFile;
  /** Whether an option names it: else it is the model of the spec. */
  readonly isGiven: boolean;
}
