import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { S3Options } from "../s3/requests.js";
import type { S3Store } from "../s3/store.js";
import type { S3Target } from "../s3/target.js";
import type { S3OutputSpec } from "../spec/parquet-spec.js";
import type { S3Spec } from "../spec/s3-spec.js";

type Tools = Pick<S3Options, "retry" | "signal">;

/** The store of a place in the spec. The SDK is loaded then only: it takes a while. */
export async function openStore(spec: S3Spec, tools: Tools): Promise<S3Store> {
  const { openS3Store } = await import("../s3/store.js");
  return openS3Store(s3Options(spec, tools));
}

/** The store of the output. */
export async function openTarget(spec: S3OutputSpec, tools: Tools & { readonly writer: string }): Promise<S3Target> {
  const { openS3Target } = await import("../s3/target.js");
  const { algorithm, kms_key: keyId, bucket_key: bucketKey } = spec.sse ?? {};
  const encryption = algorithm === undefined ? undefined : { algorithm, keyId, bucketKey };
  return openS3Target({ ...s3Options(spec, tools), writer: tools.writer, encryption });
}

/** How the store of a place in the spec is reached. */
export function s3Options(
  { endpoint, region, path_style: pathStyle, request_payer: requestPayer, timeouts }: S3Spec,
  { retry, signal }: Tools,
): S3Options {
  const { connect = 10, silence = 20, request = 300 } = timeouts ?? {};
  return {
    settings: { endpoint, region, pathStyle, requestPayer },
    timeouts: { connectMs: connect * 1000, silenceMs: silence * 1000, requestMs: request * 1000 },
    retry,
    signal,
  };
}

/** Where a store is, as far as the spec and the environment tell; empty: AWS. */
export function storeUrl({ endpoint }: S3Spec): string {
  return endpoint ?? process.env["AWS_ENDPOINT_URL_S3"] ?? process.env["AWS_ENDPOINT_URL"] ?? "";
}

/** The folder of what is on its way from or to a store. `given`: as the spec says, relative to its `folder`. */
export function spoolRoot(folder: string, given: string | undefined): string {
  // Not os.userInfo(): in a container a user need not have a name, and it throws then.
  return given === undefined ? join(tmpdir(), `infer-batch-spool-${process.getuid?.()}`) : resolve(folder, given);
}
