import type { ColumnRef, Contract } from "../batch/contract.js";
import type { RecordBatch, SourceColumn } from "../batch/types.js";

/** What a contract needs of a shard: a column for each input, cast and packed, then the carried ones as they are. */
export type Projection = Pick<Contract, "inputs" | "passthrough" | "cast" | "missing">;

export interface ShardSchema {
  readonly columns: readonly SourceColumn[];
}

/** What a shard's footer says. */
export interface ShardFooter {
  readonly path: string;
  readonly rows: number;
  readonly rowGroups: number;
  readonly sizeBytes: number;
  /** The same object for all shards with the same columns, types and order. */
  readonly schema: ShardSchema;
  /** Names of columns, or of those that hold them, that cannot be read without a key. */
  readonly encrypted: readonly string[];
}

export interface PageCounts {
  readonly pages: number;
  /** Of the pages: those that have a checksum. */
  readonly checksums: number;
}

/** All that a shard's footer tells: for people, not for a run. */
export interface ShardDetails extends Omit<ShardFooter, "schema" | "encrypted"> {
  readonly footerBytes: number;
  /** The program that wrote it, where it says so. */
  readonly createdBy: string | null;
  readonly formatVersion: number;
  /** Of the smallest and the largest row group; null when there is none. */
  readonly rowGroupRows: { readonly min: number; readonly max: number } | null;
  readonly metadataKeys: readonly string[];
  readonly columns: readonly ShardColumn[];
}

/** A column of the table, with all that lies in it. */
export interface ShardColumn {
  readonly name: string;
  /** As the format writes it ("BIGINT", "STRUCT(…)"). */
  readonly type: string;
  /** From the row groups' statistics; null when one has none, and of lists, structs and maps. */
  readonly nulls: number | null;
  /** "zstd", "snappy", "uncompressed" …; sorted. */
  readonly codecs: readonly string[];
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
}

export interface SliceRequest {
  readonly path: string;
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly projection: Projection;
  /** Values of columns that are not in the file but in its folders' names; null: NULL. */
  readonly partitions: ReadonlyMap<string, string | null>;
}

/** Turns shards into record batches. */
export interface Decoder extends AsyncDisposable {
  /**
   * Footers only, in the order given, at most some at a time.
   * @throws JobError SHARD_CORRUPT naming the file
   */
  footers(paths: readonly string[]): AsyncIterable<ShardFooter>;
  /**
   * The rows of a slice, in file order, in batches of irregular length. A batch's arrays hold
   * until the next one is asked for.
   * Ends normally only when exactly the rows asked for came.
   * @throws JobError SHARD_CORRUPT
   */
  read(slice: SliceRequest): AsyncIterable<RecordBatch>;
  /**
   * Reads all pages of a shard and checks them against the footer and their checksums, where they have one.
   * @throws JobError SHARD_CORRUPT naming file, row group and column
   */
  verify(path: string, signal: AbortSignal): Promise<PageCounts>;
  /** Values of some rows as text, for messages about them: by row, then by column; null for NULL. */
  describeRows(request: {
    readonly path: string;
    readonly rows: readonly number[];
    readonly columns: readonly ColumnRef[];
    readonly partitions: SliceRequest["partitions"];
  }): Promise<ReadonlyMap<number, readonly (string | null)[]>>;
}
