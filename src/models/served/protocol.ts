import type { ServedFacts } from "../binding/model-facts.js";
import {
  type NamedTensor,
  type Tensor,
  type TensorSignature,
  type TensorType,
  decodeTexts,
  elementCount,
  encodeTexts,
  fromFloat16Bits,
  tensorElement,
  toFloat16Bits,
} from "../../columns/tensor.js";
import { allocate } from "../../columns/values.js";
import { BrokenTransfer } from "../../base/http/http.js";
import type { ResponseHeaders } from "../../base/http/request.js";
import { strictText } from "../../base/texts.js";
import type { ModelServer } from "./server.js";

/** How a kind of server describes its model, takes requests for predictions and answers them. */
export interface Protocol {
  /** The name that specs, plans and reports use: "v2". */
  readonly name: string;
  /** What the spec says of requests and answers, as JSON; undefined: the protocol says it all. */
  readonly layout?: unknown;
  /**
   * Asks the server for its model, and waits until the model is ready.
   * @throws JobError FILE_MISSING if the server does not have it, PERMISSION, MODEL_INVALID, NETWORK
   */
  find(server: ModelServer, request: FindRequest): Promise<ServedFacts>;
  /** The URL that requests for predictions go to. */
  inferUrl(this: void, server: ModelServer, version: RequestedVersion): string;
  /** A URL that answers 200 while the server, or its model, is ready; undefined: the protocol has none. */
  readyUrl(server: ModelServer): string | undefined;
  /** Reads what the server itself has counted; undefined: the protocol has nothing of the kind. */
  readonly statistics?: (server: ModelServer, version: string | undefined) => Promise<ServerStatistics | undefined>;
  /** Encodes a request. The body may refer to the tensors' memory. */
  encode(parts: RequestParts, served: ServedFacts): EncodedRequest | UnfitRequest;
  /** Reads an answer. @throws MalformedAnswer; UnfitValue for a value in its JSON; BrokenTransfer if it is no JSON */
  decode(message: AnswerMessage, expected: Expected): Answer;
}

/** What a server has counted for a model. */
export interface ServerStatistics {
  /** Calls of the model: a server may join requests. */
  readonly executions: number;
  readonly requests: number;
  /** The time of all requests together. */
  readonly queueSeconds: number;
  readonly computeSeconds: number;
}

export interface FindRequest {
  /** The act that messages begin with. */
  readonly doing: string;
  /** The version that a plan or the spec names; undefined: the one that the server names. */
  readonly wanted: string | undefined;
}

/** The version of the model that requests are for. */
export type RequestedVersion = Pick<ServedFacts, "version" | "isVersionInPath">;

/** A request for predictions, as HTTP sends it. */
export interface EncodedRequest {
  readonly headers: Readonly<Record<string, string>>;
  readonly body: readonly Uint8Array[];
  readonly sizeBytes: number;
}

/** A request that a protocol cannot carry: `unfit` is the input with NaN or an infinity, which JSON lacks. */
export interface UnfitRequest {
  readonly unfit: string;
}

export interface RequestParts {
  /** Servers copy it into the answer, and some need one. */
  readonly id: string;
  readonly inputs: readonly NamedTensor[];
  readonly outputs: readonly string[];
}

/** An answer with status 200. */
export interface AnswerMessage {
  readonly headers: ResponseHeaders;
  readonly body: Uint8Array<ArrayBuffer>;
}

/** What an answer must have. */
export interface Expected {
  /** The outputs of the request, as the model's signature describes them. */
  readonly outputs: readonly TensorSignature[];
  readonly rows: number;
}

export interface Answer {
  /** In the order in which they were requested. */
  readonly outputs: readonly Tensor[];
  /** The version of the model that computed them; undefined: the answer names none. */
  readonly version: string | undefined;
}

/** An answer that is not what the protocol or the model's signature says. */
export class MalformedAnswer extends Error {
  override readonly name = "MalformedAnswer";
}

/** The server failed without saying that this is temporary: by status 500, or by what is no answer. */
export class ServerFault extends Error {}

/** A request of these pieces. */
export function encodedRequest(body: readonly Uint8Array[], headers: Readonly<Record<string, string>>): EncodedRequest {
  const sizeBytes = body.reduce((sum, piece) => sum + piece.length, 0);
  return { body, sizeBytes, headers: { ...headers, "content-length": String(sizeBytes) } };
}

/** The text in JSON of each element of a tensor; undefined if one of them is NaN or infinite, which JSON lacks. */
export function elementTexts(tensor: Tensor): string[] | undefined {
  if (tensor.dtype === "string") {
    return decodeTexts(tensor.data).map((text) => JSON.stringify(text));
  }
  if (tensor.dtype === "bool") {
    return Array.from(tensor.data as Uint8Array, (value) => (value === 0 ? "false" : "true"));
  }
  if (tensor.dtype === "float16") {
    return finiteTexts(Float32Array.from(tensor.data as Uint16Array<ArrayBuffer>, (bits) => fromFloat16Bits(bits)));
  }
  return isInteger(tensor.dtype)
    ? Array.from(tensor.data as ArrayLike<number | bigint>, String)
    : finiteTexts(tensor.data as Float32Array | Float64Array);
}

function finiteTexts(values: Float32Array | Float64Array): string[] | undefined {
  const isFinite = values.every((value) => Number.isFinite(value));
  return isFinite ? Array.from(values, numberText) : undefined;
}

/** Keeps the sign of zero, which a server would not find in "0", and neither in the integer "-0". */
function numberText(value: number): string {
  return Object.is(value, -0) ? "-0.0" : String(value);
}

/**
 * What JSON.parse would not keep: numbers that JSON lacks, and integers of more digits than a number has. A text that does
 * not end is a token, too: the search would else begin again at each quote in it.
 */
const tokens = /"(?:[^"\\]+|\\[^])*"?|-?Infinity|NaN|-?\d{16,}(?![\d.eE])|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
const asText = /^(?:-?Infinity|NaN|-?\d{16,})$/;
const needsText = /NaN|Infinity|(?<![\d.])\d{16,}(?![\d.eE])/;

function parseExactJson(text: string): unknown {
  return JSON.parse(
    needsText.test(text) ? text.replaceAll(tokens, (token) => (asText.test(token) ? `"${token}"` : token)) : text,
  );
}

/**
 * Parses an answer, with large integers, NaN and infinities as texts.
 * @throws UnfitValue if it is not UTF-8; BrokenTransfer if it is not JSON
 */
export function parseAnswer(body: Uint8Array): unknown {
  let text: string;
  try {
    text = strictText(body);
  } catch {
    throw new UnsendableValue("bytes that are not UTF-8");
  }
  try {
    return parseExactJson(text);
  } catch {
    throw new BrokenTransfer("the answer is not JSON"); // of a proxy, or cut off
  }
}

/** A value in `data` that is no value of the tensor's type. */
export class UnsendableValue extends Error {
  override readonly name = "UnfitValue";
}

/**
 * The tensor in an array of values, nested or flat; undefined if there are not exactly as many as its shape says.
 * @throws UnfitValue
 */
export function tensorOfJson(
  { dtype, dims }: { readonly dtype: TensorType; readonly dims: readonly number[] },
  data: readonly unknown[],
): Tensor | undefined {
  const values: readonly unknown[] = data.some(Array.isArray) ? data.flat(Number.POSITIVE_INFINITY) : data;
  const count = elementCount(dims);
  if (values.length !== count) {
    return undefined;
  }
  if (dtype === "string") {
    return { dtype, dims, data: encodeTexts(values.map(textOf)) };
  }
  const read = elementReader(dtype);
  const array = allocate(tensorElement(dtype), count);
  for (let index = 0; index < count; index += 1) {
    const element = read(values[index]);
    if (element === undefined) {
      throw unfit(values[index], dtype);
    }
    array[index] = element;
    // An integer that does not fit would wrap around.
    if (isInteger(dtype) && array[index] !== element) {
      throw unfit(values[index], dtype);
    }
  }
  return { dtype, dims, data: array };
}

function unfit(value: unknown, dtype: TensorType): UnsendableValue {
  return new UnsendableValue(`${JSON.stringify(value) ?? "nothing"} in place of a ${dtype}`);
}

function textOf(value: unknown): string {
  if (typeof value !== "string" || !value.isWellFormed()) {
    throw unfit(value, "string");
  }
  return value;
}

function isInteger(dtype: TensorType): boolean {
  return /^u?int/.test(dtype);
}

function elementReader(dtype: Exclude<TensorType, "string">): (value: unknown) => number | bigint | undefined {
  if (dtype === "bool") {
    return (value) => (value === true || value === 1 ? 1 : value === false || value === 0 ? 0 : undefined);
  }
  if (dtype === "int64" || dtype === "uint64") {
    return (value) =>
      Number.isSafeInteger(value) || (typeof value === "string" && asText.test(value) && /\d$/.test(value))
        ? BigInt(value as number | string)
        : undefined;
  }
  if (isInteger(dtype)) {
    return (value) => (Number.isInteger(value) ? (value as number) : undefined);
  }
  return (value) => {
    const number = numberOf(value);
    return number === undefined || dtype !== "float16" ? number : toFloat16Bits(number);
  };
}

/** Numbers that JSON lacks are texts here; null, which some servers send for them, could be any of these. */
function numberOf(value: unknown): number | undefined {
  return typeof value === "number" || (typeof value === "string" && asText.test(value)) ? Number(value) : undefined;
}
