import type { Protocol } from "../protocol.js";
import { urlAt } from "../server.js";
import { findModel, modelUrl } from "./find-model.js";
import { readStatistics } from "./statistics.js";
import { binaryRequest, jsonRequest, readAnswer } from "./inference.js";

/** The Open Inference Protocol, version 2, over HTTP. */
export const v2: Protocol = {
  name: "v2",
  find: findModel,
  inferUrl: (server, { version, isVersionInPath }) => modelUrl(server, isVersionInPath ? version : undefined, "/infer"),
  statistics: readStatistics,
  readyUrl: (server) => urlAt(server, "/v2/health/ready"),
  encode: (parts, { isBinary }) => (isBinary ? binaryRequest(parts) : jsonRequest(parts)),
  decode: (message, { outputs }) => readAnswer(message, outputs),
};
