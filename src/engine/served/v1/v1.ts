import type { ModelSignature } from "../../../columnar/tensor.js";
import type { Protocol } from "../protocol.js";
import { readPredictions, type ResponsePath } from "../rows/predictions.js";
import { templateRequest } from "../rows/request.js";
import { findModel, modelUrl } from "./find-model.js";

export interface V1Options {
  /** The layout of requests: a list of rows, or a list for each input. */
  readonly request: "instances" | "inputs";
  /** Where answers have the predictions. */
  readonly response: ResponsePath;
  /** For servers without metadata. */
  readonly signature: ModelSignature | undefined;
}

/** The REST API of TensorFlow Serving, which KServe calls V1. */
export function v1({ request, response, signature }: V1Options): Protocol {
  const template = { [request]: `{{${request}}}` };
  return {
    name: "v1",
    layout: { request, response },
    find: (server, { doing, wanted }) => findModel(server, { doing, wanted, signature }),
    inferUrl: (server, { version, isVersionInPath }) =>
      modelUrl(server, isVersionInPath ? version : undefined, ":predict"),
    readyUrl: (server) => modelUrl(server, undefined),
    encode: ({ inputs }) => templateRequest(template, inputs),
    decode: (message, expected) => readPredictions(message, expected, response),
  };
}
