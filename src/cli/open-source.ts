import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import type { RetryTools } from "../retry.js";
import { diskSource, type OutputFolder } from "../source/disk.js";
import type { Source } from "../source/port.js";
import type { S3Options, S3Store } from "../s3/store.js";
import type { InputSpec } from "../spec/job-spec.js";
import type { S3Spec } from "../spec/s3-spec.js";
import { isS3Uri } from "../spec/s3-uri.js";

export interface SourceTools {
  /** The spec's folder. */
  readonly folder: string;
  readonly output: OutputFolder | undefined;
  readonly retry: RetryTools;
  /** Names this process among all on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly signal: AbortSignal;
}

/** The disk, and S3 where the spec names it. The SDK is loaded then only: it takes a while. */
export async function openSource(input: InputSpec, tools: SourceTools): Promise<Source> {
  const { folder, output, writer, isDead } = tools;
  const disk = diskSource({ folder, output });
  if (![...input.path, input.ready ?? ""].some(isS3Uri)) {
    return disk;
  }
  const { s3Source } = await import("../source/s3.js");
  const { openSpool } = await import("../source/spool.js");
  const { severalSources } = await import("../source/several.js");
  const { path, max_mb: maxMb } = input.spool;
  const root = path === undefined ? join(tmpdir(), "infer-batch-spool") : resolve(folder, path);
  const spool = openSpool({ root, writer, isDead, maxBytes: maxMb * 1024 * 1024 });
  return severalSources({ disk, s3: s3Source({ store: await openStore(input, tools), spool }) });
}

/** The store of a place in the spec. */
export async function openStore(
  { endpoint, region, path_style: pathStyle, request_payer: requestPayer, timeouts }: S3Spec,
  { retry, signal }: Pick<S3Options, "retry" | "signal">,
): Promise<S3Store> {
  const { openS3Store } = await import("../s3/store.js");
  const { connect = 10, silence = 20, request = 300 } = timeouts ?? {};
  return openS3Store({
    place: { endpoint, region, pathStyle, requestPayer },
    timeouts: { connectMs: connect * 1000, silenceMs: silence * 1000, requestMs: request * 1000 },
    retry,
    signal,
  });
}
