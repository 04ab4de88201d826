import type { ModelSignature } from "../../columnar/tensor.js";
import { z } from "../../util/zod.js";
import { isPlainUrl } from "../model-uri.js";
import { autoOrCount, count, text } from "../values.js";
import { responsePath } from "./response-path.js";
import { signature } from "./signature.js";

/** A model on a server. */
export interface ServerSpec {
  readonly protocol: "v2" | "v1";
  readonly url: string;
  /** The model's name on the server. */
  readonly name: string;
  /** The version of the model. Default: the version that the server returns. */
  readonly version?: string | undefined;
  /** v1: a list of rows, or a list for each input. Default: instances. */
  readonly request?: "instances" | "inputs" | undefined;
  /** v1: where answers have the predictions. Default: predictions, or outputs for requests with inputs. */
  readonly response?: readonly (string | number)[] | undefined;
  /** v1: the inputs and outputs, if the server does not describe them. */
  readonly signature?: ModelSignature | undefined;
  /** A secret: sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
  /** The time limit of a request, in seconds. */
  readonly timeout: number;
  /** The limit of requests in flight. */
  readonly concurrency: number | "auto";
}

/** Names and versions are segments of the protocol's paths. */
const pathPart = (what: string): z.ZodString =>
  text.regex(/^[^/?#\s]{1,255}$/, `expected the ${what} as in the server's paths, without / and blanks`);

export const server = z
  .strictObject({
    protocol: z
      .enum(["v2", "v1"])
      .describe(
        "v2 is the Open Inference Protocol over HTTP, of Triton, KServe, MLServer and others; v1 is the REST API of TensorFlow Serving and KServe.",
      ),
    url: text
      .refine(isPlainUrl, "expected a URL such as http://triton:8000, without user and password")
      .describe("URL of the server, without /v2 or /v1."),
    name: pathPart("model's name").describe("Name of the model at the server."),
    version: pathPart("version")
      .optional()
      .describe("Version of the model. Default: the one that the server names when the run is planned."),
    request: z
      .enum(["instances", "inputs"])
      .optional()
      .describe("For v1: instances sends a list of rows, inputs a list for each input. Default: instances."),
    response: responsePath
      .optional()
      .describe(
        "For v1: where answers have the predictions, as data.scores. Default: predictions, or outputs if request is inputs.",
      ),
    signature: signature.optional(),
    token: text.optional().describe("Token that requests carry as Authorization: Bearer, best from the environment."),
    timeout: count(1, 3600)
      .default(60)
      .describe("Time limit of a request, in seconds. A request that takes longer is retried until retry.max_seconds."),
    concurrency: autoOrCount(1, 256)
      .default("auto")
      .describe(
        "Limit of requests in flight. auto finds the number with the highest throughput, up to 64, and lowers it while the server is overloaded.",
      ),
  })
  .superRefine((given, context) => {
    for (const key of given.protocol === "v2" ? (["request", "response", "signature"] as const) : []) {
      if (given[key] !== undefined) {
        context.addIssue({ code: "custom", path: [key], message: "only protocol: v1 takes this key" });
      }
    }
  })
  .describe("A model that a server has, in place of path. See served-models.md.") satisfies z.ZodType<ServerSpec>;
