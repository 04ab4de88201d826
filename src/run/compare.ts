import { type Agreement, type MatchedColumns, matchColumns } from "../checks/agreement.js";
import type { OutputRows } from "../columns/types.js";
import type { Engine } from "../models/engine.js";
import type { FoundModel, ModelFile } from "../models/places/place.js";
import { runIdOf } from "./plan/identity.js";
import type { Plan } from "./plan/plan.js";
import { spanAt, spanCount, spansOf } from "./plan/spans.js";
import { timeRow } from "../flow/batch-size.js";
import type { JobContext, RowJoiner } from "../flow/context.js";
import { JobError, reworded } from "../base/errors.js";
import { wholeInput } from "./input.js";
import { type PlanningInput, planRun } from "./planning.js";
import { type SeenShards, readShards } from "./read-shards.js";
import { openUnpublished } from "./score-without-publishing.js";
import { predictedColumns } from "./second-job.js";
import { rowNumberColumn } from "../models/binding/contract.js";

/** The comparison of two models on the same rows. A is `one`. */
export interface Comparison extends Agreement {
  /** The number of rows of the input, and of its first rows, which were read. */
  readonly input: number;
  readonly read: number;
  readonly one: ModelSpeed;
  readonly other: ModelSpeed;
  readonly apart: MatchedColumns["apart"];
  /** Where a row of the run is. */
  readonly placeOf: (row: number) => { readonly shard: string; readonly row: number } | undefined;
}

export interface ModelSpeed {
  /** The model as messages name it. */
  readonly name: string;
  readonly sha256: string;
  readonly sizeBytes: number;
  readonly provider: string;
  readonly batchRows: number;
  /**
   * The speed of all sessions together, from the median time of a batch inside the model; undefined: no batch was
   * scored.
   */
  readonly rowsPerSecond: number | undefined;
}

interface CompareOptions {
  readonly one: ComparedModel;
  readonly other: ComparedModel;
  /** The limit of rows to score, from the beginning of the input. */
  readonly limit: number;
  /** The largest difference of two numbers that count as equal. */
  readonly tolerance: number;
}

/** The number of rows that one model scores before the other model's turn. */
const turnRows = 16_384;
/** The time inside each model to measure. A small input is scored several times, until this time is reached. */
const measuredMs = 300;
const mostRounds = 20;
/** The time after which no further round begins. */
const repeatedMs = 2000;
/** The number of rows of a batch if the spec has no batch size. */
const defaultBatchRows = { cpu: 1024, others: 4096 };

type Side = "a" | "b";

/**
 * Scores the first rows of the job's input with two models, in turns, and compares the predictions. Models on a GPU are
 * scored one after the other, because both may not fit into its memory, and a process can have only one session on WebGPU.
 */
export async function compareModels(job: JobContext, joiner: RowJoiner, options: CompareOptions): Promise<Comparison> {
  const context = comparingContext(job);
  const { limit, tolerance, one, other } = options;
  const { folders, shards: listed } = await wholeInput(context);
  await using decoder = await context.openDecoder(folders);
  const shards = await readShards(context, decoder, listed);
  const openEngine = (model: ComparedModel): Promise<Engine> =>
    context.openEngine(model.model, { inputBytes: Number.POSITIVE_INFINITY });
  const open = async (model: ComparedModel, engine: Engine): Promise<TimedModel> =>
    await openTimed(context, { decoder, shards, listed, limit }, model, engine);
  const add = async (side: Side, rows: OutputRows): Promise<void> => {
    await joiner.add(side, rows);
  };

  const { providers } = context.spec.engine;
  const scored: TimedModel[] = [];
  if (providers !== "auto" && providers[0] === "cpu") {
    await using engine = await openEngine(one);
    await using second = await openEngine(other);
    await using a = await open(one, engine);
    await using b = await open(other, second);
    await scoreTurns(context, { a, b }, add);
    scored.push(a, b);
  } else {
    for (const [side, given] of [["a", one] as const, ["b", other] as const]) {
      await using engine = await openEngine(given);
      await using model = await open(given, engine);
      await scoreTurns(context, { [side]: model }, add);
      scored.push(model);
    }
  }

  const [a, b] = scored as [TimedModel, TimedModel];
  const { compared, apart } = matchColumns(predictedColumns(a.plan.contract), predictedColumns(b.plan.contract));
  const shown = a.plan.contract.passthrough.map(({ column }) => column);
  const key = [rowNumberColumn.name];
  return {
    input: shards.rows,
    read: Math.min(limit, shards.rows),
    placeOf: placesIn(a.plan),
    apart,
    one: a.speed(),
    other: b.speed(),
    ...(await joiner.compare({ key, isNumbered: true, columns: compared, shown, tolerance })),
  };
}

function placesIn(plan: Plan): Comparison["placeOf"] {
  const spans = spansOf(plan);
  return (row) => {
    if (row >= plan.input.rows) {
      return undefined;
    }
    const { shard, row: inShard } = spans.locate(row);
    return { shard: shard.uri, row: inShard };
  };
}

/** Returns the context for a comparison: there are no checks, and a span is a turn. */
function comparingContext(job: JobContext): JobContext {
  const { checks: _checks, reuse: _reuse, challenger: _challenger, ...spec } = job.spec;
  const output = { ...spec.output, lineage: false };
  return { ...job, spec: { ...spec, on_bad_row: "reject", max_rejects: "100%", commit_rows: turnRows, output } };
}

/** A model that scores spans, and how long it takes. */
interface TimedModel extends AsyncDisposable {
  readonly plan: Plan;
  /** Scores a span on the path of all rows. Returns the rows with their numbers, without those that cannot be scored. */
  score(index: number): Promise<OutputRows>;
  /** Restarts the measurement. */
  restart(): void;
  /** The time of all batches in all sessions since the last restart. */
  ms(): number;
  speed(): ModelSpeed;
}

interface ComparedInput extends Pick<PlanningInput, "decoder" | "listed"> {
  readonly shards: SeenShards;
  readonly limit: number;
}

/** Opens a model, whose sessions compile its trees first, as in a run of many rows. */
async function openTimed(
  context: JobContext,
  { limit, ...input }: ComparedInput,
  compared: ComparedModel,
  engine: Engine,
): Promise<TimedModel> {
  await engine.local?.opened();
  const runId = runIdOf(context.spec.name, context.spec.params, context.sha256);
  const { plan: whole } = await bindingCompared(compared, () =>
    planRun(context, { ...input, runId, resolved: compared, engine: Promise.resolve(engine) }),
  );
  const contract = { ...whole.contract, numbered: true } as const;
  const plan = { ...whole, contract, input: { ...whole.input, rows: Math.min(whole.input.rows, limit) } };

  const { batch_size: given } = context.spec.engine;
  const standard = engine.provider === "cpu" ? defaultBatchRows.cpu : defaultBatchRows.others;
  const batchRows = contract.fixedBatchRows ?? Math.min(plan.commitRows, given === "auto" ? standard : given);
  let batches: { readonly rows: number; readonly ms: number }[] = [];
  const sizer = { rows: batchRows, took: (rows: number, ms: number) => void batches.push({ rows, ms }) };
  await timeRow(engine, contract); // asks each session for the outputs
  await engine.local?.expect(Number.POSITIVE_INFINITY, 1);
  const spans: OutputRows[] = [];
  const { decoder } = input;
  const scorer = await openUnpublished(context, { plan, engine, decoder, sizer }, (_, { rows }) => {
    spans.push(rows);
  });
  return {
    plan,
    async score(index) {
      await scorer.score([spanAt(plan, index)], 0);
      return spans.pop() as OutputRows;
    },
    restart() {
      batches = [];
    },
    ms: () => batches.reduce((sum, { ms }) => sum + ms, 0),
    speed() {
      // The median batch, which a few delayed ones do not change.
      const perRow = batches.map(({ rows, ms }) => ms / rows).toSorted((left, right) => left - right);
      const msPerRow = perRow[Math.floor(perRow.length / 2)] ?? 0;
      const { name, sha256, sizeBytes } = compared.model;
      const sessions = engine.local?.sessions ?? 1;
      const rowsPerSecond = msPerRow === 0 ? undefined : Math.round((sessions * 1000) / msPerRow);
      return { name, sha256, sizeBytes, provider: engine.provider, batchRows, rowsPerSecond };
    },
    [Symbol.asyncDispose]: () => scorer[Symbol.asyncDispose](),
  };
}

/** Scores all spans with the models in turns. Each model first scores a span that is not measured. */
async function scoreTurns(
  { signal, nowMs }: JobContext,
  models: Readonly<Partial<Record<Side, TimedModel>>>,
  add: (side: Side, rows: OutputRows) => Promise<void>,
): Promise<void> {
  const turns = Object.entries(models) as [Side, TimedModel][];
  const spans = Math.max(...turns.map(([, { plan }]) => spanCount(plan)));
  for (const [, model] of spans === 0 ? [] : turns) {
    await model.score(0);
    model.restart();
  }
  const startedMs = nowMs();
  const isMeasured = (): boolean =>
    nowMs() - startedMs >= repeatedMs || turns.every(([, model]) => model.ms() >= measuredMs);
  for (let round = 0; round < mostRounds && (round === 0 || !isMeasured()); round += 1) {
    for (let index = 0; index < spans; index += 1) {
      // The models take turns at being first, so that neither always has the warmer cache.
      for (const [side, model] of (round + index) % 2 === 0 ? turns : turns.toReversed()) {
        signal.throwIfAborted();
        const rows = await model.score(index);
        if (round === 0) {
          await add(side, rows);
        }
      }
    }
  }
}

/** A model on this machine. */
export interface ComparedModel extends FoundModel {
  readonly model: ModelFile;
  /** Whether an option names it: else it is the model of the spec. */
  readonly isGiven: boolean;
}

/**
 * Binds a model as the spec says. The bindings are those of the spec's own model, and must not be changed for one that an
 * option names.
 * @throws JobError CONTRACT with a hint that says where a model has bindings of its own
 */
async function bindingCompared<T>({ isGiven }: ComparedModel, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (isGiven && error instanceof JobError && error.code === "CONTRACT") {
      throw reworded(error, {
        hint: "compare binds each model by model.inputs and model.outputs of the spec; for a model with other inputs or outputs: name it under challenger, with inputs and outputs of its own, and each run compares the two",
      });
    }
    throw error;
  }
}
