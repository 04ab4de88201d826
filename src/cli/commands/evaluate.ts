import { stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { openLoaded } from "../../app/job-context.js";
import { parquetFolder } from "../../app/parquet-folder.js";
import { type JobOptions, readSpec, readSpecOnce } from "../../app/reading/read-spec.js";
import { modelNames } from "../../report/agreement/fields.js";
import { findRange, rangeValues, stepOf } from "../../jobs/date-range.js";
import type { StoredTable, LocalParts } from "../../publish/published-files.js";
import { type DiffSide, openDiffSide, openDiffTable } from "../../run/diff.js";
import { openSecondJob } from "../../run/second-job.js";
import { judgeSide, type JudgedModel, type JudgedNight } from "../../run/evaluate.js";
import type { JobContext } from "../../scoring/context.js";
import type { LoadedSpec } from "../../spec/load.js";
import { JobError } from "../../util/errors.js";
import { type SafeIo, terminalWidth } from "../io.js";
import { createWarningLog } from "../logger.js";
import { evaluationJson, evaluationText } from "../texts/evaluate-text.js";
import { usualKey } from "../../spec/usual-key.js";

export interface EvaluateOptions extends JobOptions {
  readonly labels: string;
  readonly label: string;
  readonly key?: readonly string[];
  readonly date?: string;
  readonly prediction?: string;
  readonly positive?: string;
  readonly threshold: number;
  readonly by?: string;
  readonly json?: boolean;
}

/** Judges the published predictions of one night, or of some, by labels that came later. */
export async function evaluateCommand(spec: string, options: EvaluateOptions, io: SafeIo): Promise<void> {
  const log = createWarningLog(io.stderr);
  const nights: JudgedNight[] = [];
  let failure: unknown;
  for (const { night, load } of await nightsOf(spec, options)) {
    await using job = await openLoaded(load(), spec, { log });
    try {
      nights.push({ night, models: await judgeNight(job, load(), options) });
    } catch (error) {
      if (night === "" || !(error instanceof JobError) || error.code !== "USAGE") {
        throw error;
      }
      failure = error;
      log.warn(`${night} is left out: ${error.message}`); // in a range of dates some may have no run
    }
  }
  if (nights.length === 0) {
    throw failure;
  }
  const report = { labels: options.labels, label: options.label, threshold: options.threshold, nights };
  io.stdout.write(options.json === true ? evaluationJson(report) : evaluationText(report, terminalWidth(io.stdout)));
}

/** The nights whose params are given: one, or those of a range of dates. */
async function nightsOf(
  spec: string,
  { param }: JobOptions,
): Promise<readonly { readonly night: string; readonly load: () => LoadedSpec }[]> {
  if (!param.some((value) => value.includes(".."))) {
    const loaded = await readSpec(spec, { param });
    return [{ night: "", load: () => loaded }];
  }
  const { range, others } = findRange(param);
  const load = await readSpecOnce(spec, { param: others });
  return rangeValues(range, stepOf(range, undefined)).map(({ text, params }) => ({
    night: text,
    load: () => load(params),
  }));
}

async function judgeNight(
  job: JobContext,
  { dateParam, spec }: LoadedSpec,
  options: EvaluateOptions,
): Promise<JudgedModel[]> {
  const key = options.key ?? usualKey(spec);
  const { label, prediction, positive, threshold, by } = options;
  const value = dateParam === undefined ? undefined : spec.params[dateParam];
  if (options.date !== undefined && value === undefined) {
    throw new JobError("USAGE", `evaluating by ${options.date}: the spec has no param with the date of a run`, {
      hint: "leave out --date; a label is then that of every run",
    });
  }
  const date = options.date === undefined ? undefined : { column: options.date, value: value ?? "" };
  const judged: JudgedModel[] = [];
  for await (const { model, side } of sidesOf(job, key)) {
    const labels = await labelsAt(job, options.labels, key);
    await using joiner = await job.openRowJoiner([labels.folder, side.rows.folder]);
    const request = { key, label, prediction, date, by, threshold, positive };
    judged.push({ model, ...(await judgeSide(joiner, { side, labels }, request)) });
  }
  return judged;
}

/** The predictions of the run, and those of its second model where they are whole. */
async function* sidesOf(
  job: JobContext,
  key: readonly string[],
): AsyncGenerator<{ readonly model: string; readonly side: DiffSide }> {
  yield { model: modelNames[0], side: await openDiffSide(job, key) };
  await using second = await openSecondJob(job);
  const side = second && (await wholeOrUndefined(second, key));
  if (side !== undefined) {
    yield { model: modelNames[1], side };
  }
}

async function wholeOrUndefined(job: JobContext, key: readonly string[]): Promise<DiffSide | undefined> {
  try {
    return await openDiffSide(job, key);
  } catch (error) {
    if (error instanceof JobError && error.code === "USAGE") {
      return undefined;
    }
    throw error;
  }
}

/** The labels as files: those that are named, or the rows of a table. */
async function labelsAt(job: JobContext, labels: string, key: readonly string[]): Promise<StoredTable | LocalParts> {
  const found = await stat(labels).catch(() => undefined);
  if (found?.isDirectory() === true) {
    return (await parquetFolder(labels)).rows;
  }
  if (found !== undefined) {
    const path = resolve(labels);
    return { folder: dirname(path), isNamed: labels.endsWith(".csv"), groups: groupOf(path) };
  }
  if (job.sink.table === undefined) {
    throw new JobError("FILE_MISSING", `reading labels ${labels}: there is no such file`, {
      hint: "name a .parquet or .csv file, or a folder of Parquet files",
    });
  }
  return (await openDiffTable(job, labels, key)).rows;
}

async function* groupOf(path: string): AsyncGenerator<readonly string[]> {
  yield await Promise.resolve([path]);
}
