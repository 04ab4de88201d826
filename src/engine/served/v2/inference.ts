import type { Tensor, TensorType } from "../../../columnar/tensor.js";
import { parseAnswer, tensorJson, tensorOfJson } from "../json.js";
import {
  type Answer,
  type AnswerMessage,
  encodedRequest,
  type EncodedRequest,
  MalformedAnswer,
  type RequestParts,
  type UnfitRequest,
} from "../message.js";
import { tensorBytes, tensorOfBytes } from "./bytes.js";
import { datatypeOf, typeOfDatatype } from "./datatypes.js";

/** The name of the header that says where the JSON of a binary message ends. */
const jsonLength = "inference-header-content-length";

/** Encodes a request with its tensors as bytes. The body refers to the tensors' memory. */
export function binaryRequest({ id, inputs, outputs }: RequestParts): EncodedRequest {
  const tensors = inputs.map(tensorBytes);
  const json = Buffer.from(
    JSON.stringify({
      id,
      inputs: inputs.map(({ name, dims, dtype }, index) => ({
        name,
        shape: dims,
        datatype: datatypeOf(dtype),
        parameters: { binary_data_size: tensors[index]?.length ?? 0 },
      })),
      outputs: outputs.map((name) => ({ name, parameters: { binary_data: true } })),
    }),
  );
  return encodedRequest([json, ...tensors], {
    "content-type": "application/octet-stream",
    [jsonLength]: String(json.length),
  });
}

/** Encodes a request as JSON. */
export function jsonRequest({ id, inputs, outputs }: RequestParts): EncodedRequest | UnfitRequest {
  const texts: string[] = [];
  for (const input of inputs) {
    const data = tensorJson(input);
    if (data === undefined) {
      return { unfit: input.name };
    }
    const { name, dims, dtype } = input;
    const head = JSON.stringify({ name, shape: dims, datatype: datatypeOf(dtype) });
    texts.push(`${head.slice(0, -1)},"data":${data}}`);
  }
  const wanted = JSON.stringify(outputs.map((name) => ({ name })));
  const json = Buffer.from(`{"id":${JSON.stringify(id)},"inputs":[${texts.join(",")}],"outputs":${wanted}}`);
  return encodedRequest([json], { "content-type": "application/json" });
}

interface Described {
  readonly name: string;
  readonly dims: readonly number[];
  readonly dtype: TensorType;
  readonly data: readonly unknown[] | undefined;
  readonly sizeBytes: number | undefined;
}

/** Reads an answer. @throws MalformedAnswer; UnfitValue for a value in its JSON; BrokenTransfer if it is no JSON */
export function readAnswer(
  { headers, body }: AnswerMessage,
  wanted: readonly { readonly name: string; readonly dtype: string | undefined }[],
): Answer {
  const length = headers.get(jsonLength);
  const jsonEnd = length === null ? body.length : Number(length);
  if (!Number.isSafeInteger(jsonEnd) || jsonEnd > body.length) {
    throw new MalformedAnswer(`${jsonLength} is ${length}, and the answer has ${body.length} bytes`);
  }
  const { outputs, version } = describedIn(body.subarray(0, jsonEnd));
  let at = jsonEnd;
  const tensors = new Map<string, Tensor>();
  for (const described of outputs) {
    const { name, data, sizeBytes = 0 } = described;
    const tensor =
      data === undefined
        ? tensorOfBytes(described, body.subarray(at, Math.min(body.length, at + sizeBytes)))
        : tensorOfJson(described, data);
    if (tensor === undefined) {
      throw new MalformedAnswer(
        `the values of output \`${name}\` are not as many as its shape [${described.dims.join(",")}] says`,
      );
    }
    at += data === undefined ? sizeBytes : 0;
    tensors.set(name, tensor);
  }
  return { version, outputs: wanted.map((one) => wantedTensor(one, tensors)) };
}

function wantedTensor(
  { name, dtype }: { readonly name: string; readonly dtype: string | undefined },
  tensors: ReadonlyMap<string, Tensor>,
): Tensor {
  const tensor = tensors.get(name);
  if (tensor === undefined) {
    throw new MalformedAnswer(`output \`${name}\` is missing`);
  }
  if (tensor.dtype !== dtype) {
    throw new MalformedAnswer(`output \`${name}\` is ${tensor.dtype}, and the model's signature says ${dtype}`);
  }
  return tensor;
}

function describedIn(json: Uint8Array): { readonly outputs: readonly Described[]; readonly version?: string } {
  const parsed = Object(parseAnswer(json)) as Readonly<Record<string, unknown>>;
  if (!Array.isArray(parsed["outputs"])) {
    throw new MalformedAnswer("it has no outputs");
  }
  const version = parsed["model_version"];
  return {
    outputs: parsed["outputs"].map(describedOutput),
    ...(typeof version === "string" && version !== "" ? { version } : {}),
  };
}

function describedOutput(given: unknown): Described {
  const { name, shape, datatype, data, parameters } = Object(given) as Readonly<Record<string, unknown>>;
  const dtype = typeof datatype === "string" ? typeOfDatatype(datatype) : undefined;
  const isShape = Array.isArray(shape) && shape.every((size) => Number.isSafeInteger(size) && Number(size) >= 0);
  const size = (Object(parameters) as Readonly<Record<string, unknown>>)["binary_data_size"];
  if (typeof name !== "string" || dtype === undefined || !isShape) {
    throw new MalformedAnswer(`an output has no name, shape or known data type (${String(name)}, ${String(datatype)})`);
  }
  if (!Array.isArray(data) && !Number.isSafeInteger(size)) {
    throw new MalformedAnswer(`output \`${name}\` has no values`);
  }
  return {
    name,
    dims: shape as readonly number[],
    dtype,
    data: Array.isArray(data) ? (data as readonly unknown[]) : undefined,
    sizeBytes: Number(size),
  };
}
