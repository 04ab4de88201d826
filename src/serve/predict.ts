import { filterColumn } from "../columns/columns.js";
import type { NamedColumn } from "../columns/types.js";
import type { ServeSpec } from "../job/jobfile/serve-spec.js";
import { fieldsOf, isRecord } from "../base/guards.js";
import { JobError, messageOf } from "../base/errors.js";
import type { Log } from "../flow/opened-job.js";
import { sha256Of } from "../base/sha256.js";
import type { FoundRow } from "../targets/target.js";
import { jsonOf, membersOf } from "../columns/value-text.js";
import { awaitedLater, within } from "../base/promises.js";
import type { Deadline } from "./deadline.js";
import type { ServeMetrics, PredictedBy } from "./metrics.js";
import { RequestError, shownJson } from "./request-error.js";
import { columnOfValues, type JsonRow, valueAtPath } from "./served-columns.js";
import type { LoadedModel, ServedRun } from "./served-run.js";

interface PredictOptions {
  readonly spec: ServeSpec;
  readonly metrics: ServeMetrics;
  readonly log: Log;
  readonly deadline: Deadline;
}

/** The body of `POST /predict`, as it is answered. @throws RequestError */
export async function predict(run: ServedRun, body: unknown, options: PredictOptions): Promise<string> {
  const { metrics, deadline } = options;
  const rows = rowsIn(body, options.spec.max_rows);
  const keys = keysOf(run, rows);
  const known = await lookedUp(run, rows, keys, options);
  const found = known ?? rows.map(() => undefined);
  const missing = [...rows.keys()].filter((row) => found[row] === undefined);
  const scored = await scoreRows(run, rows, missing, deadline).catch((error: unknown) => {
    const lacksColumns = known === undefined && error instanceof RequestError && error.status === 400;
    throw lacksColumns ? new RequestError(503, `rows cannot be looked up now, and ${error.message}`) : error;
  });
  const tried = await tryCanary(run, rows, keys, options);
  const carried = new Set(run.plan.contract.passthrough.map(({ column }) => column));
  const answers = found.map((looked, row) => {
    const ofRun = (looked ?? scored.get(row)) as FoundRow;
    const ofCanary = tried.get(row);
    if (ofCanary !== undefined) {
      compare(metrics, carried, ofCanary, ofRun);
    }
    const source = ofCanary !== undefined ? "canary" : looked === undefined ? "online" : "batch";
    metrics.predicted(source, 1);
    return answerOf(source, ofCanary ?? ofRun);
  });
  return `{"predictions":[${answers.join(",")}]}`;
}

function answerOf(source: PredictedBy, { members, runId, model }: FoundRow): string {
  const about = `"source":"${source}","run_id":${JSON.stringify(runId)},"model":${JSON.stringify(model)}`;
  return `{${members}${members === "" ? "" : ","}${about}}`;
}

/** Has the challenger score the rows whose keys are of its share. What it cannot score stays with the model of the run. */
async function tryCanary(
  { canary }: ServedRun,
  rows: readonly JsonRow[],
  keys: readonly NamedColumn[],
  { spec, log, deadline }: PredictOptions,
): Promise<ReadonlyMap<number, FoundRow>> {
  if (canary === undefined) {
    return new Map();
  }
  const shareOf = (row: number): number => {
    const key = keys.map(({ type, column }) => jsonOf(type, column, row)).join();
    return Number.parseInt(sha256Of(key).slice(0, 8), 16) / 2 ** 32;
  };
  const wanted = [...rows.keys()].filter((row) => shareOf(row) < spec.canary);
  try {
    return await scoreRows(canary, rows, wanted, deadline);
  } catch (error) {
    if (!(error instanceof RequestError)) {
      log.warn(`the challenger fails, and the model of the run answers its keys: ${messageOf(error)}`);
    }
    return new Map();
  }
}

/** Measures how far two predictions of a row are apart, in the columns of numbers that both have. */
function compare(metrics: ServeMetrics, carried: ReadonlySet<string>, challenger: FoundRow, champion: FoundRow): void {
  const besides = JSON.parse(`{${champion.members}}`) as JsonRow;
  for (const [column, value] of Object.entries(JSON.parse(`{${challenger.members}}`) as JsonRow)) {
    const beside = besides[column];
    if (typeof value === "number" && typeof beside === "number" && !carried.has(column)) {
      metrics.compared(column, Math.abs(value - beside));
    }
  }
}

/** The keys of the rows; none without `serve.key`. @throws RequestError 400 */
function keysOf({ rowsByKey }: ServedRun, rows: readonly JsonRow[]): NamedColumn[] {
  return (rowsByKey?.columns ?? []).map(({ name, type, path }) => {
    const values = rows.map((row) => valueAtPath(row, path) ?? null);
    return { name, type, column: columnOfValues({ name, type }, values) };
  });
}

/** A request waits no longer for rows that are looked up, also where others wait before it. */
const lookUpMs = 5000;

/** undefined: where the rows are kept does not answer now. @throws RequestError 400, 503, 504 */
async function lookedUp(
  { rowsByKey }: ServedRun,
  rows: readonly JsonRow[],
  all: readonly NamedColumn[],
  { spec, log, deadline }: PredictOptions,
): Promise<readonly (FoundRow | undefined)[] | undefined> {
  const found: (FoundRow | undefined)[] = rows.map(() => undefined);
  if (rowsByKey === undefined) {
    return found;
  }
  const isNamed = Uint8Array.from(rows, (_, row) => (all.every(({ column }) => column.valid?.[row] !== 0) ? 1 : 0));
  const named = [...rows.keys()].filter((row) => isNamed[row] === 1);
  const keys =
    named.length === rows.length
      ? all
      : all.map((key) => ({ ...key, column: filterColumn(key.type, key.column, isNamed) }));
  if (rowsByKey.waiting > 0 && rowsByKey.waiting + named.length > spec.queue) {
    throw new RequestError(503, `${rowsByKey.waiting} rows wait to be looked up`);
  }
  if (named.length === 0) {
    return found;
  }
  rowsByKey.waiting += named.length;
  const lookingUp = rowsByKey.lookUp(keys, named.length).finally(() => {
    rowsByKey.waiting -= named.length; // also where nobody waits for them any more
  });
  const inTime = within(lookingUp, lookUpMs, () => new Error("no answer in time")).catch((error: unknown) => {
    if (error instanceof JobError && error.code === "USAGE") {
      throw new RequestError(400, error.message);
    }
    log.warn(`looking rows up: ${messageOf(error)}`); // which may name hosts and users
    throw new RequestError(503, "the output cannot be read");
  });
  const rowsOfKeys = await deadline.wait(awaitedLater(inTime));
  if (rowsOfKeys === undefined) {
    return undefined;
  }
  for (const [index, row] of named.entries()) {
    found[row] = rowsOfKeys[index];
  }
  return found;
}

async function scoreRows(
  { batcher, plan: { runId, model } }: LoadedModel,
  rows: readonly JsonRow[],
  wanted: readonly number[],
  deadline: Deadline,
): Promise<ReadonlyMap<number, FoundRow>> {
  if (wanted.length === 0) {
    return new Map();
  }
  const values = wanted.map((row) => rows[row] as JsonRow);
  const { output, at } = await batcher.score({ values, numbers: wanted }, deadline);
  const members = membersOf(output.columns);
  return new Map(wanted.map((row, place) => [row, { members: members(at[place] ?? 0), runId, model: model.sha256 }]));
}

/** @throws RequestError 400, 413 */
function rowsIn(body: unknown, mostRows: number): readonly JsonRow[] {
  const { rows } = fieldsOf(body);
  if (!Array.isArray(rows) || rows.length === 0) {
    throw new RequestError(400, 'expected {"rows": [{…}, …]} with a row at least');
  }
  if (rows.length > mostRows) {
    throw new RequestError(413, `the request has ${rows.length} rows, at most ${mostRows} are taken`);
  }
  const other = rows.findIndex((row) => !isRecord(row) || Array.isArray(row));
  if (other !== -1) {
    throw new RequestError(400, `row ${other} is ${shownJson(rows[other])}, expected an object`);
  }
  return rows as readonly JsonRow[];
}
