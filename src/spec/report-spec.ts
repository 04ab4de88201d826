import { z } from "../util/zod.js";
import { isS3Uri } from "./s3-uri.js";
import { count, text } from "./values.js";

/** How an attempt is told of; it belongs to the attempt, and what fails of it fails nothing else. */
export interface ReportSpec {
  /** A page, relative to the spec's folder. */
  readonly html?: string | undefined;
  /** For node_exporter's textfile collector, relative to the spec's folder. */
  readonly metrics?: string | undefined;
  /** May hold a secret, so it goes nowhere but into the request. Empty: nobody is called. */
  readonly on_success: string;
  readonly on_failure: string;
  readonly method: "get" | "post";
  /** Seconds. */
  readonly timeout: number;
}

const localFile = text.refine((path) => !isS3Uri(path), {
  error: "expected a path on this machine",
  params: { showFound: true },
});

const url = z
  .string()
  .refine((given) => given === "" || isPlainUrl(given), {
    error: "expected http(s)://host/…, without user:password@, best from the environment: ${PING_URL}",
    params: { showFound: true },
  })
  .default("");

export const report = z.strictObject({
  html: localFile
    .refine((path) => path.endsWith(".html"), {
      error: "expected a name that ends in .html: it is written over what is there",
      params: { showFound: true },
    })
    .optional()
    .describe("a page about each attempt is written here, such as reports/${ds}.html; one file, no scripts"),
  metrics: localFile
    .refine((path) => path.endsWith(".prom"), {
      error: "expected a name that ends in .prom: node_exporter reads no others",
      params: { showFound: true },
    })
    .optional()
    .describe("metrics for Prometheus are kept here, in the folder of node_exporter's textfile collector"),
  on_success: url.describe(
    "called when an attempt finds or leaves the run complete, such as https://hc-ping.com/${HC_UUID}; the URL is never logged",
  ),
  on_failure: url.describe(
    "called when an attempt ends with another exit code than 0, such as https://hc-ping.com/${HC_UUID}/fail",
  ),
  method: z.enum(["get", "post"]).default("get").describe("post: with the report, or the error, as JSON"),
  timeout: count(1, 60).default(10).describe("seconds for a call with its tries; it never changes the exit code"),
}) satisfies z.ZodType<ReportSpec>;

function isPlainUrl(given: string): boolean {
  try {
    const { protocol, username, password } = new URL(given);
    return /^https?:$/.test(protocol) && username === "" && password === "";
  } catch {
    return false;
  }
}
