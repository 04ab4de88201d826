import type { ModelSignature } from "../../../columnar/tensor.js";
import type { Protocol } from "../protocol.js";
import { readPredictions, type ResponsePath } from "../rows/predictions.js";
import { type RequestTemplate, templateRequest } from "../rows/request.js";

export interface JsonOptions {
  readonly request: RequestTemplate;
  /** Where answers have the predictions. */
  readonly response: ResponsePath;
  readonly signature: ModelSignature;
}

/** Predictions by POST to one path, in JSON that the spec describes. The server says nothing about its model. */
export function json({ request, response, signature }: JsonOptions): Protocol {
  return {
    name: "json",
    layout: { request, response },
    find: () =>
      Promise.resolve({ signature, version: undefined, isVersionInPath: false, isBinary: false, mostRows: undefined }),
    inferUrl: ({ base }) => base,
    readyUrl: () => undefined,
    encode: ({ inputs }) => templateRequest(request, inputs),
    decode: (message, expected) => readPredictions(message, expected, response),
  };
}
