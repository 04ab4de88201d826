import { comparableKind } from "../checks/agreement.js";
import type { Evaluated, EvaluationRequest } from "../checks/evaluation.js";
import { JobError } from "../util/errors.js";
import type { RowColumn, RowJoiner } from "../scoring/context.js";
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

/**
 * Judges the predictions of a run by the labels that were loaded as B; undefined: the run has no rows.
 * @throws JobError USAGE for columns that are not there
 */
export async function judgeSide(
  joiner: RowJoiner,
  { side, labels }: { readonly side: DiffSide; readonly labels: readonly RowColumn[] },
  request: Omit<EvaluationRequest, "prediction"> & { readonly prediction: string | undefined },
): Promise<Omit<JudgedModel, "model"> | undefined> {
  const columns = await joiner.load("a", side.rows);
  if (columns.length === 0) {
    return undefined;
  }
  const { key, date, by } = request;
  for (const [what, those, needed] of [
    [`run ${side.name}`, columns, key] as const,
    ["the labels", labels, date === undefined ? key : [...key, date.column]] as const,
  ]) {
    const missing = needed.find((name) => !those.some((column) => column.name === name));
    if (missing !== undefined) {
      throw new JobError("USAGE", `evaluating ${side.name}: ${what} have no column ${missing}`, {
        hint: `name the columns that identify a row with --key; there are ${those.map(({ name }) => name).join(", ")}`,
      });
    }
  }
  if (by !== undefined && ![...columns, ...labels].some(({ name }) => name === by)) {
    throw new JobError("USAGE", `evaluating ${side.name}: neither the run nor the labels have column ${by}`);
  }
  const prediction = request.prediction ?? onlyNumbers(side, columns);
  return { prediction, ...(await joiner.evaluate({ ...request, prediction })) };
}

/** The only predicted column with numbers, or the only one. */
function onlyNumbers({ name, predicted = [] }: DiffSide, columns: readonly RowColumn[]): string {
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
