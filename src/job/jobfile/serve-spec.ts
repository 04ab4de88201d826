import { z } from "../../base/zod.js";
import type { TargetSpecs } from "./output-spec.js";
import { countFrom, durationIn, percentage, type Refuse, secret, text, textOrEmpty } from "./values.js";

/** How `serve` answers for the rows of a job: with the model and bindings of its last published run. */
export interface ServeSpec {
  readonly host: string;
  readonly port: number;
  /** Output columns that together name a row, whose prediction is looked up in the published run. Default: every row is scored. */
  readonly key?: readonly string[] | undefined;
  readonly batch: {
    /** Rows that the model is given at once, of as many requests as have them. */
    readonly rows: number;
    /** How long the first of them waits for others, in milliseconds. */
    readonly wait: number;
  };
  /** Rows that may wait for the model. */
  readonly queue: number;
  /** Rows of a request. */
  readonly max_rows: number;
  /** Bytes of the body of a request. */
  readonly max_bytes: number;
  /** How often it looks for a newly published run, in milliseconds. */
  readonly poll: number;
  /** The share of keys that the challenger answers, from 0 to 1. */
  readonly canary: number;
  /** What requests carry as Authorization: Bearer; undefined: none is asked for. A secret. */
  readonly token?: string | undefined;
  /** Paths of a certificate and its key in PEM; undefined: HTTP without TLS. */
  readonly tls?: { readonly cert: string; readonly key: string } | undefined;
}

const milliseconds = durationIn({ ms: 1, s: 1000, m: 60_000 }, "5ms, 2s or 1m");

export const serveSchema = z.strictObject({
  host: text.default("127.0.0.1").describe("Address to listen on; 0.0.0.0 takes requests from other machines."),
  port: countFrom(0, 65_535).default(8080).describe("Port to listen on; 0 takes a free one."),
  key: z
    .array(z.string())
    .min(1)
    .optional()
    .describe(
      "Columns of output.columns, by their names in the output, that together name a row. A row whose key the published run has gets its prediction; only the others are scored. Without it, all rows are scored.",
    ),
  batch: z
    .strictObject({
      rows: countFrom(1, 100_000).default(64).describe("Rows that the model is given at once, of several requests."),
      wait: milliseconds
        .prefault("0ms")
        .describe(
          "How long a row waits for others that are scored with it, such as 5ms. Default: it waits only while the model is busy.",
        ),
    })
    .prefault({}),
  queue: countFrom(1, 1_000_000)
    .default(1000)
    .describe("Rows that may wait for the model. A request that finds more is answered 503 at once."),
  max_rows: countFrom(1, 1_000_000).default(1000).describe("Most rows of a request; more are answered 413."),
  max_bytes: countFrom(1, 1_073_741_824)
    .default(8_388_608)
    .describe("Most bytes of a request's body; more are answered 413."),
  poll: milliseconds.prefault("10s").describe("How often it looks for a newly published run."),
  canary: percentage(100)
    .prefault("0%")
    .describe(
      "Share of keys, such as 5%, that the challenger's model answers. It needs `challenger`. The same keys each time.",
    ),
  token: textOrEmpty
    .optional()
    .meta(secret)
    .describe(
      "Token that requests must carry as Authorization: Bearer, best from the environment or ${file:PATH}. It is never logged.",
    ),
  tls: z
    .strictObject({
      cert: text.describe("File of the certificate and its chain, in PEM."),
      key: text.describe("File of the private key, in PEM."),
    })
    .optional()
    .describe("Serves HTTPS."),
}) satisfies z.ZodType<ServeSpec>;

interface ServedOutput extends TargetSpecs {
  readonly columns: readonly string[];
  readonly lineage: boolean;
}

/** Refuses a key that is not in the output, and targets where rows of unpublished runs could be answered. */
export function checkServe(
  { key, canary }: ServeSpec,
  { columns, lineage, postgres }: ServedOutput,
  hasChallenger: boolean,
  refuse: Refuse,
): void {
  if (canary > 0 && !hasChallenger) {
    refuse(["serve", "canary"], "expected `challenger` as well, whose model answers these keys");
  }
  if (canary > 0 && key === undefined) {
    refuse(["serve", "canary"], "expected serve.key as well: a share of the keys is answered");
  }
  const carried = new Set(columns.map((column) => column.replaceAll(".", "_")));
  for (const [index, column] of (key ?? []).entries()) {
    if (!carried.has(column)) {
      refuse(["serve", "key", index], `column \`${column}\` is not in output.columns, which must have it`);
    }
  }
  const isOwnTable = postgres === undefined || (postgres.mode === "replace" && postgres.swap === "rename");
  if (key !== undefined && !isOwnTable && !lineage) {
    const message =
      "the table also has rows of other runs, some of which are not published: set output.lineage to true, which tells them apart";
    refuse(["serve", "key"], message);
  }
}
