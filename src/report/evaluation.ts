import { type EvaluatedNight, type Figures, changesOf } from "../checks/evaluation.js";
import { count, showCount } from "../base/shown-numbers.js";
import { figure } from "./agreement.js";
import { metricText } from "./metrics.js";
import { fitTable } from "./table.js";

/** Predictions judged by labels, night by night. */
export interface Evaluation {
  readonly labels: string;
  readonly label: string;
  readonly threshold: number;
  readonly nights: readonly EvaluatedNight[];
}

const called: Readonly<Record<string, string>> = { auc: "AUC", log_loss: "log loss", mae: "MAE", rmse: "RMSE" };

/** An evaluation for the terminal and for a page: tables, and notes below them. */
export interface ShownEvaluation {
  readonly tables: readonly {
    readonly title: string;
    /** How many columns are texts: the first ones. The others are numbers. */
    readonly textColumns: number;
    readonly rows: readonly string[][];
  }[];
  readonly notes: readonly string[];
}

export function showEvaluation({ labels, label, threshold, nights }: Evaluation): ShownEvaluation {
  const judged = nights.flatMap(({ night, models }) => models.map((model) => Object.assign({ night }, model)));
  const nameOf = (model: string): string => (judged.some((each) => each.model !== model) ? model : "");
  const names = [...new Set(judged.flatMap(({ all }) => Object.keys(all.values)))];
  const cells = ({ rows, rows_labelled: labelled, rows_judged: both, values }: Figures): string[] => [
    ...[rows, labelled, both].map(showCount),
    ...names.map((name) => figure(values[name] ?? Number.NaN)),
  ];
  const lines = judged.flatMap(({ night, model, all, by }) =>
    [["", all] as const, ...by].map(([slice, figures]) => [night, nameOf(model), slice].concat(cells(figures))),
  );
  const head = [
    "night",
    "model",
    "slice",
    "rows",
    "with labels",
    "judged",
    ...names.map((name) => called[name] ?? name),
  ];
  const used = head.map((_, column) => column > 2 || lines.some((line) => line[column] !== ""));
  const from = judged[0]?.kind === "classes" ? `; precision and recall from ${threshold} on` : "";
  const figures = {
    title: `${judged[0]?.prediction} judged by ${label} in ${labels}${from}`,
    textColumns: used.slice(0, 3).filter(Boolean).length,
    rows: [head, ...lines].map((line) => line.filter((_, column) => used[column])),
  };

  const last = nights.at(-1);
  const calibration = (last?.models ?? []).flatMap(({ model, all }) => {
    const bins = all.calibration.map((bin) => [figure(bin.predicted), figure(bin.observed), showCount(bin.rows)]);
    const title = ["calibration by decile", last?.night, nameOf(model)].filter(Boolean).join(" ");
    return bins.length === 0
      ? []
      : [{ title, textColumns: 0, rows: [["mean score", "share of the class", "rows"], ...bins] }];
  });

  const repeated = Math.max(...judged.map((model) => model.keys_with_several_labels));
  const changes = changesOf(nights).map(({ night, model, figure: name, value, low, high }) => {
    const of = [night, nameOf(model)].filter(Boolean).join(" ");
    return `${of}: ${called[name] ?? name} is ${figure(value)}, on the nights before ${figure(low)} to ${figure(high)}`;
  });
  return {
    tables: [figures, ...calibration],
    notes: [
      ...(repeated > 0 ? [`${count(repeated, "key")} with several labels, which count as none`] : []),
      ...changes,
    ],
  };
}

export function evaluationText(evaluation: Evaluation, width: number | undefined): string[] {
  const { tables, notes } = showEvaluation(evaluation);
  const lines = tables.flatMap(({ title, textColumns, rows }) => {
    const right = rows[0]?.map((_, column) => column).slice(textColumns) ?? [];
    return [title].concat(fitTable(rows, { right, width }));
  });
  return [...lines, ...notes];
}

/** As JSON, NaN is null. */
function flat({ values, ...rest }: Figures): object {
  return { ...rest, ...values };
}

export function evaluationJson({ nights, ...about }: Evaluation): object {
  const judged = nights.map(({ night, models }) => ({
    night,
    models: models.map(({ all, by, ...rest }) => ({
      ...rest,
      ...flat(all),
      by: Object.fromEntries(by.map(([slice, figures]) => [slice, flat(figures)])),
    })),
  }));
  return { ...about, nights: judged, changed: changesOf(nights) };
}

/** The last night that has labels, as gauges in Prometheus' text format. */
export function evaluationMetrics({ nights }: Evaluation, job: string): string {
  const last = nights.findLast(({ models }) => models.some(({ all }) => all.rows_judged > 0));
  const samples = (last?.models ?? []).flatMap(({ model, all, by }) =>
    [["", all] as const, ...by].flatMap(([slice, { values, calibration: _calibration, ...rows }]) =>
      Object.entries({ ...rows, ...values }).map(([name, value]) => ({
        labels: { model, slice, figure: name },
        value: Number.isFinite(value) ? value : undefined,
      })),
    ),
  );
  const help = "How right the predictions of the last night with labels are, by model, slice and figure";
  const about = [{ labels: { night: last?.night ?? "" }, value: 1 }];
  return [
    { name: "infer_batch_evaluation_info", help: "1; its label is the last night with labels", samples: about },
    { name: "infer_batch_evaluation", help, samples },
  ]
    .map((gauge) => metricText(gauge, { batch_job: job }))
    .join("");
}
