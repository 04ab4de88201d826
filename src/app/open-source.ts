import type { RetryTools } from "../util/retry.js";
import { diskSource } from "../storage/local/disk.js";
import type { OutputFolder } from "../storage/output-folder.js";
import type { Source } from "../storage/port.js";
import type { InputSpec } from "../spec/input-spec.js";
import { isS3Uri } from "../spec/s3/s3-uri.js";
import { refuseSmallAddressSpace } from "./process-limits.js";
import { s3Options } from "./open-store.js";
import { openSpool, spoolRoot } from "../util/spool.js";

export interface SourceOptions {
  /** The folder of the spec. */
  readonly folder: string;
  readonly output: OutputFolder | undefined;
  /** A file that is read in addition to the shards. */
  readonly golden: string | undefined;
  readonly retry: RetryTools;
  /** Identifies this process among all processes on all machines. */
  readonly writer: string;
  readonly isDead: (writer: string) => boolean;
  readonly signal: AbortSignal;
}

/** Opens the source of the shards: the disk, and S3 if the spec names it. The code for S3 is loaded only then. */
export async function openSource(input: InputSpec, options: SourceOptions): Promise<Source> {
  const { folder, output, golden = "", writer, isDead } = options;
  const inS3 = output !== undefined && isS3Uri(output.folder);
  const disk = diskSource({ folder, output: inS3 ? undefined : output });
  if (![...input.path, input.ready ?? "", golden].some(isS3Uri)) {
    return disk;
  }
  refuseSmallAddressSpace();
  const { openReaderThread } = await import("../storage/s3/reader-thread.js");
  const reader = openReaderThread(s3Options(input, options)); // first: it takes longest to start
  const { s3Source } = await import("../storage/s3/source.js");
  const { combineSources } = await import("../storage/combined-source.js");
  const { path, max_mb: maxMb } = input.spool;
  const root = spoolRoot(folder, path);
  const spool = openSpool({ root, writer, use: "in", isDead, maxBytes: maxMb * 1024 * 1024 });
  return combineSources({ disk, s3: s3Source({ reader, spool, output: inS3 ? output : undefined }) });
}
