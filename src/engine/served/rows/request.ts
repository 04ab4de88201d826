import type { NamedTensor } from "../../../columnar/tensor.js";
import { elementTexts } from "../json.js";
import { encodedRequest, type EncodedRequest, type UnfitRequest } from "../message.js";

/** The body of a request as JSON; a text `{{NAME}}` in it stands for values of the batch. */
export type RequestTemplate = Readonly<Record<string, unknown>>;

/** An input of a batch as JSON: the text of each row's value, or of its list of values. */
interface RowTexts {
  readonly name: string;
  readonly rows: readonly string[];
}

/**
 * Fills a template. `{{instances}}`: a list with each row, which is a value for a model with one input, otherwise an
 * object by input. `{{records}}`: each row is an object. `{{inputs}}`: the values of the only input, otherwise an object
 * with a list for each input. `{{dataframe_split}}`: the rows as lists, with the names of the inputs as columns. The name
 * of an input: a list with its value for each row.
 */
export function templateRequest(
  template: RequestTemplate,
  inputs: readonly NamedTensor[],
): EncodedRequest | UnfitRequest {
  const all: RowTexts[] = [];
  for (const input of inputs) {
    const rows = rowTexts(input);
    if (rows === undefined) {
      return { unfit: input.name };
    }
    all.push({ name: input.name, rows });
  }
  const body = JSON.stringify(template).replaceAll(placeholder, (found, name: string) => filled(name, all) ?? found);
  return encodedRequest([Buffer.from(body)], { "content-type": "application/json" });
}

/** A text that is nothing but a placeholder, in JSON. */
const placeholder = /"\{\{([^{}"\\]+)\}\}"/g;

function filled(name: string, inputs: readonly RowTexts[]): string | undefined {
  const [first] = inputs;
  switch (name) {
    case "instances":
      return inputs.length === 1 && first !== undefined ? list(first.rows) : records(inputs);
    case "records":
      return records(inputs);
    case "inputs":
      return inputs.length === 1 && first !== undefined ? list(first.rows) : columns(inputs);
    case "dataframe_split": {
      const names = JSON.stringify(inputs.map((input) => input.name));
      return `{"columns":${names},"data":${list(acrossInputs(inputs, (values) => list(values)))}}`;
    }
    default: {
      const input = inputs.find((one) => one.name === name);
      return input === undefined ? undefined : list(input.rows);
    }
  }
}

function list(values: readonly string[]): string {
  return `[${values.join(",")}]`;
}

function columns(inputs: readonly RowTexts[]): string {
  return `{${inputs.map(({ name, rows }) => `${JSON.stringify(name)}:${list(rows)}`).join(",")}}`;
}

function records(inputs: readonly RowTexts[]): string {
  const names = inputs.map(({ name }) => JSON.stringify(name));
  return list(
    acrossInputs(inputs, (values) => `{${values.map((value, index) => `${names[index]}:${value}`).join(",")}}`),
  );
}

/** The text of each row, made from its values in all inputs. */
function acrossInputs(inputs: readonly RowTexts[], join: (values: readonly string[]) => string): string[] {
  const count = inputs[0]?.rows.length ?? 0;
  return Array.from({ length: count }, (_, row) => join(inputs.map(({ rows }) => rows[row] ?? "null")));
}

/** The rows of a tensor; undefined if it has NaN or an infinity. */
function rowTexts(tensor: NamedTensor): string[] | undefined {
  const elements = elementTexts(tensor);
  const [rows = 0, width = 1] = tensor.dims;
  if (elements === undefined || tensor.dims.length < 2) {
    return elements;
  }
  return Array.from({ length: rows }, (_, row) => list(elements.slice(row * width, (row + 1) * width)));
}
