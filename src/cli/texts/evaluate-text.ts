import { changesOf, type Figures } from "../../checks/evaluation.js";
import { figure } from "../../report/agreement/tables.js";
import { count, showCount } from "../../report/report.js";
import { fitTable } from "../../report/table.js";
import type { JudgedModel, JudgedNight } from "../../run/diff.js";

interface Report {
  readonly labels: string;
  readonly label: string;
  readonly threshold: number;
  readonly nights: readonly JudgedNight[];
}

const called: Readonly<Record<string, string>> = { auc: "AUC", log_loss: "log loss", mae: "MAE", rmse: "RMSE" };

/** Shows how right the predictions were, a line for each night, model and slice, and what changed. */
export function evaluationText({ labels, label, threshold, nights }: Report, width: number | undefined): string {
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
    "",
  ].join("\n");
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
  nights: readonly JudgedNight[],
): (ReturnType<typeof changesOf>[number] & { readonly model: string })[] {
  const models = [...new Set(nights.flatMap((night) => night.models.map(({ model }) => model)))];
  return models.flatMap((model) => {
    const own = nights.flatMap(({ night, models: judged }) =>
      judged.filter((one) => one.model === model).map(({ all: figures }) => ({ night, figures })),
    );
    return changesOf(own).map((change) => Object.assign(change, { model }));
  });
}

/** Shows the same as one line of JSON; figures that cannot be computed are null. */
export function evaluationJson({ labels, label, threshold, nights }: Report): string {
  const judged = nights.map(({ night, models }) => ({ night, models: models.map(modelOf) }));
  return `${JSON.stringify({ labels, label, threshold, nights: judged, changed: changes(nights) })}\n`;
}

function figuresOf({ rows, labelled, judged, values, calibration }: Figures): object {
  return {
    rows,
    rows_labelled: labelled,
    rows_judged: judged,
    ...Object.fromEntries(Object.entries(values).map(([name, value]) => [name, Number.isFinite(value) ? value : null])),
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
