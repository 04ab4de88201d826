import type { InputSpec } from "../spec/input-spec.js";
import { isObjectUri } from "../spec/object-uri.js";
import { combineSources } from "../storage/listing.js";
import { diskSource } from "../storage/disk.js";
import type { OutputFolder, Source } from "../storage/port.js";
import type { RetryTools } from "../util/retry.js";
import { openSpool, spoolRoot } from "../util/spool.js";
import { placeOf } from "./open-store.js";
import { refuseSmallAddressSpace } from "./process-limits.js";

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

/** Opens the source of the shards: the disk, and the store that the spec names. The code for that is loaded only then. */
export async function openSource(input: InputSpec, options: SourceOptions): Promise<Source> {
  const { folder, output, golden = "", writer, isDead } = options;
  const inStore = output !== undefined && isObjectUri(output.folder);
  const disk = diskSource({ folder, output: inStore ? undefined : output });
  const uri = [...input.path, input.ready ?? "", golden].find(isObjectUri);
  if (uri === undefined) {
    return disk;
  }
  refuseSmallAddressSpace();
  const { openReaderThread } = await import("../storage/reader.js");
  const { place, requests } = placeOf(uri, input, options);
  const reader = openReaderThread(place, requests); // first: it takes longest to start
  const { objectSource } = await import("../storage/objects.js");
  const { path, max_mb: maxMb } = input.spool;
  const root = spoolRoot(folder, path);
  const spool = openSpool({ root, writer, use: "in", isDead, maxBytes: maxMb * 1024 * 1024 });
  return combineSources({ disk, objects: objectSource({ reader, spool, output: inStore ? output : undefined }) });
}
