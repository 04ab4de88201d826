import type { ColumnRef, Contract, Expression, Projection } from "../models/binding/contract.js";
import type { Column, ColumnType, RecordBatch, SourceColumn, Piece, TableRows } from "../columns/types.js";

/** What an expression is over the columns of one shard. */
export interface BoundExpression {
  /** The shard's columns that it uses, as the shard spells them. */
  readonly uses: readonly string[];
  /** The type in the format's notation ("DOUBLE"). */
  readonly sourceType: string;
  readonly type: ColumnType | undefined;
}

/** Values of columns that are not in the file but in its folders' names, or in the log of its table; null: NULL. */
export type Partitions = ReadonlyMap<string, string | null>;

export interface ShardSchema {
  readonly columns: readonly SourceColumn[];
  readonly legacyDates: readonly LegacyDates[];
}

/** A column with dates or timestamps of the hybrid calendar of Spark 2 (Julian before 1582-10-15). */
export interface LegacyDates {
  readonly column: string;
  /** The key of the file's metadata that says so, and the time zone that Spark computed in. */
  readonly key: string;
  readonly timeZone: string;
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
  /** Counts of NULLs above zero that the file's statistics state, by column; not of lists, structs and maps. */
  readonly nulls: ReadonlyMap<string, number>;
}

export interface PageCounts {
  readonly pages: number;
  /** Pages that have a checksum. */
  readonly checksums: number;
}

/** The facts of a shard's footer that are shown to people. Runs do not need them. */
export interface ShardDetails extends Omit<ShardFooter, "schema" | "encrypted" | "nulls"> {
  readonly footerBytes: number;
  /** The program that wrote it, where it says so. */
  readonly createdBy: string | null;
  readonly formatVersion: number;
  /** Rows of the smallest and of the largest row group; null when there is none. */
  readonly rowGroupRows: { readonly min: number; readonly max: number } | null;
  readonly metadataKeys: readonly string[];
  readonly columns: readonly ShardColumn[];
}

/** A column of the table, with its nested fields. */
export interface ShardColumn {
  readonly name: string;
  /** The type in the format's notation ("BIGINT", "STRUCT(…)"). */
  readonly type: string;
  /** The NULL count from the row groups' statistics; null if one has none, and for lists, structs and maps. */
  readonly nulls: number | null;
  /** "zstd", "snappy", "uncompressed" …; sorted. */
  readonly codecs: readonly string[];
  readonly compressedBytes: number;
  readonly uncompressedBytes: number;
}

/** Bytes [start, end) of a file. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

/** A shard as a file on this machine. */
export interface ShardFile {
  /** The absolute path of the file. */
  readonly path: string;
  /** The shard's name in messages. */
  readonly name: string;
  /** Where the file has only those bytes that were asked for; the others read as zeros. */
  readonly remote?: RemoteBytes | undefined;
  /** How its columns and rows become those of a table; undefined: they are its own. */
  readonly table?: TableRows | undefined;
  /** What to do when the shard is damaged, where it is not a file that could be written again. */
  readonly remedy?: string | undefined;
}

export interface RemoteBytes {
  /** Fetches what is not there yet of these ranges. `keep`: other files of this shard will want them, too. */
  fetch(ranges: readonly ByteRange[], options?: { readonly keep?: boolean }): Promise<void>;
  /** Frees the space of the fetched bytes. */
  forget(): Promise<void>;
}

/** Rows of a slice that one read covers, and the byte ranges that hold them. */
export interface SliceWindow {
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly ranges: readonly ByteRange[];
}

export interface SliceRequest {
  readonly file: ShardFile;
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
  readonly projection: Projection;
  readonly partitions: Partitions;
  /** The number of the shard's first row in the run; undefined: the rows are not numbered. */
  readonly firstRow?: number | undefined;
}

/** Some rows of a shard, with the columns that a contract reads and computes. */
export interface RowsRequest {
  readonly file: ShardFile;
  readonly rows: readonly number[];
  readonly expressions: Contract["expressions"];
  readonly partitions: Partitions;
}

/** Rows that come once and in order, from another program. */
export interface RowStream extends Disposable {
  /** Has the stream's columns and none of its rows; waits until they are known. @throws JobError SHARD_CORRUPT */
  head(): Promise<ShardFile>;
  /**
   * The batches of the stream as they come. Ends normally only when the stream says that all have come; rejects when
   * the stream is disposed.
   * @throws JobError SHARD_CORRUPT, DISK
   */
  batches(): AsyncGenerator<StreamedBatch>;
}

/** Some rows of a stream, held in memory. */
export interface StreamedBatch {
  /** What a decoder that was opened for the stream reads; its rows have the stream's numbers. */
  readonly file: ShardFile;
  /** [rowStart, rowEnd) of the stream. */
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Releases the memory of the batch. */
  release(): void;
}

/** Neighbouring rows of a shard that a worker reads on its own: sent as it is, with what its format's reader needs. */
export interface Unit {
  readonly format: "parquet" | "arrow";
  /** [rowStart, rowEnd) of the shard. */
  readonly rowStart: number;
  readonly rowEnd: number;
  /** Units of one group cost less where the same worker reads them one after the other; undefined: no other is like it. */
  readonly group: string | undefined;
}

/** The units of one slice, in order. */
export interface SliceUnits {
  readonly units: readonly Unit[];
  /** Columns from folder names, of one row. */
  readonly constants: ReadonlyMap<string, Column>;
  /** Rows of the shard that its table has removed: ascending numbers. */
  readonly removed: Uint32Array;
  /** Returns how many of `workers` fit into memory if each reads one of these units. */
  readonly fitting: (workers: number) => number;
}

export interface UnitOptions {
  /** False: the slice is one of several that one call of `read` would read. */
  readonly isAlone: boolean;
  /** undefined: the workers score nothing. */
  readonly sharing?: UnitSharing | undefined;
}

/** Workers that score what they read, which is shared out among them: the less is left, the smaller the units are. */
export interface UnitSharing {
  readonly workers: number;
  /** Rows that these workers will read, from the first one that is asked for on. */
  readonly rowsLeft: number;
  /** Rows of a batch; it may change. */
  readonly batchRows: () => number;
}

/** Reads units of one format in a worker, and keeps what the next unit may need. */
export interface UnitReader {
  /**
   * The rows of a unit, in order. A piece holds until the next one is asked for.
   * @throws RangeError where the bytes are not as this reader reads them
   */
  read(unit: Unit, projection: Projection): AsyncIterable<Piece> | Iterable<Piece>;
  /** Gives back the memory that it keeps; nothing may be read after it. */
  close(): void;
}

/** What is asked of a shard beside its rows. */
export interface ShardQuestions {
  /**
   * Checks that `text` is one expression of one row, which depends on nothing but the shard's columns, and tells
   * its type.
   * @throws JobError SPEC_INVALID
   */
  bindExpression(request: {
    readonly file: ShardFile;
    readonly text: string;
    /** The columns of the file and of its folders. */
    readonly columns: readonly SourceColumn[];
    readonly partitions: Partitions;
  }): Promise<BoundExpression>;
  /**
   * Tells for each partition whether a filter may keep rows of it: not where parts of the filter that name nothing but
   * the partition's columns are not true. @throws JobError SPEC_INVALID
   */
  mayKeep(request: {
    readonly text: string;
    readonly columns: readonly SourceColumn[];
    readonly partitions: readonly Partitions[];
  }): Promise<readonly boolean[]>;
  /** Values of some rows as text, for messages about them: by row, then by column; null for NULL. */
  describeRows(
    request: RowsRequest & { readonly columns: readonly ColumnRef[] },
  ): Promise<ReadonlyMap<number, readonly (string | null)[]>>;
  /** What is said when `expression` is computed for the first of `rows`, where it fails. */
  describeFailure(request: RowsRequest & { readonly expression: Expression }): Promise<string>;
}

/** Turns shards into record batches. */
export interface Decoder extends ShardQuestions, AsyncDisposable {
  /** Footers only, in the order given, at most some at a time. @throws JobError SHARD_CORRUPT naming the file */
  footers(files: readonly ShardFile[]): AsyncIterable<ShardFooter>;
  /**
   * Cuts a slice of a file that is not all there into windows of neighbouring rows, in order: each of as many bytes
   * as `windowBytes`, or of what cannot be divided.
   * @throws JobError SHARD_CORRUPT
   */
  windows(slice: SliceRequest, windowBytes: number): Promise<readonly SliceWindow[]>;
  /**
   * Cuts a slice into units, which workers read in place of `read`; undefined: it has to be read by `read`.
   * @throws JobError SHARD_CORRUPT
   */
  units(slice: SliceRequest, options: UnitOptions): Promise<SliceUnits | undefined>;
  /**
   * The rows of slices, whose bytes are there, in order and each in file order, in batches of irregular length. A
   * batch's arrays hold until the next one is asked for. Where there are several slices, they are whole shards with
   * the same columns, types and partitions.
   * Ends normally only when exactly the rows asked for came.
   * @throws JobError SHARD_CORRUPT
   */
  read(slices: readonly SliceRequest[]): AsyncIterable<RecordBatch>;
  /**
   * Reads all pages of a shard and checks them against the footer and their checksums, where they have one.
   * @throws JobError SHARD_CORRUPT naming file, row group and column
   */
  verify(file: ShardFile, signal: AbortSignal): Promise<PageCounts>;
}
