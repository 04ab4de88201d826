import { ofLastRun } from "../../job/chain.js";
import { type CommandLine, collect, toleranceOf, paramAs, jsonFlag, type CommandAnswer } from "../flags.js";
import { stat } from "node:fs/promises";
import { dirname, resolve } from "node:path";
import { openLoaded } from "../../job/open.js";
import { type JobOptions, oneGroup, parquetFolder, readSpec, readSpecOnce } from "../../job/reading.js";
import { type Figures, changesOf } from "../../checks/evaluation.js";
import { findRange, rangeValues, stepOf } from "../../run/series/backfill.js";
import type { Plan } from "../../run/plan/plan.js";
import { figure, modelNames } from "../../report/agreement.js";
import { showCount, count } from "../../base/shown-numbers.js";
import { fitTable } from "../../report/table.js";
import {
  type DiffSide,
  type JudgedModel,
  type EvaluatedNight,
  judgeSide,
  openDiffSide,
  openDiffTable,
} from "../../run/compare.js";
import { hasSameRows, openSecondJob } from "../../run/second-job.js";
import type { LocalParts, StoredTable } from "../../run/lifecycle/span-record.js";
import type { Job, OpenedJob } from "../../flow/opened-job.js";
import type { Sink } from "../../targets/target.js";
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
  readonly json?: boolean;
}

/** Judges the published predictions of one night, or of some, by labels that came later. */
async function evaluate(spec: string, options: EvaluateOptions, io: SafeIo): Promise<CommandAnswer> {
  const log = createWarningLog(io.stderr);
  const nights: EvaluatedNight[] = [];
  for (const { night, load } of await nightsOf(spec, options)) {
    const loaded = load();
    await using opened = await openLoaded(loaded, spec, { log });
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
  const report = { labels: options.labels, label: options.label, threshold: options.threshold, nights };
  return { json: () => evaluationJson(report), text: (width) => evaluationText(report, width) };
}

/** The nights whose params are given: one, or those of a range of dates. */
async function nightsOf(
  spec: string,
  { param }: JobOptions,
): Promise<readonly { readonly night: string; readonly load: () => LoadedSpec }[]> {
  if (!param.some((value) => value.includes(".."))) {
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

/** Judges the predictions of a run, and those of the challenger if they are of the same rows; none: the run has no rows. */
async function judgeNight(
  opened: OpenedJob,
  { dateParam, spec }: LoadedSpec,
  {
    options,
    night,
    plan,
  }: { readonly options: EvaluateOptions; readonly night: string; readonly plan: Plan | undefined },
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
  const request = { key, label, prediction, date, by, threshold, positive };
  // A joiner reads only the folders that it was opened with, so each model has one, which loads the labels.
  const judge = async (side: DiffSide): Promise<Omit<JudgedModel, "model"> | undefined> => {
    const labels = await labelsAt(opened.sink, options.labels, key);
    await using joiner = await opened.queries.openRowJoiner([labels.folder, side.rows.folder]);
    return await judgeSide(joiner, { side, labels: await joiner.load("b", labels) }, request);
  };
  const champion = await judge(await openDiffSide(opened.job, opened.sink, key));
  if (champion === undefined) {
    return [];
  }

  const models = [{ model: modelNames[0] as string, ...champion }];
  if (spec.challenger !== undefined) {
    try {
      await using second = await openSecondJob(opened);
      const side = await openChallenger(second.job, second.sink, { key, plan });
      const challenger = await judge(side);
      if (challenger === undefined) {
        throw new Error(`run ${side.name} has no rows`);
      }
      models.push({ model: modelNames[1], ...challenger });
    } catch (error) {
      opened.attempt.signal.throwIfAborted();
      opened.reporter.log.warn(`${night === "" ? "" : `${night}: `}the challenger is left out: ${messageOf(error)}`);
    }
  }
  return models;
}

/** Opens the predictions of the challenger for the rows of a run. @throws Error if they are of other rows */
async function openChallenger(
  job: Job,
  sink: Sink,
  { key, plan }: { readonly key: readonly string[]; readonly plan: Plan | undefined },
): Promise<DiffSide> {
  const stored = await sink.find(job.base);
  const side = await openDiffSide(job, sink, key);
  if (stored?.plan.runId !== side.name || plan === undefined || !hasSameRows(stored.plan, plan)) {
    throw new Error(`run ${side.name} is of other rows`);
  }
  return side;
}

/** The labels as files: those that are named, or the rows of a table. */
async function labelsAt(sink: Sink, labels: string, key: readonly string[]): Promise<StoredTable | LocalParts> {
  const stats = await stat(labels).catch(() => undefined);
  if (stats?.isDirectory() === true) {
    return (await parquetFolder(labels)).rows;
  }
  if (stats !== undefined) {
    const path = resolve(labels);
    return { folder: dirname(path), isNamed: labels.endsWith(".csv"), groups: oneGroup([path]) };
  }
  if (sink.table === undefined) {
    throw new JobError("FILE_MISSING", `reading labels ${labels}: there is no such file`, {
      hint: "name a .parquet or .csv file, or a folder of Parquet files",
    });
  }
  return (await openDiffTable(sink, labels, key)).rows;
}

interface Report {
  readonly labels: string;
  readonly label: string;
  readonly threshold: number;
  readonly nights: readonly EvaluatedNight[];
}

const called: Readonly<Record<string, string>> = { auc: "AUC", log_loss: "log loss", mae: "MAE", rmse: "RMSE" };

function evaluationText({ labels, label, threshold, nights }: Report, width: number | undefined): string[] {
  const judged = nights.flatMap(({ night, models }) => models.map((model) => ({ night, model })));
  const hasSeveral = nights.some(({ models }) => models.length > 1);
  const nameOf = (model: string): string => (hasSeveral ? model : "");
  const [first] = judged;
  const names = [...new Set(judged.flatMap(({ model }) => Object.keys(model.all.values)))];
  const cells = (figures: Figures): string[] => [
    showCount(figures.rows),
    showCount(figures.labelled),
    showCount(figures.judged),
    ...names.map((name) => figure(figures.values[name] ?? Number.NaN)),
  ];
  const about = ["night", "model", "slice"];
  const head = [...about, "rows", "with labels", "judged", ...names.map((name) => called[name] ?? name)];
  const lines = judged.flatMap(({ night, model }) => [
    [night, nameOf(model.model), "", ...cells(model.all)],
    ...[...model.bySlice].map(([slice, figures]) => [night, nameOf(model.model), slice].concat(cells(figures))),
  ]);
  const used = head.map((_, column) => column >= about.length || lines.some((line) => line[column] !== ""));
  const shown = [head, ...lines].map((line) => line.filter((_, column) => used[column]));
  const texts = used.slice(0, about.length).filter(Boolean).length;
  const right = shown[0]?.map((_, column) => column).slice(texts) ?? [];
  const atThreshold = first?.model.kind === "classes" ? `; precision and recall from ${threshold} on` : "";
  const repeated = judged.find(({ model }) => model.repeated > 0)?.model.repeated ?? 0;
  const last = nights.at(-1);
  return [
    `${first?.model.prediction ?? ""} judged by ${label} in ${labels}${atThreshold}`,
    ...fitTable(shown, { right, width, leaveOut: [] }),
    ...(repeated === 0 ? [] : [`${count(repeated, "key")} with several labels, which count as none`]),
    ...(last?.models ?? []).flatMap((model) =>
      calibrationLines([last?.night ?? "", nameOf(model.model)], model, width),
    ),
    ...changes(nights).map(
      ({ night, model, figure: name, value, low, high }) =>
        `${[night, nameOf(model)].filter(Boolean).join(" ")}: ${called[name] ?? name} is ${figure(value)}, on the nights before ${figure(low)} to ${figure(high)}`,
    ),
  ];
}

function calibrationLines(
  of: readonly string[],
  { all: { calibration } }: JudgedModel,
  width: number | undefined,
): string[] {
  const rows = calibration.map(({ predicted, observed, rows: judged }) => [
    figure(predicted),
    figure(observed),
    showCount(judged),
  ]);
  return rows.length === 0
    ? []
    : [
        ["calibration by decile", ...of].filter(Boolean).join(" "),
        ...fitTable([["mean score", "share of the class", "rows"], ...rows], { right: [0, 1, 2], width }),
      ];
}

function changes(
  nights: readonly EvaluatedNight[],
): (ReturnType<typeof changesOf>[number] & { readonly model: string })[] {
  const models = [...new Set(nights.flatMap((night) => night.models.map(({ model }) => model)))];
  return models.flatMap((model) => {
    const own = nights.flatMap(({ night, models: judged }) =>
      judged.filter((each) => each.model === model).map(({ all: figures }) => ({ night, figures })),
    );
    return changesOf(own).map((change) => Object.assign(change, { model }));
  });
}

function evaluationJson({ labels, label, threshold, nights }: Report): object {
  const judged = nights.map(({ night, models }) => ({ night, models: models.map(modelOf) }));
  return { labels, label, threshold, nights: judged, changed: changes(nights) };
}

function figuresOf({ rows, labelled, judged, values, calibration }: Figures): object {
  return {
    rows,
    rows_labelled: labelled,
    rows_judged: judged,
    ...values, // as JSON, NaN is null
    calibration,
  };
}

function modelOf({ model, kind, prediction, repeated, all, bySlice }: JudgedModel): object {
  return {
    model,
    kind,
    prediction,
    keys_with_several_labels: repeated,
    ...figuresOf(all),
    by: Object.fromEntries([...bySlice].map(([slice, figures]) => [slice, figuresOf(figures)])),
  };
}
