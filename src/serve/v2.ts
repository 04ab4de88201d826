import { gatherColumn, nullColumn } from "../columns/columns.js";
import {
  decodeTexts,
  elementCount,
  fromFloat16Bits,
  isTensorType,
  type Tensor,
  type TensorType,
} from "../columns/tensor.js";
import type { Column, ColumnType, NamedColumn } from "../columns/types.js";
import { datatypeOf, readV2Message, tensorBytes } from "../models/served/v2.js";
import { elementTexts, MalformedAnswer, UnsendableValue } from "../models/served/protocol.js";
import { predictedColumns } from "../models/binding/contract.js";
import { fieldsOf } from "../base/guards.js";
import { BrokenTransfer } from "../base/http/http.js";
import type { Deadline } from "./deadline.js";
import { RequestError, shownJson } from "./request-error.js";
import { columnOfValues, type ServedColumn } from "./served-columns.js";
import type { LoadedModel, ServedRun } from "./served-run.js";

/* The Open Inference Protocol, version 2, over HTTP: a tensor is a column, and its first dimension are the rows. */

interface ColumnTensor {
  readonly name: string;
  readonly type: ColumnType;
}

/** What a model takes and gives. */
export function metadataV2(job: string, { scorer: { columns, contract } }: LoadedModel): object {
  return {
    name: job,
    platform: "infer-batch",
    inputs: columns.filter(({ isNeeded }) => isNeeded).map(described),
    outputs: predictedColumns(contract).map(described),
  };
}

function described({ name, type }: ColumnTensor): object {
  const { dtype, isList } = elementOf(type);
  return { name, datatype: datatypeOf(dtype), shape: isList ? [-1, -1] : [-1] };
}

/** The elements that a column has as a tensor: what is neither a number nor a truth value is a text. */
function elementOf(type: ColumnType): { readonly dtype: TensorType; readonly isList: boolean } {
  const isList = typeof type === "object" && type.kind === "list";
  const element = isList ? type.element : type;
  return { dtype: typeof element === "string" && isTensorType(element) ? element : "string", isList };
}

interface V2Request {
  readonly body: Uint8Array<ArrayBuffer>;
  /** The header that says how many bytes of the body are JSON; null: all. */
  readonly jsonLength: string | null;
}

interface V2Answer {
  readonly rows: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
}

/** Answers `infer` with predictions of the model. @throws RequestError */
export async function inferV2(
  { scorer, batcher, plan }: ServedRun,
  request: V2Request,
  { job, mostRows, deadline }: { readonly job: string; readonly mostRows: number; readonly deadline: Deadline },
): Promise<V2Answer> {
  const { json, tensors } = tensorsIn(request);
  const rows = [...tensors.values()][0]?.dims[0] ?? 0;
  if (rows > mostRows) {
    throw new RequestError(413, `the request has ${rows} rows, at most ${mostRows} are taken`);
  }
  for (const [name, { dims }] of tensors) {
    if (!scorer.columns.some((column) => column.name === name)) {
      throw new RequestError(400, `${name} is no input of the model`);
    }
    if (dims[0] !== rows || rows === 0) {
      throw new RequestError(
        400,
        `input ${name} has shape [${dims.join(",")}]: all must have the same rows, at least one`,
      );
    }
  }
  const wanted = outputsIn(json, predictedColumns(scorer.contract));
  const values = new Map(
    scorer.columns.map((column) => [column.name, columnOf(column, tensors.get(column.name), rows)]),
  );
  const numbers = Array.from({ length: rows }, (_, row) => row);
  const { output, at } = await batcher.score({ values, numbers }, deadline);

  const binary: Uint8Array[] = [];
  const outputs = wanted.map(({ name, isBinary }) => {
    const tensor = tensorOf(output.columns.find((column) => column.name === name) as NamedColumn, at);
    const head = JSON.stringify({ name, shape: tensor.dims, datatype: datatypeOf(tensor.dtype) }).slice(0, -1);
    if (!isBinary) {
      return `${head},"data":[${elementTexts(tensor)?.join(",") ?? ""}]}`;
    }
    const bytes = tensorBytes(tensor);
    binary.push(bytes);
    return `${head},"parameters":{"binary_data_size":${bytes.length}}}`;
  });
  const { id } = json;
  const about = JSON.stringify({ model_name: job, model_version: plan.runId, ...(typeof id === "string" && { id }) });
  const head = Buffer.from(`${about.slice(0, -1)},"outputs":[${outputs.join(",")}]}`);
  return {
    rows,
    body: [head, ...binary],
    headers:
      binary.length === 0
        ? { "content-type": "application/json" }
        : { "content-type": "application/octet-stream", "inference-header-content-length": String(head.length) },
  };
}

function tensorsIn({ body, jsonLength }: V2Request): ReturnType<typeof readV2Message> {
  try {
    return readV2Message("inputs", jsonLength, body);
  } catch (error) {
    if (error instanceof MalformedAnswer || error instanceof UnsendableValue) {
      throw new RequestError(400, `reading the request: ${error.message.slice(0, 300)}`);
    }
    if (error instanceof BrokenTransfer || error instanceof RangeError) {
      throw new RequestError(400, "the request is no JSON, or is nested too deeply");
    }
    throw error;
  }
}

/** The outputs that a request asks for; those of all predicted columns if it names none. @throws RequestError 400 */
function outputsIn(
  json: Readonly<Record<string, unknown>>,
  predicted: readonly ColumnTensor[],
): { readonly name: string; readonly isBinary: boolean }[] {
  const { outputs } = json;
  if (!Array.isArray(outputs) || outputs.length === 0) {
    const isBinary = fieldsOf(json["parameters"])["binary_data_output"] === true;
    return predicted.map(({ name }) => ({ name, isBinary }));
  }
  if (outputs.length > predicted.length) {
    throw new RequestError(400, `the request asks for ${outputs.length} outputs, the model has ${predicted.length}`);
  }
  return outputs.map((given) => {
    const { name, parameters } = fieldsOf(given);
    if (typeof name !== "string" || !predicted.some((column) => column.name === name)) {
      throw new RequestError(400, `${shownJson(name)} is no output of the model`);
    }
    return { name, isBinary: fieldsOf(parameters)["binary_data"] === true };
  });
}

/** A column of the values of a tensor. @throws RequestError 400 */
function columnOf({ name, type, isNeeded }: ServedColumn, tensor: Tensor | undefined, rows: number): Column {
  if (tensor === undefined) {
    if (isNeeded) {
      throw new RequestError(400, `the request has no input ${name}`);
    }
    return nullColumn(type, rows);
  }
  const { dims } = tensor;
  const { isList } = elementOf(type);
  const width = elementCount(dims.slice(1));
  if (isList ? dims.length !== 2 : width !== 1) {
    throw new RequestError(400, `input ${name} has shape [${dims.join(",")}], expected [${rows}${isList ? ",n" : ""}]`);
  }
  if (tensor.dtype !== "string" && tensor.dtype === type) {
    return { kind: "fixed", elementsPerValue: 1, data: tensor.data, valid: undefined };
  }
  const values = valuesOf(tensor);
  const ofRow = (_: unknown, row: number): unknown => values.slice(row * width, (row + 1) * width);
  return columnOfValues({ name, type }, isList ? Array.from({ length: rows }, ofRow) : values);
}

function valuesOf(tensor: Tensor): unknown[] {
  if (tensor.dtype === "string") {
    return decodeTexts(tensor.data);
  }
  const { dtype, data } = tensor;
  const halves = dtype === "float16" ? fromFloat16Bits : undefined;
  return Array.from(data as ArrayLike<number | bigint>, (value) =>
    typeof value === "bigint" ? String(value) : dtype === "bool" ? value !== 0 : (halves?.(value) ?? value),
  );
}

function tensorOf({ type, column }: NamedColumn, at: Int32Array): Tensor {
  const rows = gatherColumn(type, column, Uint32Array.from(at));
  const { dtype, isList } = elementOf(type);
  const values = rows.kind === "list" ? rows.child : rows;
  const count = rows.kind === "list" ? (rows.offsets[at.length] ?? 0) : at.length;
  const dims = isList ? [at.length, count / at.length] : [at.length];
  if (values.kind === "bytes" && dtype === "string") {
    const { offsets, bytes } = values;
    return { dtype, dims, data: { offsets: offsets.slice(), bytes: bytes.slice() } };
  }
  if (values.kind !== "fixed" || dtype === "string") {
    throw new TypeError("a prediction is of numbers or texts");
  }
  return { dtype, dims, data: values.data.subarray(0, count) };
}
