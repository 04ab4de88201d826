import { tmpdir, userInfo } from "node:os";
import { join, resolve } from "node:path";
import type { RetryTools } from "../retry.js";
import { diskSource, type OutputFolder } from "../source/disk.js";
import type { Source } from "../source/port.js";
import type { InputSpec } from "../spec/job-spec.js";
import { isS3Uri } from "../spec/s3-uri.js";
import { s3Options } from "./open-store.js";

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

/** The disk, and S3 where the spec names it: what it takes is loaded then only. */
export async function openSource(input: InputSpec, tools: SourceTools): Promise<Source> {
  const { folder, output, writer, isDead } = tools;
  const disk = diskSource({ folder, output });
  if (![...input.path, input.ready ?? ""].some(isS3Uri)) {
    return disk;
  }
  const { openReaderThread } = await import("../s3/reader-thread.js");
  const reader = openReaderThread(s3Options(input, tools)); // first: it has the most to load
  const { s3Source } = await import("../source/s3.js");
  const { openSpool } = await import("../source/spool.js");
  const { severalSources } = await import("../source/several.js");
  const { path, max_mb: maxMb } = input.spool;
  const root = path === undefined ? join(tmpdir(), `infer-batch-spool-${userInfo().uid}`) : resolve(folder, path);
  const spool = openSpool({ root, writer, isDead, maxBytes: maxMb * 1024 * 1024 });
  return severalSources({ disk, s3: s3Source({ reader, spool }) });
}
