import type { Sink } from "../targets/target.js";
import { count } from "../base/shown-numbers.js";
import { isWhole } from "./attempt.js";
import { type Agreement, comparableKind, matchColumns, type MatchedColumns } from "../checks/agreement.js";
import { partitionsOf } from "./plan/partitions.js";
import type { Plan } from "./plan/plan.js";
import { spanCount } from "./plan/spans.js";
import type { RowColumn, RowJoiner, Job } from "../flow/context.js";
import type { LocalParts, StoredTable } from "./lifecycle/span-record.js";
import { JobError } from "../base/errors.js";
import { findPlanned, openOwn } from "./resume.js";
import type { Evaluated, EvaluationRequest } from "../checks/evaluation.js";

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
