import { timeOfDay } from "../../base/texts.js";
import { z } from "../../base/zod.js";
import { isObjectUri, isPlainUrl } from "./uri.js";
import { secretFile } from "./secrets.js";
import { countFrom, secret, text, textOrEmpty } from "./values.js";

/** How an attempt reports what it does. It may differ between attempts, and a failed report does not fail the run. */
export interface ReportSpec {
  /** The path of the HTML page, relative to the spec's folder. */
  readonly html?: string | undefined;
  /** The path of the metrics file for node_exporter's textfile collector, relative to the spec's folder. */
  readonly metrics?: string | undefined;
  /** The URL to call, which may contain a secret, so it is used for the request only. Empty: no call. */
  readonly on_success: string;
  readonly on_failure: string;
  readonly on_held: string;
  readonly on_late: string;
  /** A time of day in the job's time zone, "06:00". */
  readonly deadline?: string | undefined;
  /** The server for the attempt's lineage events. Without a URL, none are sent. */
  readonly openlineage?: OpenLineageSpec | undefined;
  readonly method: "get" | "post";
  /** The time limit of a call, in seconds. */
  readonly timeout: number;
}

export interface OpenLineageSpec {
  readonly url: string;
  readonly namespace: string;
  /** A secret. */
  readonly token?: string | undefined;
}

const localFile = text.refine((path) => !isObjectUri(path), {
  error: "expected a path on this machine",
  params: { showFound: true },
});

const url = z
  .string()
  .refine((given) => given === "" || isPlainUrl(given) || secretFile(given) !== undefined, {
    error: "expected http(s)://host/…, without user:password@, best from the environment: ${PING_URL}",
    params: { showFound: true },
  })
  .default("")
  .meta(secret);

export const report = z
  .strictObject({
    html: localFile
      .refine((path) => path.endsWith(".html"), {
        error: "expected a name that ends in .html, because an existing file is replaced",
        params: { showFound: true },
      })
      .optional()
      .describe(
        "File for an HTML page about the attempt, such as reports/${ds}.html. It needs no other files and has no scripts.",
      ),
    metrics: localFile
      .refine((path) => path.endsWith(".prom"), {
        error: "expected a name that ends in .prom, because node_exporter reads no other files",
        params: { showFound: true },
      })
      .optional()
      .describe(
        "File for Prometheus metrics, in the folder of node_exporter's textfile collector. It must end in .prom.",
      ),
    on_success: url.describe(
      "URL to call at the end of an attempt that completes the run or finds it complete, such as https://hc-ping.com/${HC_UUID} or ${file:/run/secrets/ping-url}. The URL is never logged.",
    ),
    on_failure: url.describe("URL to call when the attempt fails, such as https://hc-ping.com/${HC_UUID}/fail."),
    on_held: url.describe(
      "URL to call when the checks hold the run: at least once, as a rule exactly once, by the attempt that makes the verdict, or by the next one if no call is recorded. The attempt then calls neither on_success nor on_failure.",
    ),
    on_late: url.describe(
      "URL to call when the attempt misses `deadline`, or will miss it at its rate so far. Called once for a late run as a rule, whichever of its attempts and workers is late: by the first. A call that fails is repeated when the attempt ends, and by the next attempt that is late.",
    ),
    deadline: z
      .string()
      .regex(timeOfDay, 'expected a time of day such as "06:00"')
      .optional()
      .describe(
        'Time of day, in `timezone`, by which the run should be complete, such as "06:00". It means the 06:00 that is closest to the start of the attempt. A late attempt logs a warning and calls on_late.',
      ),
    openlineage: z
      .strictObject({
        url: url.describe(
          "URL of a server for OpenLineage events, such as ${OPENLINEAGE_URL}; events are sent to api/v1/lineage below it. Empty: no events. The URL is never logged.",
        ),
        namespace: text.default("default").describe("OpenLineage namespace of the job, such as prod."),
        token: textOrEmpty
          .optional()
          .meta(secret)
          .describe(
            "Token that events carry as Authorization: Bearer, best from the environment or ${file:PATH}. Empty: no token. It is never logged.",
          ),
      })
      .optional()
      .describe("Sends OpenLineage events about the start and the end of each attempt."),
    method: z
      .enum(["get", "post"])
      .default("get")
      .describe("HTTP method of the calls. post sends the report, or the error, as JSON."),
    timeout: countFrom(1, 60)
      .default(10)
      .describe("Seconds for a call, retries included. A call that fails never changes the exit code."),
  })
  .refine(({ on_late: onLate, deadline }) => onLate === "" || deadline !== undefined, {
    error: "expected `deadline` as well, which defines when the run is late",
    path: ["on_late"],
  }) satisfies z.ZodType<ReportSpec>;
