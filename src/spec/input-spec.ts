import { z } from "../util/zod.js";
import { storeKeys, type StoreSpec } from "./store-spec.js";
import { count, duration, name, text } from "./values.js";

export interface InputSpec extends StoreSpec {
  /** Files or globs, relative to the spec's folder, or in a store of objects. */
  readonly path: readonly string[];
  readonly format?: "parquet" | "arrow" | undefined;
  /** A file that marks the input as complete. While it is missing, a run ends with exit code 75. */
  readonly ready?: string | undefined;
  /** Seconds that an attempt waits for its input before exit code 75. It may differ between attempts. */
  readonly wait?: number | undefined;
  /** The fewest rows. With fewer, a run ends with exit code 75. */
  readonly min_rows: number;
  /** How old the input may be when a run is planned; undefined: any age. */
  readonly freshness?: FreshnessSpec | undefined;
  /** Types of values from Hive folder names (`dt=2026-01-31/`). Default: text. */
  readonly partitions: Readonly<Record<string, PartitionType>>;
  /** Computed columns: row-wise SQL over the shard's columns. */
  readonly columns: Readonly<Record<string, string>>;
  /** Row filter: SQL that is true for the rows to be scored. */
  readonly where?: string | undefined;
  /** How shards are checked. It may differ between attempts. */
  readonly verify: "pinned" | "full";
  /** The folder for bytes from a store until they are read, and its size. It may differ between attempts. */
  readonly spool: { readonly path?: string | undefined; readonly max_mb: number };
}

export interface FreshnessSpec {
  /** A date or timestamp column of the input. */
  readonly column: string;
  /** A limit in seconds. The run warns if the newest value is older. */
  readonly warn_after?: number | undefined;
  /** A limit in seconds. The run ends with exit code 75 if the newest value is older. */
  readonly error_after?: number | undefined;
}

export type PartitionType = "text" | "date" | "int64" | "float64" | "bool";

const freshness = z
  .strictObject({
    column: text.describe(
      "Date or timestamp column of the input, or of its folder names. Planning reads this column of all rows.",
    ),
    warn_after: duration
      .optional()
      .describe(
        "Warn if the newest value is older than this at the end of the logical date, or now if that is earlier.",
      ),
    error_after: duration
      .optional()
      .describe(
        "If the newest value is older, the input is not ready: the run waits as input.wait says, or ends with exit code 75.",
      ),
  })
  .refine(({ warn_after: warn, error_after: error }) => warn !== undefined || error !== undefined, {
    error: "expected warn_after, error_after or both",
  })
  .refine(({ warn_after: warn = 0, error_after: error = Number.POSITIVE_INFINITY }) => warn <= error, {
    error: "warn_after is longer than error_after, so it never applies",
  }) satisfies z.ZodType<FreshnessSpec>;

/** `input` of a spec. */
export const input = z.strictObject({
  path: z
    .union([text, z.array(text).min(1)], { error: "expected a path or a list of paths" })
    .transform((value) => (typeof value === "string" ? [value] : value))
    .describe(
      "Parquet or Arrow files: a file, a folder, a glob, or a list of these, relative to the spec or in a store (s3://bucket/key, gs://bucket/key, az://account/container/key).",
    ),
  format: z
    .enum(["parquet", "arrow"])
    .optional()
    .describe("File format. Default: Arrow for names that end in .arrow, .arrows, .feather or .ipc, else Parquet."),
  ready: text
    .optional()
    .describe(
      "Marker file that is written when the input is complete. While it is missing, the run ends with exit code 75, or waits as input.wait says.",
    ),
  wait: duration
    .optional()
    .describe(
      "How long to wait for input.ready, for files that match input.path and for input.min_rows before exit code 75, such as 30s, 15m or 4h. It applies to input.freshness, too. Default: do not wait.",
    ),
  min_rows: count(0, Number.MAX_SAFE_INTEGER)
    .default(1)
    .describe("Fewest rows that the input may have; fewer end the run with exit code 75."),
  freshness: freshness.optional().describe("How old the newest value of a column may be when a run is planned."),
  partitions: z
    .record(z.string(), z.enum(["text", "date", "int64", "float64", "bool"]))
    .default({})
    .describe(
      "Types of the columns in Hive folder names, such as dt: date. Default: text. A column of the same name in the file takes precedence.",
    ),
  columns: z
    .record(name, text)
    .default({})
    .describe(
      "Computed columns: DuckDB SQL over the columns of one row, such as amount_log: ln(1 + amount). ${name} stands for a param as a text value, without quotes.",
    ),
  where: text
    .optional()
    .describe("Row filter: DuckDB SQL over the columns of one row. Rows for which it is not true are not scored."),
  verify: z
    .enum(["pinned", "full"])
    .default("pinned")
    .describe(
      "pinned checks that size and modification time (in a store: the ETag or generation) of each shard stay as planned. full also checks its sha256 and the page checksums.",
    ),
  ...storeKeys,
  spool: z
    .strictObject({
      path: text
        .optional()
        .describe(
          "For input in a store: folder for bytes that were fetched and not yet read, relative to the spec. Default: infer-batch-spool-<uid> in TMPDIR.",
        ),
      max_mb: count(16, 1_048_576).default(1024).describe("Most MiB that the folder may hold at once."),
    })
    .prefault({})
    .describe("For input in a store: where fetched bytes are kept until they are read."),
}) satisfies z.ZodType<InputSpec>;

/** SQL does not tell names by case. */
export function checkColumnNames(
  { input: { columns } }: { readonly input: Pick<InputSpec, "columns"> },
  context: z.RefinementCtx,
): void {
  const seen = new Set<string>();
  for (const column of Object.keys(columns)) {
    if (seen.has(column.toLowerCase())) {
      context.addIssue({
        code: "custom",
        path: ["input", "columns", column],
        message: `column \`${column}\` is computed twice (case does not count)`,
      });
    }
    seen.add(column.toLowerCase());
  }
}
