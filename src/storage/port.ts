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
  /**
   * Names of files directly in a folder, some of them where they are many; none where it is not there or may not be
   * listed.
   */
  names(folder: string): Promise<readonly string[]>;
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
  readonly coalesced: number;
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
  /** Patterns that match nothing. */
  readonly unmatched: readonly string[];
  /** Where the folder that a pattern names before its first wildcard is not there. */
  readonly missing: readonly (MissingFolder & { readonly pattern: string })[];
  /** What patterns match and cannot be read as a shard. */
  readonly unread: readonly (UnreadMatch & { readonly pattern: string })[];
  /** Folders that may be those of lakehouse tables, with shards of a pattern below them. */
  readonly tableRoots: readonly { readonly folder: string; readonly pattern: string }[];
}

export interface MissingFolder {
  /** The first folder of the path that is not there. */
  readonly folder: string;
  /** Whether it is the last one of the path, too. */
  readonly isParentThere: boolean;
}

export interface UnreadMatch {
  readonly path: string;
  /** As a message goes on after the path. */
  readonly finding: string;
  readonly hint: string;
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
