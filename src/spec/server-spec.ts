import { z } from "../util/zod.js";
import { isPlainUrl } from "./model-uri.js";
import { autoOrCount, count, text } from "./values.js";

/** A model that a server has. */
export interface ServerSpec {
  readonly protocol: "v2";
  readonly url: string;
  /** The model's name at the server. */
  readonly name: string;
  /** Default: the version that the server names. */
  readonly version?: string | undefined;
  /** A secret: sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
  /** Seconds that a request may take. */
  readonly timeout: number;
  /** Requests in flight, at most. */
  readonly concurrency: number | "auto";
}

/** Names and versions are parts of paths of the protocol. */
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
    name: pathPart("model's name").describe("Name of the model at the server."),
    version: pathPart("version")
      .optional()
      .describe("Version of the model. Default: the one that the server names when the run is planned."),
    token: text.optional().describe("Token that requests carry as Authorization: Bearer, best from the environment."),
    timeout: count(1, 3600)
      .default(60)
      .describe(
        "Seconds that a request may take. One that takes longer is sent again, until retry.max_seconds is over.",
      ),
    concurrency: autoOrCount(1, 256)
      .default("auto")
      .describe(
        "Requests in flight, at most. auto finds the number with the highest throughput, up to 64. Fewer are sent while the server is overloaded.",
      ),
  })
  .describe("A model that a server has, in place of path. See served-models.md.") satisfies z.ZodType<ServerSpec>;
