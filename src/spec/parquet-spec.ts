import { z } from "../util/zod.js";
import type { PostgresOutputSpec } from "./postgres-spec.js";
import { needlessKeys, type Problem, storeKeys, type StoreSpec } from "./store-spec.js";
import { isObjectUri, objectFolder, objectUriProblem, otherStoreProblem, parseObjectUri } from "./object-uri.js";
import { count, text } from "./values.js";

/** A key for each kind of target. Exactly one is there; none where rows go through a pipe. */
export interface TargetSpecs {
  readonly parquet?: ParquetOutputSpec | undefined;
  readonly postgres?: PostgresOutputSpec | undefined;
}

/** Files as the target. */
export interface ParquetOutputSpec extends StoreOutputSpec {
  /** A folder, relative to the spec's, or in a store of objects. */
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

const { endpoint, region, path_style } = storeKeys;

const storeOutputKeys = {
  endpoint,
  region,
  path_style,
  timeouts: z
    .strictObject({
      connect: count(1, 3600).default(10).describe("Seconds to connect. Default: 10."),
      silence: count(1, 3600)
        .default(20)
        .describe("Seconds without a byte in either direction before a request is retried. Default: 20."),
      request: count(1, 86_400)
        .default(300)
        .describe("Seconds for one request, which may send a whole part. Default: 300."),
    })
    .optional()
    .describe("Time limits of requests to a store."),
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
  path: text.describe(
    "Folder for the predictions, relative to the spec or in a store (s3://bucket/folder, gs://bucket/folder, az://account/container/folder). It belongs to one run, so put ${ds} into it.",
  ),
  compression: z
    .enum(["zstd", "snappy", "gzip", "uncompressed"])
    .default("zstd")
    .describe("Compression of the Parquet parts."),
  ...storeOutputKeys,
}) satisfies z.ZodType<ParquetOutputSpec>;

/** With a longer path, the names of parts below it would exceed the limit. */
const folderLimitBytes = 700;

/** What is wrong with where the output is. */
export function parquetProblems(output: ParquetOutputSpec): Problem[] {
  const at = ["output", "parquet"];
  const { path, sse } = output;
  const elsewhere = otherStoreProblem(path);
  if (elsewhere !== undefined) {
    return [{ path: [...at, "path"], message: elsewhere }];
  }
  const keys = Object.keys(storeOutputKeys).filter((name) => output[name as keyof StoreOutputSpec] !== undefined);
  const found = isObjectUri(path) ? (objectUriProblem(path) ?? folderProblem(path)) : undefined;
  if (found !== undefined) {
    return [{ path: [...at, "path"], message: found }];
  }
  if (/\/_challenger\/*$/.test(`/${path}`)) {
    return [
      { path: [...at, "path"], message: "_challenger is the folder of a challenger's predictions: name another one" },
    ];
  }
  const problems: Problem[] = needlessKeys(keys, [path]).map(({ key, message }) => ({ path: [...at, key], message }));
  if (sse?.algorithm === "AES256" && (sse.kms_key ?? sse.bucket_key) !== undefined) {
    problems.push({ path: [...at, "sse"], message: "kms_key and bucket_key go with algorithm: aws:kms" });
  }
  return problems;
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
