import { type Agreement, type MatchedColumns, matchColumns, comparableKind } from "../checks/agreement.js";
import type { OutputRows } from "../columns/types.js";
import type { FoundModel, ModelFile } from "../models/places/place.js";
import type { Plan } from "./plan/plan.js";
import { spanAt, spanCount, spansOf } from "./plan/spans.js";
import { timeRow } from "../flow/batch-size.js";
import type { RowJoiner, OpenedJob, RowColumn, Job } from "../flow/opened-job.js";
import { JobError, reworded } from "../base/errors.js";
import { wholeInput, type SeenShards, readShards } from "./input.js";
import { type PlanningInput, planRun } from "./planning.js";
import { openUnpublished } from "./score-without-publishing.js";
import { predictedColumns } from "./second-job.js";
import { rowNumberColumn } from "../models/binding/contract.js";
import type { Sink } from "../targets/target.js";
import { count } from "../base/shown-numbers.js";
import { isWhole } from "./attempt.js";
import { partitionsOf } from "./plan/partitions.js";
import type { LocalParts, StoredTable } from "./lifecycle/span-record.js";
import { findPlanned, openOwn } from "./resume.js";
import type { Evaluated, EvaluationRequest } from "../checks/evaluation.js";

/* Two sets of rows: predictions of two models, of two runs or tables, and of a run with its labels. */

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
 * Scores the first rows of the job's input with two models, one after the other, and compares the predictions. Both may not
 * fit into the memory of a GPU, and a process can have only one session on WebGPU.
 */
export async function compareModels(
  opened: OpenedJob,
  joiner: RowJoiner,
  options: CompareOptions,
): Promise<Comparison> {
  const comparing = withoutChecks(opened);
  const { limit, tolerance, one, other } = options;
  const { folders, shards: listed } = await wholeInput(comparing.job, comparing.input);
  await using decoder = await comparing.input.openDecoder(folders);
  const shards = await readShards(comparing, decoder, listed);
  const input = { decoder, shards, listed, limit };
  const a = await scoreModel(comparing, input, one, (rows) => joiner.add("a", rows));
  const b = await scoreModel(comparing, input, other, (rows) => joiner.add("b", rows));

  const { compared, apart } = matchColumns(predictedColumns(a.plan.contract), predictedColumns(b.plan.contract));
  const shown = a.plan.contract.passthrough.map(({ column }) => column);
  const key = [rowNumberColumn.name];
  return {
    input: shards.rows,
    read: Math.min(limit, shards.rows),
    placeOf: placesIn(a.plan),
    apart,
    one: a.speed,
    other: b.speed,
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
  const { name, sha256, sizeBytes } = compared.model;
  const sessions = engine.local?.sessions ?? 1;
  const rowsPerSecond = msPerRow === 0 ? undefined : Math.round((sessions * 1000) / msPerRow);
  return { plan, speed: { name, sha256, sizeBytes, provider: engine.provider, batchRows, rowsPerSecond } };
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
  /** Columns that have the value of a param in all rows, such as the date of the folder; default: none is known. */
  readonly ofRun?: readonly string[];
  /** Columns that the model predicts; default: they are not known. */
  readonly predicted?: readonly string[];
}

/** How two sets of rows differ. A is the one that B is compared with. */
export interface Difference extends Agreement {
  readonly a: string;
  readonly b: string;
  readonly key: readonly string[];
  readonly apart: MatchedColumns["apart"];
}

interface DiffOptions {
  /** Columns that together identify a row. */
  readonly key: readonly string[];
  readonly tolerance: number;
  /** Columns that say nothing about the rows, such as the run that scored them. */
  readonly ignored: readonly string[];
}

/** Compares two sets of rows by key. Writes nothing. @throws JobError USAGE for a key that is not in both */
export async function diffRows(
  joiner: RowJoiner,
  [a, b]: readonly [DiffSide, DiffSide],
  { key, tolerance, ignored }: DiffOptions,
): Promise<Difference> {
  const ofA = columnsOf(a, await joiner.load("a", a.rows), key);
  const ofB = columnsOf(b, await joiner.load("b", b.rows), key);
  refuseTextsAsNumbers([a, b], key);
  const left = new Set([...key, ...ignored]);
  const { compared, apart } = matchColumns(typed(ofA, left), typed(ofB, left));
  const agreement = await joiner.compare({ key, isNumbered: false, columns: compared, shown: key, tolerance });
  return { a: a.name, b: b.name, key, apart, ...agreement };
}

/** The columns of a side, which has all key columns. */
function columnsOf({ name }: DiffSide, columns: readonly RowColumn[], key: readonly string[]): readonly RowColumn[] {
  if (columns.length === 0) {
    throw new JobError("USAGE", `comparing ${name}: it has no rows`);
  }
  const missing = key.find((wanted) => !columns.some((column) => column.name === wanted));
  if (missing !== undefined) {
    throw new JobError("USAGE", `comparing ${name}: it has no column ${missing}`, {
      hint: `name the columns that identify a row with --key; it has ${columns.map((column) => column.name).join(", ")}`,
    });
  }
  return columns;
}

function refuseTextsAsNumbers(sides: readonly [DiffSide, DiffSide], key: readonly string[]): void {
  for (const name of key) {
    const kinds = sides.map(({ rows }) => {
      const column = "columns" in rows ? rows.columns.find((one) => one.name === name) : undefined;
      return column?.hasNumbers === true ? "a number" : column?.type === "utf8" ? "a text" : undefined;
    });
    if (kinds.includes("a number") && kinds.includes("a text")) {
      const found = `key column ${name} is ${kinds.join(" in A and ")} in B: equal numbers may have different texts`;
      throw new JobError("USAGE", `comparing the rows: ${found}`, {
        hint: "compare a table in which it has the same type, or name other columns with --key",
      });
    }
  }
}

type Typed = Parameters<typeof matchColumns>[0];

function typed(columns: readonly RowColumn[], left: ReadonlySet<string>): Typed {
  return columns.flatMap(({ name, type }) => (type === undefined || left.has(name) ? [] : [{ name, type }]));
}

/**
 * Opens the latest run of a job's params for a comparison: a published one, or one whose spans are all committed, such
 * as a held one.
 * @param key the columns that may be its key
 * @throws JobError USAGE for another run, and for one whose rows cannot be told from those of others
 */
export async function openDiffSide(job: Job, sink: Sink, key: readonly string[]): Promise<DiffSide> {
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
  const rows = await run.read(key);
  const predicted = plan.contract.outputs.map(({ column }) => column);
  return { name: plan.runId, rows, ofRun: columnsOfRun(plan), predicted };
}

/** The columns that are copied from folder names in which the spec has a param. */
function columnsOfRun({ contract, params, input: { shards } }: Plan): string[] {
  const values = new Set(Object.values(params));
  const [shard] = shards;
  const folders = shard === undefined ? new Map<string, string>() : partitionsOf(shard.uri);
  return contract.passthrough
    .filter(({ source: { partition, path } }) => partition === true && values.has(folders.get(path[0] ?? "") ?? ""))
    .map(({ column }) => column);
}

/**
 * Opens a table of the job's database for a comparison.
 * @param key its key columns
 * @throws JobError USAGE where the target is no database
 */
export async function openDiffTable(sink: Sink, table: string, key: readonly string[]): Promise<DiffSide> {
  const rows = await sink.table?.read(table, key);
  if (rows === undefined) {
    throw new JobError("USAGE", `comparing table ${table}: the job writes files`, {
      hint: "to compare two folders: infer-batch diff out/new --against out/old --key customer_id",
    });
  }
  return { name: table, rows };
}

/** The predictions of a model for a night, judged. */
export interface JudgedModel extends Evaluated {
  readonly model: string;
  readonly prediction: string;
}

export interface EvaluatedNight {
  /** The date of the night; "": one was asked for. */
  readonly night: string;
  readonly models: readonly JudgedModel[];
}

/**
 * Judges the predictions of a run by the labels that were loaded as B; undefined: the run has no rows.
 * @throws JobError USAGE for columns that are not there
 */
export async function judgeSide(
  joiner: RowJoiner,
  { side, labels }: { readonly side: DiffSide; readonly labels: readonly RowColumn[] },
  request: Omit<EvaluationRequest, "prediction"> & { readonly prediction: string | undefined },
): Promise<Omit<JudgedModel, "model"> | undefined> {
  const columns = await joiner.load("a", side.rows);
  if (columns.length === 0) {
    return undefined;
  }
  const { key, date, by } = request;
  for (const [what, those, needed] of [
    [`run ${side.name}`, columns, key] as const,
    ["the labels", labels, date === undefined ? key : [...key, date.column]] as const,
  ]) {
    const missing = needed.find((name) => !those.some((column) => column.name === name));
    if (missing !== undefined) {
      throw new JobError("USAGE", `evaluating ${side.name}: ${what} have no column ${missing}`, {
        hint: `name the columns that identify a row with --key; there are ${those.map(({ name }) => name).join(", ")}`,
      });
    }
  }
  if (by !== undefined && ![...columns, ...labels].some(({ name }) => name === by)) {
    throw new JobError("USAGE", `evaluating ${side.name}: neither the run nor the labels have column ${by}`);
  }
  const prediction = request.prediction ?? onlyNumbers(side, columns);
  return { prediction, ...(await joiner.evaluate({ ...request, prediction })) };
}

/** The only predicted column with numbers, or the only one. */
function onlyNumbers({ name, predicted = [] }: DiffSide, columns: readonly RowColumn[]): string {
  const numbers = columns.filter(
    (column) =>
      predicted.includes(column.name) &&
      column.type !== undefined &&
      comparableKind(column.type, column.type) === "numbers",
  );
  const [one, ...more] = numbers.length > 0 ? numbers.map((column) => column.name) : predicted;
  if (one === undefined || more.length > 0) {
    throw new JobError("USAGE", `evaluating ${name}: it is not clear which column is judged`, {
      hint: `name one with --prediction: ${predicted.join(", ")}`,
    });
  }
  return one;
}
