import { z } from "../util/zod.js";
import { isPlainUrl } from "./model-uri.js";
import { autoOrCount, count, text } from "./values.js";

/** A model on a server. */
export interface ServerSpec {
  readonly protocol: "v2";
  readonly url: string;
  /** The model's name on the server. */
  readonly name: string;
  /** The version of the model. Default: the version that the server returns. */
  readonly version?: string | undefined;
  /** The token that requests carry as `Authorization: Bearer`. It is a secret. */
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
      .literal("v2")
      .describe("v2 is the Open Inference Protocol over HTTP, of Triton, KServe, MLServer and others."),
    url: text
      .refine(isPlainUrl, "expected a URL such as http://triton:8000, without user and password")
      .describe("URL of the server, without /v2."),
    name: pathPart("model's name").describe("Name of the model on the server."),
    version: pathPart("version")
      .optional()
      .describe("Version of the model. Default: the version that the server returns when the run is planned."),
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
  .describe("A model on a server, instead of path. See served-models.md.") satisfies z.ZodType<ServerSpec>;
