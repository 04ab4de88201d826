import {
  type Agreement,
  type JoinRequest,
  comparableKind,
  matchColumns,
  type modelNames,
} from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest } from "../checks/evaluation.js";
import type { ColumnType, OutputRows } from "../columns/types.js";
import type { FoundModel, ModelFile } from "../models/places/place.js";
import type { Plan } from "./plan/plan.js";
import { spanAt, spanCount, spansOf } from "./plan/spans.js";
import { timeRow } from "../flow/batch-size.js";
import type { RowJoiner, OpenedJob, RowColumn, Job } from "../flow/opened-job.js";
import { JobError, reworded } from "../base/errors.js";
import { wholeInput, type SeenShards, readShards } from "./input.js";
import { type PlanningInput, planRun } from "./planning.js";
import { openUnpublished } from "./score-without-publishing.js";
import { predictedColumns, rowNumberColumn } from "../models/binding/contract.js";
import type { RunSink, Sink } from "../targets/target.js";
import { count } from "../base/shown-numbers.js";
import { isWhole } from "./attempt.js";
import { partitionsOf } from "./plan/partitions.js";
import type { LocalParts, StoredTable } from "./lifecycle/span-record.js";
import { findPlanned, openOwn } from "./resume.js";

/* Two sets of rows: predictions of two models, of two runs or tables, and of a run with its labels. */

type Columns = readonly { readonly name: string; readonly type: ColumnType }[];

/** Compares the rows that a joiner has, in the columns that both sides have. */
export async function compareColumns(
  joiner: RowJoiner,
  [a = [], b = []]: readonly Columns[],
  { names, ...request }: Omit<JoinRequest, "columns"> & { readonly names?: typeof modelNames },
): Promise<Agreement> {
  const { compared, apart } = matchColumns(a, b, names);
  const found = await joiner.compare({ ...request, columns: compared });
  return { ...found, apart, tolerance: request.tolerance };
}

/** The comparison of two models on the same rows; what JSON has is under its names. */
export interface Comparison extends Agreement {
  /** The number of rows of the input, and of its first rows, which were read. */
  readonly rows_input: number;
  readonly rows_read: number;
  readonly a: ModelSpeed;
  readonly b: ModelSpeed;
  /** Where a row of the run is. */
  readonly placeOf: (row: number) => { readonly shard: string; readonly row: number };
}

export interface ModelSpeed {
  /** The model as messages name it. */
  readonly model: string;
  readonly sha256: string;
  readonly size_bytes: number;
  readonly provider: string;
  readonly batch_rows: number;
  /** The speed of all sessions together, from the median time of a batch inside the model; null: no batch was scored. */
  readonly rows_per_second: number | null;
}

/** Rows of a span: so many are scored at once. */
const spanRows = 16_384;
/** The time inside each model to measure. A small input is scored several times, until this time is reached. */
const measuredMs = 300;
const mostRounds = 20;
/** The time after which no further round begins. */
const repeatedMs = 2000;
/** The number of rows of a batch if the spec has no batch size. */
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

/** The job as two models are compared: nothing is checked, and each row that cannot be scored is rejected. */
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

/** Scores all rows on the path of a run, and measures that. Takes the rows with their numbers, without those that cannot be scored. */
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
  const { plan: whole } = await bindingCompared(compared, () =>
    planRun(opened, { ...input, runId: job.base, resolved: compared, engine: Promise.resolve(engine) }),
  );
  const contract = { ...whole.contract, numbered: true } as const;
  const plan = { ...whole, contract, input: { ...whole.input, rows: Math.min(whole.input.rows, limit) } };

  const { batch_size: given } = job.spec.engine;
  const standard = engine.provider === "cpu" ? defaultBatchRows.cpu : defaultBatchRows.others;
  const batchRows = contract.fixedBatchRows ?? Math.min(plan.commitRows, given === "auto" ? standard : given);
  let batches: { readonly rows: number; readonly ms: number }[] = [];
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
  batches = all.length > 1 ? batches.slice(Math.ceil(spanRows / batchRows)) : []; // the first span is slower
  const startedMs = nowMs();
  const isMeasured = (): boolean =>
    nowMs() - startedMs >= repeatedMs || batches.reduce((sum, { ms }) => sum + ms, 0) >= measuredMs;
  for (let round = 1; round < mostRounds && !isMeasured(); round += 1) {
    for (const index of all) {
      await score(index);
    }
  }

  // The median batch, which a few delayed ones do not change.
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

/** One side of a difference. */
export interface DiffSide {
  /** How reports name it. */
  readonly name: string;
  /** A table with its columns, or Parquet files. */
  readonly rows: StoredTable | LocalParts;
  /** The plan of the run; absent: they are of no run. */
  readonly plan?: Plan;
}

export interface DiffOptions extends Pick<JoinRequest, "key" | "tolerance"> {
  /** Columns that say nothing about the rows, such as the run that scored them. */
  readonly ignored: readonly string[];
}

/** Compares two sets of rows by key. Writes nothing. @throws JobError USAGE for a key that is not in both */
export async function diffRows(
  joiner: RowJoiner,
  [a, b]: readonly [DiffSide, DiffSide],
  { key, tolerance, ignored }: DiffOptions,
): Promise<Agreement> {
  const left = new Set([...key, ...ignored]);
  const typed: Columns[] = [];
  for (const [side, { name, rows }] of [["a", a] as const, ["b", b] as const]) {
    const columns = await joiner.load(side, rows);
    if (columns.length === 0) {
      throw new JobError("USAGE", `comparing ${name}: it has no rows`);
    }
    requireColumns(`comparing ${name}: it has`, columns, key);
    typed.push(
      columns.flatMap((column) =>
        column.type === undefined || left.has(column.name) ? [] : [{ name: column.name, type: column.type }],
      ),
    );
  }
  return await compareColumns(joiner, typed, { key, shown: key, tolerance });
}

/**
 * Opens a table of the job's database for a comparison; without a name, the latest run of the job's params: a published one,
 * or one whose spans are all committed, such as a held one.
 * @param key the columns that may be its key
 * @throws JobError USAGE where the target is no database, for another run, and for one whose rows cannot be told from those
 *   of others
 */
export async function openDiffSide(
  { job, sink }: { readonly job: Job; readonly sink: Sink },
  key: readonly string[],
  table?: string,
): Promise<DiffSide> {
  if (table !== undefined) {
    const rows = await sink.table?.read(table, key);
    if (rows === undefined) {
      throw new JobError("USAGE", `comparing table ${table}: the job writes files`, {
        hint: "to compare two folders: infer-batch diff out/new --against out/old --key customer_id",
      });
    }
    return { name: table, rows };
  }
  const stored = await findPlanned(job, sink, "comparing");
  const { plan } = stored;
  const run = await openOwn(job, sink, stored);
  const { kind } = run.state;
  if (kind === "discarded" || kind === "superseded" || !isWhole(run)) {
    const committed = `${run.spans.size} of ${count(spanCount(plan), "span")} are committed`;
    const found = isWhole(run) ? `it is ${kind}` : committed;
    const hint = "only a run with all of its rows can be compared";
    throw new JobError("USAGE", `comparing run ${plan.runId}: ${found}`, { hint });
  }
  return await sideOf(run, key);
}

/** The rows of a run as a side. @param key the columns that may be its key */
export async function sideOf(run: RunSink, key: readonly string[]): Promise<DiffSide> {
  return { name: run.plan.runId, rows: await run.read(key), plan: run.plan };
}

/** The columns that are copied from folder names in which the spec has a param, such as a date. */
export function columnsOfRun({ plan }: DiffSide): string[] {
  const values = new Set(Object.values(plan?.params ?? {}));
  const folders = partitionsOf(plan?.input.shards[0]?.uri ?? "");
  return (plan?.contract.passthrough ?? [])
    .filter(({ source: { partition, path } }) => partition === true && values.has(folders.get(path[0] ?? "") ?? ""))
    .map(({ column }) => column);
}

/**
 * Judges the predictions of a run by the labels that were loaded as B; undefined: the run has no rows.
 * @throws JobError USAGE for columns that are not there
 */
export async function judgeSide(
  joiner: RowJoiner,
  { side, labels }: { readonly side: DiffSide; readonly labels: readonly RowColumn[] },
  request: Omit<EvaluationRequest, "prediction"> & { readonly prediction?: string | undefined },
): Promise<Evaluated | undefined> {
  const columns = await joiner.load("a", side.rows);
  if (columns.length === 0) {
    return undefined;
  }
  const { key, date, by } = request;
  requireColumns(`evaluating ${side.name}: the run has`, columns, key);
  requireColumns(`evaluating ${side.name}: the labels have`, labels, date === undefined ? key : [...key, date.column]);
  if (by !== undefined && ![...columns, ...labels].some(({ name }) => name === by)) {
    throw new JobError("USAGE", `evaluating ${side.name}: neither the run nor the labels have column ${by}`);
  }
  return await joiner.evaluate({ ...request, prediction: request.prediction ?? onlyNumbers(side, columns) });
}

/** The only predicted column with numbers, or the only one. */
function onlyNumbers({ name, plan }: DiffSide, columns: readonly RowColumn[]): string {
  const predicted = plan?.contract.outputs.map(({ column }) => column) ?? [];
  const numbers = columns.flatMap(({ name: column, type }) =>
    predicted.includes(column) && type !== undefined && comparableKind(type, type) === "numbers" ? [column] : [],
  );
  const [one, ...more] = numbers.length > 0 ? numbers : predicted;
  if (one === undefined || more.length > 0) {
    throw new JobError("USAGE", `evaluating ${name}: it is not clear which column is judged`, {
      hint: `name one with --prediction: ${predicted.join(", ")}`,
    });
  }
  return one;
}

function requireColumns(act: string, columns: readonly RowColumn[], wanted: readonly string[]): void {
  const missing = wanted.find((name) => !columns.some((column) => column.name === name));
  if (missing !== undefined) {
    throw new JobError("USAGE", `${act} no column ${missing}`, {
      hint: `name the columns that identify a row with --key; there are ${columns.map(({ name }) => name).join(", ")}`,
    });
  }
}
