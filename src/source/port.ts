import type { ListedShard } from "../plan/compare.js";

/** The read end: lists shards and makes their bytes readable as local files. */
export interface Source extends AsyncDisposable {
  /** How much of what comes next is worth having under way while something is read. */
  readonly ahead: ReadAhead;
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

export interface ReadAhead {
  /** Files that wait to be read. */
  readonly files: number;
  /** Small files that are worth opening and reading in one go. */
  readonly together: number;
  /** Bytes that are read together where a shard is fetched in parts. */
  readonly windowBytes: number;
  /** Bytes that are fetched and still there, at most, unless one window has more. */
  readonly bytes: number;
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
  /** As messages name the shard. */
  readonly name: string;
  /** Where the file has only those bytes that were asked for: fetches more, and frees their room again. */
  readonly remote?:
    | {
        /** `keep`: other files of this shard will want these bytes, too. */
        fetch(
          ranges: readonly { readonly start: number; readonly end: number }[],
          options?: { readonly keep?: boolean },
        ): Promise<void>;
        forget(): Promise<void>;
      }
    | undefined;
  /**
   * Called after the last row was read and before anything made from it is committed.
   * @throws JobError INPUT_CHANGED when the shard was replaced or written to meanwhile
   */
  check(): Promise<void>;
  /** Hex sha256 of all its bytes, read now. @throws JobError DISK; the signal's reason when it is aborted */
  digest(signal: AbortSignal): Promise<string>;
}
