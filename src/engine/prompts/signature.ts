import { decodeTexts, encodeTexts, type ModelSignature, type NamedTensor, type Tensor } from "../../columnar/tensor.js";
import { type ResponseColumn, wholeAnswer } from "../../text/response.js";
import type { PromptValues } from "./judge-answer.js";
import type { PromptTask } from "./request.js";

/** The name of the list column that texts are embedded into. */
const embeddingColumn = "embedding";

/** The inputs and outputs of a task: its columns, each a text, and those that answers fill. */
export function promptSignature({ kind, system, text, response }: PromptTask): ModelSignature {
  const columns = [...new Set([...(system?.columns ?? []), ...text.columns])];
  const inputs = columns.map((name) => ({ name, dtype: "string", shape: [null] }));
  const outputs =
    kind === "embedding"
      ? [{ name: embeddingColumn, dtype: "float32", shape: [null, null] }]
      : Object.entries(response ?? { [wholeAnswer]: { type: "string" } as const }).map(([name, { type }]) => ({
          name,
          dtype: dtypes[type],
          shape: [null],
        }));
  return { inputs, outputs };
}

const dtypes = { string: "string", number: "float64", integer: "int64", boolean: "bool" } as const satisfies Record<
  ResponseColumn["type"],
  string
>;

/** The only text of a tensor with one row. */
export function textOf(tensor: NamedTensor): string {
  const [text = ""] = tensor.dtype === "string" ? decodeTexts(tensor.data) : [];
  return text;
}

/** The value of an output for one row. */
export function tensorOf({ response }: PromptTask, { values, embedding }: PromptValues, name: string): Tensor {
  if (embedding !== undefined) {
    return { dtype: "float32", dims: [1, embedding.length], data: embedding };
  }
  const value = values.get(name);
  if (typeof value === "string") {
    return { dtype: "string", dims: [1], data: encodeTexts([value]) };
  }
  if (typeof value === "boolean") {
    return { dtype: "bool", dims: [1], data: Uint8Array.of(Number(value)) };
  }
  if (value === undefined) {
    throw new RangeError(`no answer has a column ${name}`);
  }
  return response?.[name]?.type === "integer"
    ? { dtype: "int64", dims: [1], data: BigInt64Array.of(BigInt(value)) }
    : { dtype: "float64", dims: [1], data: Float64Array.of(value) };
}
