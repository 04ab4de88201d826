import type { ResponseHeaders } from "../../net/request.js";
import type { NamedTensor, Tensor, TensorSignature } from "../../columnar/tensor.js";

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
