import { isCalendarDate } from "../../run/plan/identity.js";
import { didYouMean } from "../../base/suggest.js";
import { z } from "../../base/zod.js";
import { catalog, type CatalogSpec, tableName as nameInCatalog } from "./catalog-spec.js";
import { needlessKeys, storeKeys, type StoreSpec } from "./input-spec.js";
import { isObjectUri, objectFolder, objectUriProblem, otherStoreProblem, parseObjectUri } from "./uri.js";
import { countFrom, name, outputName, plan, type Refuse, secret, showFound, text } from "./values.js";

export interface TargetSpecs {
  readonly parquet?: ParquetOutputSpec | undefined;
  readonly delta?: DeltaOutputSpec | undefined;
  readonly iceberg?: IcebergOutputSpec | undefined;
  readonly postgres?: PostgresOutputSpec | undefined;
}

export interface ParquetOutputSpec extends StoreOutputSpec {
  readonly path: string;
  readonly compression: Compression;
}

export type Compression = "zstd" | "snappy" | "gzip" | "uncompressed";

/** How an output in a store of objects is reached and written. */
export interface StoreOutputSpec extends Omit<StoreSpec, "request_payer"> {
  /** How the store is to encrypt; default: as the bucket says. */
  readonly sse?:
    | {
        readonly algorithm: "AES256" | "aws:kms";
        readonly kms_key?: string | undefined;
        readonly bucket_key?: boolean | undefined;
      }
    | undefined;
  /** Where parts are until they are sent; of the attempt. */
  readonly spool?: { readonly path: string } | undefined;
}

const { endpoint, region, path_style, timeouts } = storeKeys;

const storeOutputKeys = {
  endpoint,
  region,
  path_style,
  timeouts,
  sse: z
    .strictObject({
      algorithm: z.enum(["AES256", "aws:kms"]).describe("AES256 is SSE-S3, aws:kms is SSE-KMS."),
      kms_key: text.optional().describe("For aws:kms: id or ARN of the key. Default: the account's key for S3."),
      bucket_key: z
        .boolean()
        .optional()
        .describe(
          "For aws:kms: true uses an S3 Bucket Key, which saves requests to KMS. Default: the bucket's setting.",
        ),
    })
    .optional()
    .describe("For S3: server-side encryption of parts. Default: the bucket's setting."),
  spool: z
    .strictObject({
      path: text.describe("Folder for parts until they are sent, relative to the spec."),
    })
    .optional()
    .describe(
      "For output in a store: where parts are kept until they are sent, two at a time. Default: the folder infer-batch-spool-<uid> in TMPDIR.",
    ),
};

export const parquetOutput = z.strictObject({
  path: text
    .meta(plan)
    .describe(
      "Folder for the predictions, relative to the spec or in a store (s3://bucket/folder, gs://bucket/folder, az://account/container/folder). It belongs to one run, so put ${ds} into it.",
    ),
  compression: z
    .enum(["zstd", "snappy", "gzip", "uncompressed"])
    .default("zstd")
    .describe("Compression of the Parquet parts."),
  ...storeOutputKeys,
}) satisfies z.ZodType<ParquetOutputSpec>;

interface LakeOutputSpec {
  /** replace: a run takes the place of all rows of its partition. */
  readonly mode: "append" | "replace";
  readonly create: boolean;
  /** Values of the columns that the table is partitioned by, the same for all rows of a run. */
  readonly partition: Readonly<Record<string, string>>;
}

const lakeOutput = {
  mode: z
    .enum(["append", "replace"], {
      error:
        "expected append or replace; to update rows by a key, append them to a table of their own, and then run MERGE INTO scores USING new_scores ON … WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    })
    .default("append")
    .meta(plan)
    .describe("append adds rows; replace removes the rows of the partition in the commit that adds those of a run."),
  create: z.boolean().default(true).describe("true creates the table if it does not exist."),
  partition: z
    .record(name, z.string())
    .default({})
    .meta(plan)
    .describe(
      "Values of the columns that the table is partitioned by, as ds: ${ds}. A new table has them as date, if the value is one, or as string.",
    ),
};

export interface DeltaOutputSpec extends ParquetOutputSpec, LakeOutputSpec {
  readonly conditional_writers?: true | undefined;
}

export const deltaOutput = parquetOutput.extend({
  path: text
    .meta(plan)
    .describe(
      "Folder of the Delta table, relative to the spec or in a store (s3://bucket/folder, gs://bucket/folder, az://account/container/folder). Each run adds its rows as one version.",
    ),
  ...lakeOutput,
  conditional_writers: z
    .literal(true)
    .optional()
    .describe(
      "For S3: says that no other program writes to the table, or that each creates versions by conditional requests, as deltalake does. Spark without a lock table overwrites versions of others; one with DynamoDB does not see those of others.",
    ),
}) satisfies z.ZodType<DeltaOutputSpec>;

export interface IcebergOutputSpec extends Omit<ParquetOutputSpec, "path">, LakeOutputSpec {
  readonly catalog: CatalogSpec;
  readonly table: string;
  /** A folder in that of the table with files that are no part of it, in which the rows are then. No spec says so. */
  readonly beside?: string | undefined;
}

export const icebergOutput = parquetOutput.omit({ path: true }).extend({
  catalog,
  table: text
    .meta(plan)
    .describe("Name of the table in the catalog, as db.scores. Each run adds its rows as one snapshot."),
  ...lakeOutput,
}) satisfies z.ZodType<IcebergOutputSpec>;

/** With a longer path, the names of parts below it would exceed the limit. */
const folderLimitBytes = 700;

/** Refuses a place where the output cannot be, and keys that it does not take. */
export function checkFiles(target: "parquet" | "delta", output: ParquetOutputSpec, refuse: Refuse): void {
  const at = ["output", target];
  const { path, sse } = output;
  const problem =
    otherStoreProblem(path) ?? (isObjectUri(path) ? (objectUriProblem(path) ?? folderProblem(path)) : undefined);
  if (problem !== undefined) {
    refuse([...at, "path"], problem, showFound);
  } else if (/\/_challenger\/*$/.test(`/${path}`)) {
    refuse([...at, "path"], "_challenger is the folder of a challenger's predictions: name another one", showFound);
  } else {
    const keys = Object.keys(storeOutputKeys).filter((key) => output[key as keyof StoreOutputSpec] !== undefined);
    for (const { key, message } of needlessKeys(keys, [path])) {
      refuse([...at, key], message, showFound);
    }
    if (sse?.algorithm === "AES256" && (sse.kms_key ?? sse.bucket_key) !== undefined) {
      refuse([...at, "sse"], "kms_key and bucket_key go with algorithm: aws:kms", showFound);
    }
  }
}

/** Refuses a place where a table cannot be. */
export function checkDelta(output: DeltaOutputSpec, params: Readonly<Record<string, string>>, refuse: Refuse): void {
  checkFiles("delta", output, refuse);
  checkPartition("delta", output, params, refuse);
  const { path, conditional_writers: isDeclared } = output;
  if (path.startsWith("s3:") && isDeclared !== true) {
    refuse(
      ["output", "delta", "conditional_writers"],
      "expected true, for a table in S3: it says that no other program writes to the table, or that each creates versions by conditional requests, as deltalake does",
    );
  }
}

/** Refuses what cannot be the name of a table. */
export function checkIceberg(
  output: IcebergOutputSpec,
  params: Readonly<Record<string, string>>,
  refuse: Refuse,
): void {
  if (nameInCatalog(output.table) === undefined) {
    refuse(["output", "iceberg", "table"], "expected the name of a table in the catalog, such as db.scores", showFound);
  }
  checkPartition("iceberg", output, params, refuse);
}

function checkPartition(
  target: "delta" | "iceberg",
  { mode, partition }: LakeOutputSpec,
  params: Readonly<Record<string, string>>,
  refuse: Refuse,
): void {
  const at = ["output", target, "partition"];
  const values = new Set(Object.values(partition));
  const apart = Object.keys(params).find(
    (param) => isCalendarDate(params[param] ?? "") && !values.has(params[param] ?? ""),
  );
  if (mode === "replace" && values.size === 0) {
    refuse(at, "expected the partition that a run replaces, as { ds: ${ds} }");
  } else if (mode === "replace" && apart !== undefined) {
    refuse(
      at,
      `expected the date of the run, as { ${apart}: \${${apart}} }: a run of an older date would replace the rows of a newer one`,
    );
  }
}

function folderProblem(path: string): string | undefined {
  const { key } = parseObjectUri(objectFolder(path));
  if (key.split("/").includes("")) {
    return "expected a folder without empty names between slashes";
  }
  return new TextEncoder().encode(key).length > folderLimitBytes
    ? `expected a folder of at most ${folderLimitBytes} bytes`
    : undefined;
}

export interface PostgresOutputSpec {
  /** May hold a password, so it goes nowhere but into the connection. Empty: from PGHOST and its like. A secret. */
  readonly url: string;
  /** The password, which replaces the one in the URL. A secret. */
  readonly password?: string | undefined;
  /** `schema.table`, or a table of `public`. */
  readonly table: string;
  readonly mode: PostgresMode;
  /** Output columns that name a row; what upsert and replace find its like by. */
  readonly key: readonly string[];
  readonly create: boolean;
  readonly control_schema: string;
  /** Tables that `replace` keeps for `rollback`. */
  readonly keep_previous: number;
  readonly on_duplicate: "fail" | "last";
  readonly swap: "rename" | "delete_insert";
  readonly tls?: PostgresTls | undefined;
  readonly timeouts: PostgresTimeouts;
}

export type PostgresMode = "append" | "upsert" | "replace";

/** require: encrypts, and does not check who answers. */
export type PostgresTls = "verify-full" | "require" | "disable";

export interface PostgresTimeouts {
  readonly connect: number;
  /** Limit of one statement; a connection that is silent for longer is closed. */
  readonly statement: number;
  readonly lock: number;
}

const tableName = /^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$/;

export const postgresOutput = z.strictObject({
  url: z
    .string()
    .regex(
      /^$|^postgres(ql)?:\/\/|^\$\{.+\}$/,
      "expected postgres://user@host:port/database, with %xx for characters that mean something in URLs, best from the environment: ${DATABASE_URL}",
    )
    .default("")
    .meta(secret)
    .describe(
      "postgres://user@host:port/database. Keep passwords out of this file: use ${DATABASE_URL}, ${file:/run/secrets/database-url}, PGPASSWORD or .pgpass. Default: libpq's variables (PGHOST, PGUSER and so on).",
    ),
  password: z
    .string()
    .min(1)
    .optional()
    .meta(secret)
    .describe(
      "Password, in place of one in the URL: ${file:/run/secrets/password} is read again for each connection, so it may change during a run; ${PASSWORD} comes from the environment.",
    ),
  table: z
    .string()
    .regex(tableName, "expected table or schema.table, of letters, digits and _, at most 63 each")
    .meta(plan)
    .describe("Target table as schema.table, case-sensitive. Without a schema it is in public."),
  mode: z
    .enum(["append", "upsert", "replace"])
    .default("append")
    .meta(plan)
    .describe(
      "append adds rows; upsert adds rows and updates those with the same key; replace fills a new table and swaps it in when it is complete.",
    ),
  key: z.array(name).default([]).meta(plan).describe("Output columns that identify a row. Required for upsert."),
  create: z.boolean().default(true).describe("true creates the table if it does not exist."),
  control_schema: name
    .default("infer_batch")
    .meta(plan)
    .describe("Schema of the control tables (plan, progress, rejects). Created on first use."),
  keep_previous: countFrom(0, 100).default(1).describe("For replace: previous tables kept for `infer-batch rollback`."),
  on_duplicate: z
    .enum(["fail", "last"])
    .default("fail")
    .meta(plan)
    .describe("For upsert, when a key occurs twice in a run: fail ends it with exit code 65, last keeps the last row."),
  swap: z
    .enum(["rename", "delete_insert"])
    .default("rename")
    .describe(
      "For replace: rename swaps the tables; delete_insert exchanges the rows and keeps the table, which views and foreign keys refer to.",
    ),
  tls: z
    .enum(["verify-full", "require", "disable"])
    .optional()
    .describe(
      "TLS of the connection. Default: verify-full for other machines, none for this one. require encrypts without checking the server's certificate.",
    ),
  timeouts: z
    .strictObject({
      connect: countFrom(1, 3600).default(10).describe("Seconds to connect."),
      statement: countFrom(1, 86_400)
        .default(120)
        .describe(
          "Longest time in seconds for a SQL statement that writes or commits a span. A connection that is silent for longer is closed.",
        ),
      lock: countFrom(1, 3600)
        .default(10)
        .describe(
          "Seconds to wait for a lock that another attempt holds. After that, if that attempt hangs, its database session is ended.",
        ),
    })
    .prefault({}),
}) satisfies z.ZodType<PostgresOutputSpec>;

/** @param outputs the columns that the model gives; undefined: its own, which are not known yet */
export function checkPostgres(
  { mode, key, table }: PostgresOutputSpec,
  columns: readonly string[],
  outputs: Readonly<Record<string, string>> | undefined,
  refuse: Refuse,
): void {
  const at = ["output", "postgres"];
  if (mode === "upsert" && key.length === 0) {
    refuse([...at, "key"], "expected the columns that name a row, since mode is upsert; such as [id]");
  }
  if (mode === "append" && key.length > 0) {
    refuse([...at, "key"], "mode append does not use a key; did you mean mode: upsert?");
  }
  if (new Set(key).size < key.length) {
    refuse([...at, "key"], "a column is named twice");
  }
  const known = [...columns.map((column) => column.replaceAll(".", "_")), ...Object.keys(outputs ?? {})];
  for (const [index, column] of outputs === undefined ? [] : key.entries()) {
    if (!known.includes(column)) {
      const message = `\`${column}\` is not an output column; they are ${known.join(", ")}${didYouMean(column, known)}`;
      refuse([...at, "key", index], message);
    }
  }
  if (outputName.test(table) && table.toLowerCase().startsWith("pg_")) {
    refuse([...at, "table"], "names that start with pg_ belong to Postgres");
  }
}

/** `schema.table` in two. */
export function splitTable(table: string): { schema: string; table: string } {
  const [first = "", second] = table.split(".");
  return second === undefined ? { schema: "public", table: first } : { schema: first, table: second };
}
