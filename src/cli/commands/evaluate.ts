import { ofLastRun } from "../../job/chain.js";
import { type CommandLine, collect, toleranceOf, paramAs, jsonFlag, type CommandAnswer } from "../flags.js";
import { stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { openLoaded } from "../../job/open.js";
import { type JobOptions, oneGroup, parquetFolder, readSpec, readSpecOnce } from "../../job/reading.js";
import { writeReport } from "../../job/reporting.js";
import type { EvaluatedNight } from "../../checks/evaluation.js";
import { findRange, hasRange, rangeValues, stepOf } from "../../run/series/backfill.js";
import type { Plan } from "../../run/plan/plan.js";
import { modelNames } from "../../checks/agreement.js";
import { evaluationJson, evaluationMetrics, evaluationText, showEvaluation } from "../../report/evaluation.js";
import { judgeSide, openDiffSide, sideOf } from "../../run/two-sets.js";
import { openSecondJob, openSecondRun } from "../../run/second-job.js";
import type { LocalParts, StoredTable } from "../../run/lifecycle/span-record.js";
import type { OpenedJob } from "../../flow/opened-job.js";
import type { LoadedSpec } from "../../job/jobfile/load.js";
import { usualKey } from "../../job/jobfile/job-spec.js";
import { JobError, messageOf } from "../../base/errors.js";
import type { SafeIo } from "../io.js";
import { createWarningLog } from "../logger.js";

export const evaluateCommand: CommandLine = {
  flags: {
    "--labels <file>":
      "The labels: a .parquet or .csv file, a folder of Parquet files, or a table of the spec's database, such as crm.churn",
    "--label <column>": "Column of the labels",
    "--key <column>": [
      "Column that identifies a row, in the labels and in the predictions; may be repeated. Default: as in diff",
      collect,
    ],
    "--date <column>": "Column of the labels that has the date of the run. Default: a label is that of every night",
    "--prediction <column>": "Predicted column that is judged. Default: the only one that has numbers",
    "--positive <label>": "Label of the class whose probability is predicted. Default: 1 or true",
    "--threshold <score>": ["Score from which on a row counts as of the class", toleranceOf, 0.5],
    "--by <column>": "Judge the rows of each value of this column, too",
    ...paramAs("Set a param of the spec; may be repeated. One may be a range of dates: ds=2026-01-01..2026-01-31"),
    "--html <file>": "Write an HTML page with the result, too",
    "--metrics <file>": "Write the figures of the last night with labels as gauges in Prometheus' text format, too",
    ...jsonFlag,
  },
  required: ["labels", "label"],
  examples: [
    "infer-batch evaluate job.yaml --labels churn.parquet --key customer_id --label churned --param ds=2026-01-01..2026-01-31",
    "infer-batch evaluate job.yaml --labels crm.churn --label churned --date ds --by region --json",
  ],
  run: evaluate,
};

interface EvaluateOptions extends JobOptions {
  readonly labels: string;
  readonly label: string;
  readonly key?: readonly string[];
  readonly date?: string;
  readonly prediction?: string;
  readonly positive?: string;
  readonly threshold: number;
  readonly by?: string;
  readonly html?: string;
  readonly metrics?: string;
  readonly json?: boolean;
}

async function evaluate(spec: string, options: EvaluateOptions, io: SafeIo): Promise<CommandAnswer> {
  const log = createWarningLog(io.stderr);
  const nights: EvaluatedNight[] = [];
  let job = "";
  for (const { night, load } of await nightsOf(spec, options)) {
    const loaded = load();
    await using opened = await openLoaded(loaded, spec, { log });
    job = loaded.spec.name;
    const { base: runId } = opened.job;
    const stored = await opened.sink.find(runId);
    if (stored === undefined && night !== "") {
      log.warn(`${night} is left out: run ${runId} is not planned`);
      continue;
    }
    const models = await judgeNight(opened, loaded, { options, night, plan: stored?.plan });
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

  const { labels, label, threshold, html, metrics } = options;
  const evaluation = { labels, label, threshold, nights };
  const page = async (): Promise<string> =>
    (await import("../../report/page/page.js")).evaluationPage(showEvaluation(evaluation), job);
  for (const [path, text] of [[html, page] as const, [metrics, () => evaluationMetrics(evaluation, job)] as const]) {
    const failed = path === undefined ? undefined : await writeReport(resolve(path), await text());
    if (failed !== undefined) {
      log.warn(`writing ${path}: ${failed}`);
    }
  }
  return { json: () => evaluationJson(evaluation), text: (width) => evaluationText(evaluation, width) };
}

async function nightsOf(
  spec: string,
  { param }: JobOptions,
): Promise<readonly { readonly night: string; readonly load: () => LoadedSpec }[]> {
  if (!hasRange(param)) {
    const loaded = await ofLastRun(await readSpec(spec, { param }), spec);
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
  /** undefined: the run is not planned. */
  readonly plan: Plan | undefined;
}

/** The challenger's, too, if they are of the same rows; none: the run has no rows. */
async function judgeNight(
  opened: OpenedJob,
  { dateParam, spec }: LoadedSpec,
  { options, night, plan }: Night,
): Promise<EvaluatedNight["models"]> {
  const { key = usualKey(spec), date: column } = options;
  const value = dateParam === undefined ? undefined : spec.params[dateParam];
  if (column !== undefined && value === undefined) {
    throw new JobError("USAGE", `evaluating by ${column}: the spec has no param with the date of a run`, {
      hint: "leave out --date; a label is then that of every run",
    });
  }
  const request = { ...options, key, date: column === undefined ? undefined : { column, value: value ?? "" } };
  const models: EvaluatedNight["models"][number][] = [];
  // A joiner reads only the folders that it was opened with, so each model has one, which loads the labels.
  const judge = async (model: string, side: Awaited<ReturnType<typeof sideOf>>): Promise<void> => {
    const labels = await labelsAt(opened, options.labels, key);
    await using joiner = await opened.queries.openRowJoiner([labels.folder, side.rows.folder]);
    const judged = await judgeSide(joiner, { side, labels: await joiner.load("b", labels) }, request);
    models.push(...(judged === undefined ? [] : [{ model, ...judged }]));
  };
  await judge(modelNames[0], await openDiffSide(opened, key));
  if (spec.challenger !== undefined && plan !== undefined && models.length > 0) {
    try {
      await using second = await openSecondJob(opened);
      await judge(modelNames[1], await sideOf(await openSecondRun(second, plan), key));
    } catch (error) {
      opened.attempt.signal.throwIfAborted();
      opened.reporter.log.warn(`${night === "" ? "" : `${night}: `}the challenger is left out: ${messageOf(error)}`);
    }
  }
  return models;
}

async function labelsAt(opened: OpenedJob, labels: string, key: readonly string[]): Promise<StoredTable | LocalParts> {
  const stats = await stat(labels).catch(() => undefined);
  if (stats?.isDirectory() === true) {
    return (await parquetFolder(labels)).rows;
  }
  if (stats !== undefined) {
    const path = resolve(labels);
    return { folder: dirname(path), isNamed: labels.endsWith(".csv"), groups: oneGroup([path]) };
  }
  if (opened.sink.table === undefined) {
    throw new JobError("FILE_MISSING", `reading labels ${labels}: there is no such file`, {
      hint: "name a .parquet or .csv file, or a folder of Parquet files",
    });
  }
  return (await openDiffSide(opened, key, labels)).rows;
}
