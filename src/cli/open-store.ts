import type { S3Options, S3Store } from "../s3/store.js";
import type { S3Spec } from "../spec/s3-spec.js";

/** How the store of a place in the spec is reached. */
export function s3Options(
  { endpoint, region, path_style: pathStyle, request_payer: requestPayer, timeouts }: S3Spec,
  { retry, signal }: Pick<S3Options, "retry" | "signal">,
): S3Options {
  const { connect = 10, silence = 20, request = 300 } = timeouts ?? {};
  return {
    place: { endpoint, region, pathStyle, requestPayer },
    timeouts: { connectMs: connect * 1000, silenceMs: silence * 1000, requestMs: request * 1000 },
    retry,
    signal,
  };
}

/** The SDK is loaded then only: it takes a while. */
export async function openStore(spec: S3Spec, tools: Pick<S3Options, "retry" | "signal">): Promise<S3Store> {
  const { openS3Store } = await import("../s3/store.js");
  return openS3Store(s3Options(spec, tools));
}
