import { decodeTexts, encodeTexts, type ModelSignature, type NamedTensor, type Tensor } from "../../columnar/tensor.js";
import { type ResponseColumn, wholeAnswer } from "../../text/response.js";
import { assertNever } from "../../util/errors.js";
import type { ModelAnswer, PromptValues } from "./answer.js";
import type { AnswerColumn, PromptTask } from "./prompt.js";

/** The name of the list column that texts are embedded into. */
const embeddingColumn = "embedding";

/** The inputs and outputs of a task: its columns, each a text, and those that answers fill. */
export function promptSignature({ kind, system, text, response, answerColumns = [] }: PromptTask): ModelSignature {
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
  const about = answerColumns.map((name) => ({ name, dtype: answerDtypes[name], shape: [null] }));
  return { inputs, outputs: [...outputs, ...about] };
}

const dtypes = { string: "string", number: "float64", integer: "int64", boolean: "bool" } as const satisfies Record<
  ResponseColumn["type"],
  string
>;

const answerDtypes = {
  prompt_tokens: "int64",
  completion_tokens: "int64",
  finish_reason: "string",
  model: "string",
} as const satisfies Record<AnswerColumn, string>;

/** The only text of a tensor with one row. */
export function textOf(tensor: NamedTensor): string {
  const [text = ""] = tensor.dtype === "string" ? decodeTexts(tensor.data) : [];
  return text;
}

/** The value of an output for one row. */
export function tensorOf(
  { response, answerColumns = [] }: PromptTask,
  { values, embedding, answer }: PromptValues & { readonly answer: ModelAnswer },
  name: string,
): Tensor {
  const about = answerColumns.find((column) => column === name);
  if (about !== undefined) {
    return aboutAnswer(answer, about);
  }
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

/** A fact about an answer; 0 or "" if the server does not state it. */
function aboutAnswer({ tokens, finish, model }: ModelAnswer, column: AnswerColumn): Tensor {
  switch (column) {
    case "prompt_tokens":
      return { dtype: "int64", dims: [1], data: BigInt64Array.of(BigInt(tokens?.prompt ?? 0)) };
    case "completion_tokens":
      return { dtype: "int64", dims: [1], data: BigInt64Array.of(BigInt(tokens?.completion ?? 0)) };
    case "finish_reason":
      return { dtype: "string", dims: [1], data: encodeTexts([finish ?? ""]) };
    case "model":
      return { dtype: "string", dims: [1], data: encodeTexts([model ?? ""]) };
    default:
      return assertNever(column);
  }
}
