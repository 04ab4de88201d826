import type { ObjectStore } from "../objects/store.js";
import type { S3Options } from "../s3/store.js";
import type { S3OutputSpec } from "../spec/parquet-spec.js";
import type { S3Spec } from "../spec/s3/s3-spec.js";

/** Opens the store that a part of the spec names. The SDK is loaded here, since that takes a while. */
export async function openStore(spec: S3Spec & Pick<S3OutputSpec, "sse">, options: StoreOptions): Promise<ObjectStore> {
  const { openS3Store } = await import("../s3/store.js");
  return openS3Store(s3Options(spec, options));
}

type StoreOptions = Pick<S3Options, "retry" | "signal">;

/** Returns how to reach the store that a part of the spec names. */
export function s3Options(
  {
    endpoint,
    region,
    path_style: pathStyle,
    request_payer: requestPayer,
    timeouts,
    sse: encryption,
  }: S3Spec & Pick<S3OutputSpec, "sse">,
  { retry, signal }: StoreOptions,
): S3Options {
  const { connect = 10, silence = 20, request = 300 } = timeouts ?? {};
  return {
    settings: { endpoint, region, pathStyle, requestPayer, encryption },
    timeouts: { connectMs: connect * 1000, silenceMs: silence * 1000, requestMs: request * 1000 },
    retry,
    signal,
  };
}

/** Returns the URL of a store, from the spec or the environment; empty for AWS. */
export function storeUrl({ endpoint }: S3Spec): string {
  return endpoint ?? process.env["AWS_ENDPOINT_URL_S3"] ?? process.env["AWS_ENDPOINT_URL"] ?? "";
}
