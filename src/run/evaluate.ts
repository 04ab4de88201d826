import { comparableKind } from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest } from "../checks/evaluation.js";
import { JobError } from "../util/errors.js";
import type { RowJoiner } from "../scoring/context.js";
import type { DiffSide } from "./diff.js";

/** The predictions of a model for a night, judged. */
export interface JudgedModel extends Evaluated {
  readonly model: string;
  readonly prediction: string;
}

export interface JudgedNight {
  /** The date of the night; "": one was asked for. */
  readonly night: string;
  readonly models: readonly JudgedModel[];
}

/** Judges the predictions of a run by labels. @throws JobError USAGE for columns that are not there */
export async function judgeSide(
  joiner: RowJoiner,
  { side, labels }: { readonly side: DiffSide; readonly labels: DiffSide["rows"] },
  request: Omit<EvaluationRequest, "prediction"> & { readonly prediction: string | undefined },
): Promise<Omit<JudgedModel, "model">> {
  const columns = await joiner.load("a", side.rows);
  const ofLabels = await joiner.load("b", labels);
  for (const [what, found] of [[`run ${side.name}`, columns] as const, ["the labels", ofLabels] as const]) {
    const date = what === "the labels" && request.date !== undefined ? [request.date.column] : [];
    const missing = [...request.key, ...date].find((name) => !found.some((column) => column.name === name));
    if (missing !== undefined) {
      throw new JobError("USAGE", `evaluating ${side.name}: ${what} have no column ${missing}`, {
        hint: `name the columns that identify a row with --key; there are ${found.map(({ name }) => name).join(", ")}`,
      });
    }
  }
  const { by } = request;
  if (by !== undefined && ![...columns, ...ofLabels].some(({ name }) => name === by)) {
    throw new JobError("USAGE", `evaluating ${side.name}: neither the run nor the labels have column ${by}`);
  }
  const prediction = request.prediction ?? onlyNumbers(side, columns);
  return { prediction, ...(await joiner.evaluate({ ...request, prediction })) };
}

/** The only predicted column with numbers, or the only one. */
function onlyNumbers({ name, predicted = [] }: DiffSide, columns: Awaited<ReturnType<RowJoiner["load"]>>): string {
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
