import { jsonOf } from "../columns/value-text.js";
import type { OutputRows } from "../columns/types.js";
import { rowNumberColumn } from "../models/binding/contract.js";
import type { ServeSpec } from "../job/jobfile/serve-spec.js";
import { RequestError, shownJson } from "./request-error.js";
import { columnsOfRows } from "./served-columns.js";
import type { ServedModel, ServedRun } from "./served-run.js";
import type { ServeMetrics, Source } from "./metrics.js";

type Row = Readonly<Record<string, unknown>>;

/** The body of `POST /predict`, as it is answered. @throws RequestError */
export async function predict(
  run: ServedRun,
  body: unknown,
  {
    spec,
    metrics,
    deadlineMs,
  }: { readonly spec: ServeSpec; readonly metrics: ServeMetrics; readonly deadlineMs: number },
): Promise<string> {
  const rows = rowsIn(body, spec.max_rows);
  const answers = rows.map(() => "");
  const answer = (
    index: number,
    members: string,
    source: Source,
    { runId, model }: { runId: string; model: string },
  ): void => {
    const about = `"source":${JSON.stringify(source)},"run_id":${JSON.stringify(runId)},"model":${JSON.stringify(model)}`;
    answers[index] = `{${members}${members === "" ? "" : ","}${about}}`;
    metrics.predicted(source, 1);
  };
  const all = Array.from(rows.keys());
  const scored = await scoreRows(
    run,
    all.map((index) => rows[index] as Row),
    deadlineMs,
  );
  for (const [place, index] of all.entries()) {
    answer(index, scored(place), "online", { runId: run.plan.runId, model: run.plan.model.sha256 });
  }
  return `{"predictions":[${answers.join(",")}]}`;
}

/** Returns the members of the JSON of each row that is scored. */
async function scoreRows(
  { scorer, batcher }: ServedModel,
  rows: readonly Row[],
  deadlineMs: number,
): Promise<(row: number) => string> {
  const { output, at } = await batcher.score(columnsOfRows(scorer.columns, rows), rows.length, deadlineMs);
  const members = membersOf(output);
  return (row) => members(at[row] as number);
}

/** Returns what writes a row of an output as members of a JSON object. */
function membersOf({ columns }: OutputRows): (row: number) => string {
  const shown = columns.filter(({ name }) => name !== rowNumberColumn.name);
  const keys = shown.map(({ name }) => JSON.stringify(name));
  return (row) => shown.map(({ type, column }, index) => `${keys[index]}:${jsonOf(type, column, row)}`).join(",");
}

/** @throws RequestError 400, 413 */
function rowsIn(body: unknown, mostRows: number): readonly Row[] {
  const rows = isObject(body) ? body["rows"] : undefined;
  if (!Array.isArray(rows) || rows.length === 0) {
    throw new RequestError(400, 'expected {"rows": [{…}, …]} with a row at least');
  }
  if (rows.length > mostRows) {
    throw new RequestError(413, `the request has ${rows.length} rows, at most ${mostRows} are taken`);
  }
  const other = rows.findIndex((row) => !isObject(row));
  if (other !== -1) {
    throw new RequestError(400, `row ${other} is ${shownJson(rows[other])}, expected an object`);
  }
  return rows as readonly Row[];
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
