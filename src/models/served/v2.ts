import { isUtf8 } from "node:buffer";
import type { ServedFacts } from "../binding/model-facts.js";
import {
  elementCount,
  isTensorType,
  type ModelSignature,
  type Tensor,
  tensorElement,
  type TensorSignature,
  type TensorType,
  type Texts,
} from "../../columns/tensor.js";
import { bytesPerElement, elementsOf } from "../../columns/values.js";
import { BrokenTransfer, readText } from "../../base/http/http.js";
import { fieldsOf } from "../../base/guards.js";
import { JobError } from "../../base/errors.js";
import {
  type Answer,
  type AnswerMessage,
  elementTexts,
  encodedRequest,
  type EncodedRequest,
  type FindRequest,
  MalformedAnswer,
  parseAnswer,
  type Protocol,
  type RequestParts,
  type ServerStatistics,
  tensorOfJson,
  type UnfitRequest,
  UnsendableValue,
} from "./protocol.js";
import { ask, type Json, listIn, type ModelServer, modelUrl, untilReady, urlAt } from "./server.js";

/** The Open Inference Protocol, version 2, over HTTP. */
export const v2: Protocol = {
  name: "v2",
  find: findModel,
  inferUrl: (server, { version, isVersionInPath }) =>
    modelUrl(server, "v2", isVersionInPath ? version : undefined, "/infer"),
  statistics: readStatistics,
  readyUrl: (server) => urlAt(server, "/v2/health/ready"),
  encode: (parts, { isBinary }) => (isBinary ? binaryRequest(parts) : jsonRequest(parts)),
  decode: (message, { outputs }) => readAnswer(message, outputs),
};

async function findModel(server: ModelServer, { doing, wanted }: FindRequest): Promise<ServedFacts> {
  const about = await ask(server, doing, urlAt(server, "/v2"));
  const extensions = "json" in about ? listIn(about.json, "extensions") : [];

  const found = await untilReady(server, doing, () => metadataOf(server, doing, wanted));
  const signature = signatureOf(found.json, doing);
  const version = found.version ?? latest(listIn(found.json, "versions"), doing);
  const readyUrl = modelUrl(server, "v2", found.version, "/ready");
  await untilReady(server, doing, () => expectReady(server, doing, readyUrl));

  const isBinary = extensions.includes("binary_tensor_data");
  const mostRows = extensions.includes("model_configuration") ? await limitOf(server, doing, version) : undefined;
  return { signature, version, isVersionInPath: version !== undefined, isBinary, mostRows };
}

/** `version`: the one that the server was asked for. @throws BrokenTransfer if it is starting */
async function metadataOf(
  server: ModelServer,
  doing: string,
  version: string | undefined,
): Promise<{ readonly json: Json; readonly version: string | undefined }> {
  const asked = await ask(server, doing, modelUrl(server, "v2", version));
  if ("json" in asked) {
    return { json: asked.json, version };
  }
  if (asked.refused.status !== 501) {
    await expectReady(server, doing, urlAt(server, "/v2/health/ready")); // it does not know its models while it starts
  } else if (version !== undefined) {
    return await metadataOf(server, doing, undefined); // it does not know versions, and tells what it has
  }
  throw asked.error;
}

async function expectReady(server: ModelServer, doing: string, url: string): Promise<void> {
  const asked = await ask(server, doing, url, readText);
  // A server that does not have the URL does not say.
  if ("refused" in asked && asked.refused.status === 400) {
    throw new BrokenTransfer(`it is not ready (${asked.refused.status})`);
  }
}

/** The version that a server uses if it is asked for none: the one with the highest number. */
function latest(versions: readonly string[], doing: string): string | undefined {
  if (versions.length > 1 && !versions.every((version) => /^\d+$/.test(version))) {
    throw new JobError("MODEL_INVALID", `${doing}: the server has versions ${versions.join(", ")}`, {
      hint: "name one in model.server.version",
    });
  }
  return versions.toSorted((one, other) => Number(one) - Number(other)).at(-1);
}

function signatureOf(json: Json, doing: string): ModelSignature {
  const read = (key: "inputs" | "outputs"): TensorSignature[] => {
    const tensors = json[key];
    if (!Array.isArray(tensors) || tensors.length === 0) {
      throw new JobError("MODEL_INVALID", `${doing}: its metadata names no ${key}`, {
        hint: "have the server declare the model's inputs and outputs with types and shapes: GET /v2/models/NAME shows them",
      });
    }
    return tensors.map(tensorSignature);
  };
  return { inputs: read("inputs"), outputs: read("outputs") };
}

function tensorSignature(given: unknown): TensorSignature {
  const { name, datatype, shape } = fieldsOf(given);
  const sizes: readonly unknown[] = Array.isArray(shape) ? shape : [];
  return {
    name: String(name),
    dtype: typeOfDatatype(String(datatype)),
    shape: sizes.map((size) => (Number.isSafeInteger(size) && Number(size) >= 0 ? Number(size) : null)),
  };
}

/** The rows that Triton takes in a request; undefined: it names no limit. */
async function limitOf(server: ModelServer, doing: string, version: string | undefined): Promise<number | undefined> {
  const asked = await ask(server, doing, modelUrl(server, "v2", version, "/config"));
  const most = "json" in asked ? asked.json["max_batch_size"] : 0;
  return typeof most === "number" && most > 0 ? most : undefined;
}

/** Triton's extension `statistics`, counted since it loaded the model; undefined: the server has none, or refuses. */
async function readStatistics(server: ModelServer, version: string | undefined): Promise<ServerStatistics | undefined> {
  const asked = await ask(server, "asking for statistics", modelUrl(server, "v2", version, "/stats")).catch(
    () => undefined,
  );
  const all = asked !== undefined && "json" in asked ? asked.json["model_stats"] : undefined;
  if (!Array.isArray(all) || all.length === 0) {
    return undefined;
  }
  const sum = (...path: readonly string[]): number =>
    all.reduce<number>((total, model) => total + numberAt(model, path), 0);
  const seconds = (name: string): number => sum("inference_stats", name, "ns") / 1e9;
  return {
    executions: sum("execution_count"),
    requests: sum("inference_stats", "success", "count"),
    queueSeconds: seconds("queue"),
    computeSeconds: seconds("compute_input") + seconds("compute_infer") + seconds("compute_output"),
  };
}

function numberAt(json: unknown, path: readonly string[]): number {
  const value = path.reduce<unknown>((holder, key) => fieldsOf(holder)[key], json);
  return typeof value === "number" ? value : 0;
}

/** The name of the header that says where the JSON of a binary message ends. */
const jsonLength = "inference-header-content-length";

/** The body refers to the tensors' memory. */
function binaryRequest({ id, inputs, outputs }: RequestParts): EncodedRequest {
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

function jsonRequest({ id, inputs, outputs }: RequestParts): EncodedRequest | UnfitRequest {
  const texts: string[] = [];
  for (const input of inputs) {
    const data = elementTexts(input);
    if (data === undefined) {
      return { unfit: input.name };
    }
    const { name, dims, dtype } = input;
    const head = JSON.stringify({ name, shape: dims, datatype: datatypeOf(dtype) });
    texts.push(`${head.slice(0, -1)},"data":[${data.join(",")}]}`);
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

function readAnswer(
  { headers, body }: AnswerMessage,
  wanted: readonly { readonly name: string; readonly dtype: string | undefined }[],
): Answer {
  const { json, tensors } = readV2Message("outputs", headers.get(jsonLength), body);
  const version = json["model_version"];
  return {
    version: typeof version === "string" && version !== "" ? version : undefined,
    outputs: wanted.map((one) => wantedTensor(one, tensors)),
  };
}

/**
 * Reads the tensors of an answer, or of a request.
 * @param length the header `inference-header-content-length`; null: all of the body is JSON
 * @throws MalformedAnswer; UnfitValue for a value in its JSON; BrokenTransfer if it is no JSON
 */
export function readV2Message(
  key: "inputs" | "outputs",
  length: string | null,
  body: Uint8Array<ArrayBuffer>,
): { readonly json: Json; readonly tensors: ReadonlyMap<string, Tensor> } {
  const jsonEnd = length === null ? body.length : Number(length);
  if (!Number.isSafeInteger(jsonEnd) || jsonEnd < 0 || jsonEnd > body.length) {
    throw new MalformedAnswer(`${jsonLength} is ${length}, and the message has ${body.length} bytes`);
  }
  const json = fieldsOf(parseAnswer(body.subarray(0, jsonEnd)));
  const all = json[key];
  if (!Array.isArray(all)) {
    throw new MalformedAnswer(`it has no ${key}`);
  }
  const tensors = new Map<string, Tensor>();
  let at = jsonEnd;
  for (const described of all.map((given) => describedTensor(key.slice(0, -1), given))) {
    const { name, data, sizeBytes = 0 } = described;
    const tensor =
      data === undefined
        ? tensorOfBytes(described, body.subarray(at, Math.min(body.length, at + sizeBytes)))
        : tensorOfJson(described, data);
    if (tensor === undefined) {
      throw new MalformedAnswer(
        `the values of ${key.slice(0, -1)} \`${name}\` are not as many as its shape [${described.dims.join(",")}] says`,
      );
    }
    at += data === undefined ? sizeBytes : 0;
    tensors.set(name, tensor);
  }
  return { json, tensors };
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

function describedTensor(noun: string, given: unknown): Described {
  const { name, shape, datatype, data, parameters } = fieldsOf(given);
  const dtype = typeof datatype === "string" ? typeOfDatatype(datatype) : "nothing";
  const isShape = Array.isArray(shape) && shape.every((size) => Number.isSafeInteger(size) && Number(size) >= 0);
  const size = fieldsOf(parameters)["binary_data_size"];
  if (typeof name !== "string" || !isTensorType(dtype) || !isShape) {
    throw new MalformedAnswer(
      `an ${noun} has no name, shape or known data type (${JSON.stringify(name)}, ${JSON.stringify(datatype)})`,
    );
  }
  if (!Array.isArray(data) && !(Number.isSafeInteger(size) && Number(size) >= 0)) {
    throw new MalformedAnswer(`${noun} \`${name}\` has no values`);
  }
  return {
    name,
    dims: shape as readonly number[],
    dtype,
    data: Array.isArray(data) ? (data as readonly unknown[]) : undefined,
    sizeBytes: typeof size === "number" ? size : 0,
  };
}

/** The bytes of a tensor in the binary extension: little-endian and row-major; texts with their length before each. */
export function tensorBytes(tensor: Tensor): Uint8Array {
  if (tensor.dtype === "string") {
    return textBytes(tensor.data);
  }
  const { buffer, byteOffset, byteLength } = tensor.data;
  return new Uint8Array(buffer, byteOffset, byteLength);
}

const lengthBytes = 4;

function textBytes({ offsets, bytes }: Texts): Uint8Array {
  const count = offsets.length - 1;
  const packed = new Uint8Array(bytes.length + count * lengthBytes);
  const view = new DataView(packed.buffer);
  let at = 0;
  for (let index = 0; index < count; index += 1) {
    const [from = 0, to = 0] = [offsets[index], offsets[index + 1]];
    view.setUint32(at, to - from, true);
    packed.set(bytes.subarray(from, to), at + lengthBytes);
    at += lengthBytes + to - from;
  }
  return packed;
}

/** undefined: there are not exactly as many as the shape says. @throws UnfitValue for a text that is not UTF-8 */
function tensorOfBytes(
  { dtype, dims }: { readonly dtype: TensorType; readonly dims: readonly number[] },
  bytes: Uint8Array<ArrayBuffer>,
): Tensor | undefined {
  const count = elementCount(dims);
  if (dtype === "string") {
    const data = textsOfBytes(bytes, count);
    return data === undefined ? undefined : { dtype, dims, data };
  }
  const element = tensorElement(dtype);
  // A copy: the answer is larger than the tensor, and its parts are not aligned.
  return bytes.length === count * bytesPerElement(element)
    ? { dtype, dims, data: elementsOf(element, bytes.slice()) }
    : undefined;
}

function textsOfBytes(packed: Uint8Array<ArrayBuffer>, count: number): Texts | undefined {
  if (packed.length < count * lengthBytes) {
    return undefined;
  }
  const view = new DataView(packed.buffer, packed.byteOffset, packed.length);
  const offsets = new Uint32Array(count + 1);
  const bytes = new Uint8Array(packed.length - count * lengthBytes);
  let at = 0;
  let written = 0;
  for (let index = 0; index < count; index += 1) {
    const length = at + lengthBytes <= packed.length ? view.getUint32(at, true) : packed.length;
    at += lengthBytes;
    if (at + length > packed.length) {
      return undefined;
    }
    const text = packed.subarray(at, at + length);
    if (!isUtf8(text)) {
      throw new UnsendableValue("a text that is not UTF-8");
    }
    bytes.set(text, written);
    at += length;
    written += length;
    offsets[index + 1] = written;
  }
  return at === packed.length ? { offsets, bytes } : undefined;
}

/** The Open Inference Protocol's name of a type: "FP32". */
export function datatypeOf(type: TensorType): string {
  return type === "string" ? "BYTES" : type.toUpperCase().replace("FLOAT", "FP");
}

/** The type of a name in the protocol, or a name that no tensor of ours has ("bf16"). */
function typeOfDatatype(datatype: string): string {
  return datatype === "BYTES" ? "string" : datatype.toLowerCase().replace("fp", "float");
}
