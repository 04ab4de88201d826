import type { ServedFacts } from "../../binding/served-model.js";
import type { Answer, AnswerMessage, EncodedRequest, Expected, RequestParts, UnfitRequest } from "./message.js";
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
  inferUrl(server: ModelServer, version: RequestedVersion): string;
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
