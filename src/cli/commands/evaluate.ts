import { stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { openLoaded } from "../../app/job-context.js";
import { parquetFolder } from "../../app/parquet-folder.js";
import { type JobOptions, readSpec, readSpecOnce } from "../../app/reading/read-spec.js";
import { runIdOf } from "../../plan/identity.js";
import type { Plan } from "../../plan/plan.js";
import { modelNames } from "../../report/agreement/fields.js";
import { findRange, rangeValues, stepOf } from "../../jobs/date-range.js";
import type { LocalParts, StoredTable } from "../../publish/span-record.js";
import { type DiffSide, openDiffSide, openDiffTable } from "../../run/diff.js";
import { hasSameRows, openSecondJob } from "../../run/second-job.js";
import { type JudgedModel, type JudgedNight, judgeSide } from "../../run/evaluate.js";
import type { JobContext } from "../../scoring/context.js";
import type { LoadedSpec } from "../../spec/load.js";
import { JobError, messageOf } from "../../util/errors.js";
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
  for (const { night, load } of await nightsOf(spec, options)) {
    const loaded = load();
    await using job = await openLoaded(loaded, spec, { log });
    const runId = runIdOf(loaded.spec.name, loaded.spec.params, job.sha256);
    const stored = await job.sink.find(runId);
    if (stored === undefined && night !== "") {
      log.warn(`${night} is left out: run ${runId} is not planned`);
      continue;
    }
    const models = await judgeNight(job, loaded, { options, night, plan: stored?.plan });
    if (models.length === 0) {
      log.warn(`${night === "" ? "the night" : night} is left out: run ${stored?.plan.runId ?? runId} has no rows`);
    } else {
      nights.push({ night, models });
    }
  }
  if (nights.length === 0) {
    throw new JobError("USAGE", `evaluating ${spec}: no night has a run with rows`, {
      hint: "infer-batch history lists the runs of the job",
    });
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

interface Night {
  readonly options: EvaluateOptions;
  readonly night: string;
  /** The plan of the run; undefined: there is none. */
  readonly plan: Plan | undefined;
}

/** Judges the predictions of a run, and those of the challenger if they are of the same rows; none: the run has no rows. */
async function judgeNight(
  job: JobContext,
  { dateParam, spec }: LoadedSpec,
  { options, night, plan }: Night,
): Promise<readonly JudgedModel[]> {
  const key = options.key ?? usualKey(spec);
  const { label, prediction, positive, threshold, by } = options;
  const value = dateParam === undefined ? undefined : spec.params[dateParam];
  if (options.date !== undefined && value === undefined) {
    throw new JobError("USAGE", `evaluating by ${options.date}: the spec has no param with the date of a run`, {
      hint: "leave out --date; a label is then that of every run",
    });
  }
  const date = options.date === undefined ? undefined : { column: options.date, value: value ?? "" };
  const orWarn = async <T>(work: () => Promise<T>): Promise<T | undefined> => {
    try {
      return await work();
    } catch (error) {
      job.signal.throwIfAborted();
      job.log.warn(`${night === "" ? "" : `${night}: `}the challenger is left out: ${messageOf(error)}`);
      return undefined;
    }
  };

  const side = await openDiffSide(job, key);
  await using second = spec.challenger === undefined ? undefined : await orWarn(() => openSecondJob(job));
  const challenger = second && (await orWarn(() => openChallenger(second, { key, plan })));
  const labels = await labelsAt(job, options.labels, key);
  // A joiner reads only folders that it was opened with, which those of the next night are not: it loads the labels again.
  const folders = [labels, side.rows, ...(challenger === undefined ? [] : [challenger.rows])].map(
    ({ folder }) => folder,
  );
  await using joiner = await job.openRowJoiner(folders);
  const loaded = await joiner.load("b", labels);
  const request = { key, label, prediction, date, by, threshold, positive };
  const [own, other] = modelNames;
  const champion = await judgeSide(joiner, { side, labels: loaded }, request);
  if (champion === undefined) {
    return [];
  }
  const judged =
    challenger &&
    (await orWarn(async () => {
      const result = await judgeSide(joiner, { side: challenger, labels: loaded }, request);
      if (result === undefined) {
        throw new Error(`run ${challenger.name} has no rows`);
      }
      return result;
    }));
  return [{ model: own, ...champion }, ...(judged === undefined ? [] : [{ model: other, ...judged }])];
}

/** Opens the predictions of the challenger for the rows of a run. @throws Error if they are of other rows */
async function openChallenger(
  job: JobContext,
  { key, plan }: { readonly key: readonly string[]; readonly plan: Plan | undefined },
): Promise<DiffSide> {
  const stored = await job.sink.find(runIdOf(job.spec.name, job.spec.params, job.sha256));
  const side = await openDiffSide(job, key);
  if (stored?.plan.runId !== side.name || plan === undefined || !hasSameRows(stored.plan, plan)) {
    throw new Error(`run ${side.name} is of other rows`);
  }
  return side;
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
