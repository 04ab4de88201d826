import type { ListedShard } from "../plan/compare.js";

/** The read end: lists shards and makes their bytes readable as local files. */
export interface Source {
  /**
   * Shards that the patterns name, sorted by URI. A file that several patterns or links lead to comes once,
   * under the first of its URIs, unless its folders give a column different values.
   * @throws JobError FILE_MISSING, PERMISSION, SPEC_INVALID when the output lies among them, or will
   */
  list(patterns: readonly string[]): Promise<Listing>;
  /** Whether a marker such as `_SUCCESS` is there. */
  exists(uri: string): Promise<boolean>;
  /**
   * Makes a shard's bytes readable until disposed.
   * @throws JobError INPUT_CHANGED when they are not those that were pinned
   */
  open(shard: ListedShard): Promise<OpenShard>;
}

export interface Listing {
  readonly shards: readonly ListedShard[];
  /** Paths without wildcards where nothing is. */
  readonly absent: readonly string[];
  /** The local folders that the opened shards will lie in. */
  readonly folders: readonly string[];
}

export interface OpenShard extends AsyncDisposable {
  /** An absolute path on this machine. */
  readonly path: string;
  /**
   * Called after the last row was read and before anything made from it is committed.
   * @throws JobError INPUT_CHANGED when the shard was replaced or written to meanwhile
   */
  check(): Promise<void>;
  /** Hex sha256 of all its bytes, read now. @throws JobError DISK; the signal's reason when it is aborted */
  digest(signal: AbortSignal): Promise<string>;
}
