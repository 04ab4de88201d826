import { z } from "../util/zod.js";
import { s3Keys, type S3Spec } from "./s3-spec.js";
import { count, duration, name, text } from "./values.js";

export interface InputSpec extends S3Spec {
  /** Files or globs, relative to the spec's folder, or in S3. */
  readonly path: readonly string[];
  readonly format?: "parquet" | "arrow" | undefined;
  /** A file that says the input is complete; absent: exit 75. */
  readonly ready?: string | undefined;
  /** Seconds that an attempt waits for its input before exit 75; of the attempt. */
  readonly wait?: number | undefined;
  /** Fewer rows: exit 75. */
  readonly min_rows: number;
  /** Types of values from hive folder names (`dt=2026-01-31/`); text where none is given. */
  readonly partitions: Readonly<Record<string, PartitionType>>;
  /** Computed columns: row-wise SQL over the shard's columns. */
  readonly columns: Readonly<Record<string, string>>;
  /** Row filter: SQL that is true for the rows to be scored. */
  readonly where?: string | undefined;
  /** Of the attempt: it may differ from that of the plan. */
  readonly verify: "pinned" | "full";
  /** Where bytes from S3 are kept until they are read; of the attempt. */
  readonly spool: { readonly path?: string | undefined; readonly max_mb: number };
}

export type PartitionType = "text" | "date" | "int64" | "float64" | "bool";

/** `input` of a spec. */
export const input = z.strictObject({
  path: z
    .union([text, z.array(text).min(1)], { error: "expected a path or a list of paths" })
    .transform((value) => (typeof value === "string" ? [value] : value))
    .describe("Parquet files or globs, relative to this file, or s3://bucket/key; or a list of them"),
  format: z.enum(["parquet", "arrow"]).optional().describe("default: by the name; else Parquet"),
  ready: text.optional().describe("a file that says the input is complete; not there yet: exit 75"),
  wait: duration
    .optional()
    .describe(
      "how long an attempt waits until input.ready is there, files match input.path and have input.min_rows rows, before exit 75: such as 30s, 15m or 4h; default: not at all",
    ),
  min_rows: count(0, Number.MAX_SAFE_INTEGER).default(1).describe("fewer rows: exit 75"),
  partitions: z
    .record(z.string(), z.enum(["text", "date", "int64", "float64", "bool"]))
    .default({})
    .describe(
      "types of values from hive folder names, such as dt: date; default text. A column of that name in the file wins",
    ),
  columns: z
    .record(name, text)
    .default({})
    .describe(
      "computed columns: SQL for each row over the shard's columns, such as amount_log: ln(1 + amount); ${name} is a text value there",
    ),
  where: text.optional().describe("SQL for each row; rows where it is not true are left out"),
  verify: z
    .enum(["pinned", "full"])
    .default("pinned")
    .describe(
      "pinned: size and time of each shard must stay as planned; full: its sha256 too, and pages must match the checksums that they have",
    ),
  ...s3Keys,
  spool: z
    .strictObject({
      path: text.optional().describe("a folder, relative to this file; default: infer-batch-spool-<uid> in TMPDIR"),
      max_mb: count(16, 1_048_576).default(1024).describe("MiB that may be there at once"),
    })
    .prefault({})
    .describe("in S3: where fetched bytes are until they are read"),
}) satisfies z.ZodType<InputSpec>;
