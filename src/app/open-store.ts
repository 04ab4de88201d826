import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { S3Options } from "../s3/requests.js";
import type { S3Store } from "../s3/store.js";
import type { S3Target } from "../s3/target.js";
import type { S3OutputSpec } from "../spec/parquet-spec.js";
import type { S3Spec } from "../spec/s3/s3-spec.js";

type StoreOptions = Pick<S3Options, "retry" | "signal">;

/** Opens the store that a part of the spec names. The SDK is loaded here, since that takes a while. */
export async function openStore(spec: S3Spec, options: StoreOptions): Promise<S3Store> {
  const { openS3Store } = await import("../s3/store.js");
  return openS3Store(s3Options(spec, options));
}

/** Opens the store of the output. */
export async function openTarget(
  spec: S3OutputSpec,
  options: StoreOptions & { readonly writer: string },
): Promise<S3Target> {
  const { openS3Target } = await import("../s3/target.js");
  const { algorithm, kms_key: keyId, bucket_key: bucketKey } = spec.sse ?? {};
  const encryption = algorithm === undefined ? undefined : { algorithm, keyId, bucketKey };
  return openS3Target({ ...s3Options(spec, options), writer: options.writer, encryption });
}

/** Returns how to reach the store that a part of the spec names. */
export function s3Options(
  { endpoint, region, path_style: pathStyle, request_payer: requestPayer, timeouts }: S3Spec,
  { retry, signal }: StoreOptions,
): S3Options {
  const { connect = 10, silence = 20, request = 300 } = timeouts ?? {};
  return {
    settings: { endpoint, region, pathStyle, requestPayer },
    timeouts: { connectMs: connect * 1000, silenceMs: silence * 1000, requestMs: request * 1000 },
    retry,
    signal,
  };
}

/** Returns the URL of a store, from the spec or the environment; empty for AWS. */
export function storeUrl({ endpoint }: S3Spec): string {
  return endpoint ?? process.env["AWS_ENDPOINT_URL_S3"] ?? process.env["AWS_ENDPOINT_URL"] ?? "";
}

/** Returns the folder for temporary copies of objects. @param given the folder in the spec, relative to `folder` */
export function spoolRoot(folder: string, given: string | undefined): string {
  // Not os.userInfo(): in a container a user need not have a name, and it throws then.
  return given === undefined ? join(tmpdir(), `infer-batch-spool-${process.getuid?.()}`) : resolve(folder, given);
}
