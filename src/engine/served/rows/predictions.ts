import { isTensorType, type Tensor, type TensorSignature } from "../../../columnar/tensor.js";
import { parseAnswer, tensorOfJson } from "../json.js";
import { type Answer, type AnswerMessage, type Expected, MalformedAnswer } from "../message.js";

/** Where an answer has its predictions: names of keys and indices of lists; none: the answer is the predictions. */
export type ResponsePath = readonly (string | number)[];

/**
 * Reads predictions from an answer in JSON: a list with each row's prediction, which is an object by output for a model
 * with several outputs; or an object with such a list for each output.
 * @throws MalformedAnswer; UnfitValue for a value of another type; BrokenTransfer if the answer is not JSON
 */
export function readPredictions({ body }: AnswerMessage, { outputs }: Expected, path: ResponsePath): Answer {
  const found = valueAt(parseAnswer(body), path);
  return { version: undefined, outputs: outputs.map((output) => tensorOf(valuesOf(output, found, outputs), output)) };
}

/** A path as messages write it: "data.scores[0]". */
function pathText(path: ResponsePath): string {
  return path
    .map((part, index) => (typeof part === "number" ? `[${part}]` : `${index === 0 ? "" : "."}${part}`))
    .join("");
}

function valueAt(answer: unknown, path: ResponsePath): unknown {
  let value = answer;
  for (const [index, part] of path.entries()) {
    value = typeof part === "number" ? (Array.isArray(value) ? value[part] : undefined) : valueOf(value, part);
    if (value === undefined) {
      throw new MalformedAnswer(`it has no \`${pathText(path.slice(0, index + 1))}\``);
    }
  }
  return value;
}

function isPlainObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The value of an object's key. An output may be called `constructor`, which every object in JavaScript has. */
function valueOf(holder: unknown, key: string): unknown {
  return isPlainObject(holder) && Object.hasOwn(holder, key) ? holder[key] : undefined;
}

/** The values of an output, one for each row. */
function valuesOf({ name }: TensorSignature, found: unknown, outputs: Expected["outputs"]): readonly unknown[] {
  const isByOutput = isPlainObject(found);
  const values = isByOutput ? valueOf(found, name) : found;
  if (!Array.isArray(values)) {
    throw new MalformedAnswer(
      isByOutput && values === undefined ? `output \`${name}\` is missing` : "the predictions are no list",
    );
  }
  const rows: readonly unknown[] = values;
  if (isByOutput || !isPlainObject(rows[0])) {
    if (!isByOutput && outputs.length > 1) {
      throw new MalformedAnswer(`a row's prediction is no object with ${outputs.map((one) => one.name).join(", ")}`);
    }
    return rows;
  }
  return rows.map((row) => {
    const value = valueOf(row, name);
    if (value === undefined) {
      throw new MalformedAnswer(`output \`${name}\` is missing in the prediction of a row`);
    }
    return value;
  });
}

function tensorOf(rows: readonly unknown[], { name, dtype, shape }: TensorSignature): Tensor {
  if (!isTensorType(dtype)) {
    throw new MalformedAnswer(`output \`${name}\` is ${dtype ?? "no tensor"}, which JSON cannot tell`);
  }
  const declared = shape.length < 2 ? 1 : shape[1];
  const width = declared ?? widthOf(rows[0]);
  const wrong = rows.findIndex((row) => widthOf(row) !== width);
  if (wrong >= 0) {
    throw new MalformedAnswer(`output \`${name}\` has ${widthOf(rows[wrong])} values in a row, and ${width} are due`);
  }
  const dims = shape.length < 2 ? [rows.length] : [rows.length, width];
  const tensor = tensorOfJson({ dtype, dims }, rows);
  if (tensor === undefined) {
    throw new MalformedAnswer(`output \`${name}\` has lists within the lists of its rows`);
  }
  return tensor;
}

/** Values of a row; a row that is no list has one. */
function widthOf(row: unknown): number {
  return Array.isArray(row) ? row.length : 1;
}
