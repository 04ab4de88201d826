import type { TableRows } from "../columns/types.js";
import type { ListedShard } from "../run/plan/compare.js";
import type { Changes, InputState, PinnedTable } from "../run/plan/plan.js";

/** The read end of a job: lists shards, and makes their bytes readable as local files. */
export interface Source extends AsyncDisposable {
  /** It counts once the input is listed: only then it is known in which store a catalog's table is. */
  readonly readAhead: ReadAhead;
  /**
   * Lists the shards that patterns name, sorted by URI. A file that several patterns or links lead to is listed once,
   * under the first of its URIs, unless the folders give a partition column different values. A table has the shards
   * of one version, and those that are opened from then on are of that version.
   * @throws JobError FILE_MISSING, PERMISSION; SPEC_INVALID when the output is among the shards, or will be;
   * INPUT_CHANGED when the pinned version is gone; INPUT_REWRITTEN when rows after a position were not only added
   */
  list(patterns: readonly string[], wanted?: WantedInput): Promise<Listing>;
  /**
   * Lists the names directly in a folder: of a large folder only some, of a folder that is missing or may not be listed
   * none.
   */
  listNames(folder: string): Promise<readonly string[]>;
  /** Whether a marker such as `_SUCCESS` exists. */
  exists(uri: string): Promise<boolean>;
  /**
   * Opens a shard for reading until it is disposed.
   * @throws JobError INPUT_CHANGED when its size or fingerprint is not the planned one
   */
  open(shard: ListedShard): Promise<OpenShard>;
  /**
   * Called when a run of a table or a topic is published: tells those who watch it how far it is read, and returns how far
   * that is behind. Never rejects.
   */
  published(table: PinnedTable): Promise<InputState>;
}

/** What is read of a table. */
export interface WantedInput {
  /** The version that a plan names. Default: the one that the spec names. */
  readonly table?: PinnedTable | undefined;
  /** Only what came between two positions; equal ones give equal shards. `to`: null: up to now. Default: all rows. */
  readonly changes?: (Omit<Changes, "to"> & { readonly to: string | null }) | undefined;
}

/** Bounds of reading ahead. */
export interface ReadAhead {
  /** Files that are open before they are read. */
  readonly files: number;
  /** Small files that are opened and read together. */
  readonly coalescedFiles: number;
  /** Bytes of a window, the part of a shard that is fetched at once; infinite where shards are local. */
  readonly windowBytes: number;
  /** Bytes that were fetched and not yet freed, at most; a single larger window is still fetched. */
  readonly bytes: number;
}

/** What patterns name. */
export interface Listing {
  /** The table whose files the shards are, at the version that is read; undefined: they are files. */
  readonly table?: PinnedTable | undefined;
  /** Set where changes were asked for. */
  readonly changes?: Changes | undefined;
  readonly shards: readonly ListedShard[];
  /** Paths without wildcards that do not exist. */
  readonly missingFiles: readonly string[];
  /** Local folders in which opened shards will be. */
  readonly folders: readonly string[];
  /** Patterns that match no file. */
  readonly unmatched: readonly string[];
  /** Patterns whose folder before the first wildcard does not exist. */
  readonly missingFolders: readonly (MissingFolder & { readonly pattern: string })[];
  /** Matches that cannot be read as a shard. */
  readonly unreadable: readonly (UnreadableMatch & { readonly pattern: string })[];
  /** Folders above shards that may be the roots of lakehouse tables. */
  readonly tableRoots: readonly { readonly folder: string; readonly pattern: string }[];
}

/** A path that does not exist. */
export interface MissingFolder {
  /** The first folder of the path that does not exist. */
  readonly folder: string;
  /** Whether only the last folder of the path is missing. */
  readonly parentExists: boolean;
}

/** A match that is not a readable file. */
export interface UnreadableMatch {
  readonly path: string;
  /** The part of a message that follows the path. */
  readonly finding: string;
  readonly hint: string;
}

/** A shard that is open for reading. */
export interface OpenShard extends AsyncDisposable {
  /** An absolute path on this machine. */
  readonly path: string;
  readonly name: string;
  /** Values of columns that its rows have and the file does not, as texts; null: NULL. */
  readonly partitions: ReadonlyMap<string, string | null>;
  /** How its columns and rows become those of a table; undefined: they are its own. */
  readonly table?: TableRows | undefined;
  /** Present when the local file holds only fetched bytes: `fetch` adds bytes, `forget` frees all of them. */
  readonly remote?:
    | {
        /** `keep`: cache the bytes for other files of this shard, which will need them too. */
        fetch(
          ranges: readonly { readonly start: number; readonly end: number }[],
          options?: { readonly keep?: boolean },
        ): Promise<void>;
        forget(): Promise<void>;
      }
    | undefined;
  /**
   * Compares the shard with the plan; called after its last row was read and before anything made from it is committed.
   * @throws JobError INPUT_CHANGED when the shard was replaced or written to
   */
  check(): Promise<void>;
  /** Reads the whole shard, and resolves to its sha256 in hex. @throws JobError DISK; the signal's reason */
  digest(signal: AbortSignal): Promise<string>;
}

/** The folder that the job writes files to. Files in it are never input. */
export interface OutputFolder {
  /** A path, or `s3://bucket/folder`. */
  readonly folder: string;
  /** The name of a part that the run will write there. */
  readonly part: string;
}

/** The hint of errors about input in the output folder. */
export const outputHint = "write the output outside the folders that input.path matches";
