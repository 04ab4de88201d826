import {
  type Agreement,
  type JoinRequest,
  comparableKind,
  matchColumns,
  type modelNames,
} from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest } from "../checks/evaluation.js";
import type { TypedColumn } from "../columns/types.js";
import type { RowJoiner, RowColumn, Job } from "../flow/opened-job.js";
import type { Plan } from "./plan/plan.js";
import { spanCount } from "./plan/spans.js";
import { partitionsOf } from "./plan/partitions.js";
import type { LocalParts, StoredTable } from "./lifecycle/span-record.js";
import type { RunSink, Sink } from "../targets/target.js";
import { JobError } from "../base/errors.js";
import { count } from "../base/shown-numbers.js";
import { isWhole } from "./attempt.js";
import { findPlanned, openOwn } from "./resume.js";

/* Two sets of rows: predictions of two models, of two runs or tables, and of a run with its labels. */

/** Compares the rows that a joiner has, in the columns that both sides have. */
export async function compareColumns(
  joiner: RowJoiner,
  [a = [], b = []]: readonly (readonly TypedColumn[])[],
  { names, ...request }: Omit<JoinRequest, "columns"> & { readonly names?: typeof modelNames },
): Promise<Agreement> {
  const { compared, apart } = matchColumns(a, b, names);
  return { ...(await joiner.compare({ ...request, columns: compared })), apart, tolerance: request.tolerance };
}

/** One side of a difference. */
export interface DiffSide {
  readonly name: string;
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
  const typed: TypedColumn[][] = [];
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

/** Judges a run by labels that were loaded as B; undefined: it has no rows. @throws JobError USAGE: no such column */
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
