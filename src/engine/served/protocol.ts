import type { ServedFacts } from "../../binding/model-facts.js";
import type { NamedTensor, Tensor, TensorSignature } from "../../columnar/tensor.js";
import type { ResponseHeaders } from "../../net/request.js";
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
